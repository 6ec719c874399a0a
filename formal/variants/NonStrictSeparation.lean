import CertHead.Decision.Bf16
/-! Separation with `≤`: exactly one spacing apart is not enough. With three bits, 11 and 13 are two apart, the
spacing is two, and both round to 12. -/
namespace CertHead

example : (Grid.quantum ⟨3, 0, 20⟩ 13 : Int) ≤ 13 - 11 ∧ roundNE ⟨3, 0, 20⟩ 11 = roundNE ⟨3, 0, 20⟩ 13 := by decide

theorem separation_non_strict {rn : Int → Int} {spacing : Nat → Nat} (model : RoundModel rn spacing) {a b : Int}
    (apart : (spacing (max a.natAbs b.natAbs) : Int) ≤ a - b) : rn b < rn a := by
  have moveA := model.nearest a
  have moveB := model.nearest b
  have growA := model.spacing_mono (Nat.le_max_left a.natAbs b.natAbs)
  have growB := model.spacing_mono (Nat.le_max_right a.natAbs b.natAbs)
  omega -- rejected: omega could not prove the goal

end CertHead
