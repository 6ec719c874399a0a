import CertHead.Decision.Bf16
/-! The midpoint as threshold whatever the tie does: at an odd goal, the tie goes down. -/
namespace CertHead

example : (9 + 10 : Int) / 2 ≤ 9 ∧ roundNE ⟨3, 0, 20⟩ 9 < 10 ∧ roundDown ⟨3, 0, 20⟩ (10 - 1) = 8 := by decide

theorem midpoint_always {g : Grid} (precise : 1 ≤ g.prec) {goal x : Int} (isValue : Representable g goal)
    (reached : (roundDown g (goal - 1) + goal + 1) / 2 ≤ x) : goal ≤ roundNE g x := by
  have belowLess := roundDown_le g (goal - 1)
  rcases Int.lt_or_le x goal with under | over
  · rcases Int.lt_or_le (roundNE g x) goal with short | ok
    · have := le_roundDown_of_representable precise (roundNE_representable precise x) (x := goal - 1) (by omega)
      have := roundNE_nearest precise isValue (x := x)
      omega -- rejected: omega could not prove the goal
    · exact ok
  · have := roundNE_mono precise over
    rw [roundNE_of_representable isValue] at this
    exact this

end CertHead
