import CertHead.Decision.Interval
/-! The interval condition with a tie allowed on the earlier side: the earlier row would win it. -/
namespace CertHead

/-- Rows 0 and 1 equal: the condition below holds for row 1, which is not the first maximum. -/
example : ¬ IsFirstMaxAmong (· < 2) (fun _ => 0) 1 := fun h => absurd (h.2.2 0 (by decide) (by decide)) (by decide)

theorem earlier_tie_allowed {P : Nat → Prop} {low high f : Nat → Int} {k : Nat} (kept : P k)
    (inside : ∀ i, P i → low i ≤ f i ∧ f i ≤ high i)
    (earlier : ∀ j, P j → j < k → high j ≤ low k)
    (later : ∀ j, P j → k < j → high j ≤ low k) : IsFirstMaxAmong P f k := by
  have atK := inside k kept
  refine ⟨kept, ?_, ?_⟩
  · intro i pi
    have atI := inside i pi
    rcases Nat.lt_trichotomy i k with h | h | h
    · have := earlier i pi h
      omega
    · rw [h]
      exact Int.le_refl _
    · have := later i pi h
      omega
  · intro i pi h
    have atI := inside i pi
    have := earlier i pi h
    omega -- rejected: omega could not prove the goal

end CertHead
