import CertHead.Decision.Select
/-! A threshold that rounds high enough but is not the least such value: candidates below it are lost. -/
namespace CertHead

/-- Without rounding, 5 reaches 3, and so does 4. -/
example : ¬ ((5 : Int) ≤ 4 ↔ (3 : Int) ≤ 4) := by decide

theorem some_value_reaching {rn : Int → Int} (monotone : Monotone rn) {t goal : Int}
    (reaches : goal ≤ rn t) (x : Int) : t ≤ x ↔ goal ≤ rn x := by
  constructor
  · intro h
    have := monotone _ _ h
    omega
  · intro h
    have := monotone x t
    omega -- rejected: omega could not prove the goal

end CertHead
