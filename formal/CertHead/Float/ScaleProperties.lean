import CertHead.Float.RoundProperties
/-!
# The choice of the common scale

An argument picks one scale `2^-B` for all its values. Any scale that is fine enough gives the same
roundings.
-/

namespace CertHead

/-- The same grid on a scale `2^k` times finer. -/
def Grid.finer (g : Grid) (k : Nat) : Grid := ⟨g.prec, g.qmin + k, g.top + k⟩

theorem grid_add {f : Format} {B : Nat} (k : Nat) (hB : f.FitsScale B)
    (ht : 0 ≤ (B : Int) + f.emax + 1) : f.grid (B + k) = (f.grid B).finer k := by
  unfold Format.FitsScale Format.qminExp at hB
  have h₁ : (((B + k : Nat) : Int) + (f.emin - ((f.prec : Int) - 1))).toNat
      = ((B : Int) + (f.emin - ((f.prec : Int) - 1))).toNat + k := by omega
  have h₂ : (((B + k : Nat) : Int) + f.emax + 1).toNat = ((B : Int) + f.emax + 1).toNat + k := by omega
  unfold Format.grid Grid.finer
  rw [h₁, h₂]

theorem quantum_finer {g : Grid} {n : Nat} (k : Nat) (hn : n ≠ 0) :
    (g.finer k).quantum (n * 2 ^ k) = g.quantum n * 2 ^ k := by
  unfold Grid.quantum
  rw [← Nat.pow_add]
  refine congrArg (2 ^ ·) ?_
  unfold Grid.quantumExp Grid.finer
  rw [log2_mul_two_pow hn]
  dsimp only
  omega

theorem natAbs_mul_two_pow (x : Int) (k : Nat) :
    (x * ((2 ^ k : Nat) : Int)).natAbs = x.natAbs * 2 ^ k := by
  rw [Int.natAbs_mul, Int.natAbs_natCast]

/-- **The choice of scale does not matter to rounding down:** a finer scale gives the same value. -/
theorem roundDown_finer (g : Grid) (k : Nat) (x : Int) :
    roundDown (g.finer k) (x * ((2 ^ k : Nat) : Int)) = roundDown g x * ((2 ^ k : Nat) : Int) := by
  by_cases h0 : x = 0
  · rw [h0, roundDown_zero, Int.zero_mul, roundDown_zero]
  · unfold roundDown
    rw [natAbs_mul_two_pow, quantum_finer k (by omega), Int.natCast_mul,
      Int.mul_ediv_mul_of_pos_left _ _ (two_pow_cast_pos k), Int.mul_assoc]

/-- **The choice of scale does not matter to rounding up.** -/
theorem roundUp_finer (g : Grid) (k : Nat) (x : Int) :
    roundUp (g.finer k) (x * ((2 ^ k : Nat) : Int)) = roundUp g x * ((2 ^ k : Nat) : Int) := by
  rw [roundUp_eq_neg, roundUp_eq_neg, ← Int.neg_mul, roundDown_finer, Int.neg_mul]

/-- **The choice of scale does not matter to rounding to nearest.** -/
theorem roundNE_finer (g : Grid) (k : Nat) (x : Int) :
    roundNE (g.finer k) (x * ((2 ^ k : Nat) : Int)) = roundNE g x * ((2 ^ k : Nat) : Int) := by
  by_cases h0 : x = 0
  · rw [h0, roundNE_zero, Int.zero_mul, roundNE_zero]
  · have hk := two_pow_cast_pos k
    have hdiv := Int.mul_ediv_mul_of_pos_left x (g.quantum x.natAbs : Int) hk
    have hmod : x * ((2 ^ k : Nat) : Int) % ((g.quantum x.natAbs : Int) * ((2 ^ k : Nat) : Int))
        = x % (g.quantum x.natAbs : Int) * ((2 ^ k : Nat) : Int) := by
      rw [Int.emod_def, Int.emod_def, hdiv, Int.sub_mul]
      congr 1
      ac_rfl
    have hlt : ∀ a b : Int, a * ((2 ^ k : Nat) : Int) < b * ((2 ^ k : Nat) : Int) ↔ a < b := fun a b =>
      ⟨fun h => Int.lt_of_mul_lt_mul_right h (Int.le_of_lt hk), fun h => Int.mul_lt_mul_of_pos_right h hk⟩
    unfold roundNE
    rw [natAbs_mul_two_pow, quantum_finer k (by omega), Int.natCast_mul]
    dsimp only
    rw [hdiv, hmod, ← Int.mul_assoc, ← Int.mul_assoc, ← Int.mul_assoc]
    by_cases h₁ : 2 * (x % (g.quantum x.natAbs : Int)) < (g.quantum x.natAbs : Int)
    · rw [if_pos h₁, if_pos ((hlt _ _).2 h₁)]
    · rw [if_neg h₁, if_neg (fun h => h₁ ((hlt _ _).1 h))]
      by_cases h₂ : (g.quantum x.natAbs : Int) < 2 * (x % (g.quantum x.natAbs : Int))
      · rw [if_pos h₂, if_pos ((hlt _ _).2 h₂)]
      · rw [if_neg h₂, if_neg (fun h => h₂ ((hlt _ _).1 h))]
        by_cases h₃ : x / (g.quantum x.natAbs : Int) % 2 = 0
        · rw [if_pos h₃, if_pos h₃]
        · rw [if_neg h₃, if_neg h₃]

end CertHead
