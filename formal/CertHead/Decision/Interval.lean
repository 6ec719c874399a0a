import CertHead.Decision.Rounding

/-!
# The interval condition

Enclosures of the stock accumulators decide the token when the best rounded lower end beats every other
rounded upper end: strictly for earlier rows, which would win a tie, and not strictly for later ones, which
would lose it. Enclosures that are points decide always.
-/

namespace CertHead

/-- **Interval condition.** If `k`'s lower end strictly exceeds every earlier row's upper end and reaches
every later row's, then `k` is the first maximum of *any* values inside. -/
theorem interval_condition {P : Nat → Prop} {low high f : Nat → Int} {k : Nat} (kept : P k)
    (inside : ∀ i, P i → low i ≤ f i ∧ f i ≤ high i)
    (earlier : ∀ j, P j → j < k → high j < low k)
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
    omega

/-- **The interval condition is also necessary**: if it fails for some row, the enclosures admit values for which
`k` is not the first maximum. So the rule gives away nothing. -/
theorem interval_condition_is_sharp {P : Nat → Prop} {low high : Nat → Int} {k : Nat} (kept : P k)
    (ordered : ∀ i, low i ≤ high i)
    (always : ∀ f : Nat → Int, (∀ i, P i → low i ≤ f i ∧ f i ≤ high i) → IsFirstMaxAmong P f k) :
    (∀ j, P j → j < k → high j < low k) ∧ (∀ j, P j → k < j → high j ≤ low k) := by
  have worst : ∀ j, j ≠ k → IsFirstMaxAmong P (fun i => if i = k then low i else high i) k := by
    intro j _
    refine always _ ?_
    intro i _
    have := ordered i
    show low i ≤ (if i = k then low i else high i) ∧ (if i = k then low i else high i) ≤ high i
    split <;> omega
  constructor
  · intro j pj less
    have := (worst j (by omega)).2.2 j pj less
    dsimp only at this
    rw [if_pos rfl, if_neg (by omega)] at this
    exact this
  · intro j pj less
    have := (worst j (by omega)).2.1 j pj
    dsimp only at this
    rw [if_pos rfl, if_neg (by omega)] at this
    exact this

/-- **What the executable rule checks is the interval condition**. -/
theorem decide_enclosed_is_sound {rn : Int → Int} (monotone : Monotone rn) {v : Nat → Interval} {y : Nat → Int}
    {rows : List Nat} {k : Nat} (ascending : rows.Pairwise (· < ·))
    (encloses : ∀ i, i ∈ rows → (v i).Contains (y i))
    (answer : decideEnclosed rn v rows = some k) : IsFirstMaxAmong (· ∈ rows) (fun i => rn (y i)) k := by
  unfold decideEnclosed at answer
  split at answer
  · exact absurd answer (by simp only [reduceCtorEq, not_false_eq_true])
  · rename_i k' found
    split at answer
    · rename_i checks
      have e := Option.some.inj answer
      rw [e] at found checks
      rw [List.all_eq_true] at checks
      refine interval_condition (low := fun i => rn (v i).lo) (high := fun i => rn (v i).hi)
        (fold_is_first_max ascending found).1 ?_ ?_ ?_
      · intro i hi
        exact ⟨monotone _ _ (encloses i hi).1, monotone _ _ (encloses i hi).2⟩
      · intro j hj less
        have c := checks j hj
        rw [if_pos less] at c
        exact of_decide_eq_true c
      · intro j hj less
        have c := checks j hj
        rw [if_neg (by omega), if_pos less] at c
        exact of_decide_eq_true c
    · exact absurd answer (by simp only [reduceCtorEq, not_false_eq_true])

/-- **Points decide.** When the enclosures are the accumulators themselves, the interval rule always answers,
with the first maximum: exact mode is the degenerate case of enclosed mode. -/
theorem points_always_decide {rn : Int → Int} {y : Nat → Int} {rows : List Nat}
    (ascending : rows.Pairwise (· < ·)) :
    decideEnclosed rn (fun i => Interval.point (y i)) rows = firstMax (fun i => rn (y i)) rows := by
  unfold decideEnclosed
  dsimp only [Interval.point]
  split
  · rename_i h
    exact h.symm
  · rename_i k found
    have isMax := fold_is_first_max ascending found
    rw [if_pos, found]
    rw [List.all_eq_true]
    intro j hj
    split
    · rename_i less
      exact decide_eq_true (isMax.2.2 j hj less)
    · split
      · exact decide_eq_true (isMax.2.1 j hj)
      · rfl

end CertHead
