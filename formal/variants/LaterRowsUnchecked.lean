import CertHead.Decision.Interval
/-! The interval condition without its later side: a later row may be larger. -/
namespace CertHead

/-- Row 1 above row 0. -/
example : ¬ IsFirstMaxAmong (· < 2) (fun i => i) 0 := fun h => absurd (h.2.1 1 (by decide)) (by decide)

theorem later_rows_unchecked {P : Nat → Prop} {low high f : Nat → Int} {k : Nat} (kept : P k)
    (inside : ∀ i, P i → low i ≤ f i ∧ f i ≤ high i)
    (best_low : ∀ j, P j → low j ≤ low k)
    (earlier : ∀ j, P j → j < k → high j < low k) : IsFirstMaxAmong P f k := by
  have atK := inside k kept
  refine ⟨kept, ?_, ?_⟩
  · intro i pi
    have atI := inside i pi
    rcases Nat.lt_trichotomy i k with h | h | h
    · have := earlier i pi h
      omega
    · rw [h]
      exact Int.le_refl _
    · have := best_low i pi
      omega -- rejected: omega could not prove the goal
  · intro i pi h
    have atI := inside i pi
    have := earlier i pi h
    omega

end CertHead
