import CertHead.Sampling.Properties
/-! Acceptance and rejection that both allow equality: on the boundary both hold. -/
namespace CertHead

example : (1 : Int) * 2 ≤ 2 * 1 ∧ (2 : Int) * 1 ≤ 1 * 2 := by decide

theorem guards_both_non_strict {u steps p q : Int} {pv qv : Interval} (u_nonneg : 0 ≤ u) (steps_nonneg : 0 ≤ steps)
    (target : pv.Contains p) (draft : qv.Contains q) :
    ¬ (u * qv.hi ≤ pv.lo * steps ∧ pv.hi * steps ≤ u * qv.lo) := by
  intro ⟨accept, reject⟩
  have a := Int.mul_le_mul_of_nonneg_left (Int.le_trans draft.1 draft.2) u_nonneg
  have b := Int.mul_le_mul_of_nonneg_right (Int.le_trans target.1 target.2) steps_nonneg
  omega -- rejected: omega could not prove the goal

end CertHead
