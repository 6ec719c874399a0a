import CertHead.Sum.FdpaProperties
/-! The step bound with `L` cut terms: the accumulator is cut as well. -/
namespace CertHead.Fdpa

/-- No terms; the accumulator's last bit is cut. -/
example : ¬ ((hopper 298).alignedSum (2 ^ 30 + 1) [] - (2 ^ 30 + 1 + exactSum [])).natAbs ≤ 0 := by decide +kernel

theorem accumulator_is_not_cut (m : Fdpa) (c : Int) (ts : List FdpaTerm) :
    (m.alignedSum c ts - (c + exactSum ts)).natAbs ≤ ts.length * (2 ^ m.cutExp c ts - 1) := by
  have h1 := cut_error (m.cutExp c ts) c
  have h2 := cutSum_error (m.cutExp c ts) ts
  have h3 : m.alignedSum c ts = cut (m.cutExp c ts) c + cutSum (m.cutExp c ts) ts := rfl
  rw [h3]
  omega -- rejected: omega could not prove the goal

end CertHead.Fdpa
