import CertHead.Sum.FdpaProperties
/-! The bound of 25 fraction bits for an adder that keeps 24: four terms, three of them cut to nothing. -/
namespace CertHead.Fdpa

/-- Four products a step, 24 fraction bits. -/
def shortAdder : Fdpa := ⟨4, 24, 0, ⟨24, 0, 277⟩, 8, none⟩

/-- The leading product cancels the accumulator, the others are just below the cut. -/
def shortTerms : List FdpaTerm := ⟨30, -2 ^ 30⟩ :: List.replicate 3 ⟨5, 63⟩

example : (4 + 1) * 2 ^ (shortAdder.maxExp (2 ^ 30) shortTerms - 25)
      + shortAdder.acc.quantum (shortAdder.step (2 ^ 30) shortTerms).natAbs
    ≤ (shortAdder.step (2 ^ 30) shortTerms - (2 ^ 30 + exactSum shortTerms)).natAbs := by decide +kernel

theorem fraction_one_bit_short {m : Fdpa} (hp : 1 ≤ m.acc.prec) (kept : m.fraction = 24) (c : Int)
    {ts : List FdpaTerm} (hlen : ts.length ≤ m.group) :
    (m.step c ts - (c + exactSum ts)).natAbs
      < (m.group + 1) * 2 ^ (m.maxExp c ts - 25) + m.acc.quantum (m.step c ts).natAbs := by
  have h := step_error_lt hp c hlen
  rw [kept] at h
  exact h -- rejected: Type mismatch

end CertHead.Fdpa
