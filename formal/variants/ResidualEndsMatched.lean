import CertHead.Sampling.Properties
/-! A residual interval with equal ends subtracted, low from low and high from high. -/
namespace CertHead

example : residual 2 0 = 2 ∧ max ((2 : Int) - 2) 0 = 0 := by decide

theorem residual_ends_matched {p q : Int} {pv qv : Interval} (target : pv.Contains p) (draft : qv.Contains q) :
    Interval.Contains ⟨max (pv.lo - qv.lo) 0, max (pv.hi - qv.hi) 0⟩ (residual p q) := by
  obtain ⟨pl, ph⟩ := target
  obtain ⟨ql, qh⟩ := draft
  unfold residual Interval.Contains
  dsimp only
  omega -- rejected: omega could not prove the goal

end CertHead
