import CertHead.Decision.Select
/-! Keeping the first `capacity` blocks instead of reporting overflow. -/
namespace CertHead

/-- `select` that cuts off. -/
def selectCut (rn : Int → Int) (s : Shape) (v : Nat → Interval) : Option (List Nat) :=
  some ((candidateBlocks rn s v).take s.capacity)

example : selectCut (fun x => x) ⟨2, 1, 1⟩ (fun _ => ⟨0, 1⟩) ≠ some (candidateBlocks (fun x => x) ⟨2, 1, 1⟩ fun _ => ⟨0, 1⟩) := by
  decide

theorem cut_off_returns_all_blocks {rn : Int → Int} {s : Shape} {v : Nat → Interval} {selected : List Nat}
    (answer : selectCut rn s v = some selected) : selected = candidateBlocks rn s v := by
  have e := Option.some.inj answer
  rw [← e]
  exact List.take_of_length_le (by omega) -- rejected: omega could not prove the goal

end CertHead
