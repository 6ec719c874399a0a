import CertHead.Decision.Code

/-!
# The first maximum

The contract of the head is "the first index among equal maxima". Here: there is exactly one, the left
fold finds it, and it does not depend on rows that lie strictly below.
-/

namespace CertHead

/-- `k` is the first maximum of `f` among the rows that satisfy `P`: nothing there is larger, and every
earlier row is strictly smaller. -/
def IsFirstMaxAmong (P : Nat → Prop) (f : Nat → Int) (k : Nat) : Prop :=
  P k ∧ (∀ i, P i → f i ≤ f k) ∧ (∀ i, P i → i < k → f i < f k)

/-- `k` is the first maximum of `f` among the rows `0, …, n − 1`. -/
def IsFirstMax (f : Nat → Int) (n k : Nat) : Prop := IsFirstMaxAmong (· < n) f k

/-- **There is at most one first maximum**. -/
theorem first_max_is_unique {P : Nat → Prop} {f : Nat → Int} {a b : Nat}
    (ha : IsFirstMaxAmong P f a) (hb : IsFirstMaxAmong P f b) : a = b := by
  obtain ⟨pa, maxA, firstA⟩ := ha
  obtain ⟨pb, maxB, firstB⟩ := hb
  rcases Nat.lt_trichotomy a b with h | h | h
  · have := firstB a pa h
    have := maxA b pb
    omega
  · exact h
  · have := firstA b pb h
    have := maxB a pa
    omega

/-- The fold's invariant: it returns the first maximum of what it has seen. -/
private theorem fold_finds_first_max (f : Nat → Int) (rows : List Nat) (start : Nat)
    (ascending : (start :: rows).Pairwise (· < ·)) :
    IsFirstMaxAmong (· ∈ start :: rows) f
      (rows.foldl (fun best j => if f best < f j then j else best) start) := by
  induction rows generalizing start with
  | nil =>
    refine ⟨List.mem_cons_self, ?_, ?_⟩
    · intro i hi
      rw [List.mem_singleton.1 hi]
      exact Int.le_refl _
    · intro i hi less
      rw [List.mem_singleton.1 hi] at less
      exact absurd less (Nat.lt_irrefl _)
  | cons j rows ih =>
    have later := (List.pairwise_cons.1 ascending).1
    have tail := (List.pairwise_cons.1 ascending).2
    have startLtJ : start < j := later j List.mem_cons_self
    rw [List.foldl_cons]
    by_cases h : f start < f j
    · rw [if_pos h]
      obtain ⟨mem, most, first⟩ := ih j tail
      refine ⟨List.mem_cons_of_mem _ mem, ?_, ?_⟩
      · intro i hi
        rcases List.mem_cons.1 hi with e | m
        · have := most j List.mem_cons_self
          rw [e]
          omega
        · exact most i m
      · intro i hi less
        rcases List.mem_cons.1 hi with e | m
        · have := most j List.mem_cons_self
          rw [e]
          omega
        · exact first i m less
    · rw [if_neg h]
      have skip : (start :: rows).Pairwise (· < ·) :=
        List.pairwise_cons.2 ⟨fun i hi => later i (List.mem_cons_of_mem _ hi), (List.pairwise_cons.1 tail).2⟩
      obtain ⟨mem, most, first⟩ := ih start skip
      have atStart := most start List.mem_cons_self
      refine ⟨?_, ?_, ?_⟩
      · rcases List.mem_cons.1 mem with e | m
        · rw [e]
          exact List.mem_cons_self
        · exact List.mem_cons_of_mem _ (List.mem_cons_of_mem _ m)
      · intro i hi
        rcases List.mem_cons.1 hi with e | m
        · rw [e]
          exact atStart
        · rcases List.mem_cons.1 m with e | m
          · rw [e]
            omega
          · exact most i (List.mem_cons_of_mem _ m)
      · intro i hi less
        rcases List.mem_cons.1 hi with e | m
        · rw [e] at less ⊢
          exact first start List.mem_cons_self less
        · rcases List.mem_cons.1 m with e | m
          · rw [e] at less ⊢
            rcases List.mem_cons.1 mem with e' | m'
            · omega
            · have := first start List.mem_cons_self (later _ (List.mem_cons_of_mem _ m'))
              omega
          · exact first i (List.mem_cons_of_mem _ m) less

/-- The left fold returns the first maximum of an ascending list of rows. -/
theorem fold_is_first_max {f : Nat → Int} {rows : List Nat} {k : Nat}
    (ascending : rows.Pairwise (· < ·)) (answer : firstMax f rows = some k) :
    IsFirstMaxAmong (· ∈ rows) f k := by
  cases rows with
  | nil => exact absurd answer (by simp only [firstMax, reduceCtorEq, not_false_eq_true])
  | cons i rows =>
    have found := fold_finds_first_max f rows i ascending
    have e := Option.some.inj answer
    rw [e] at found
    exact found

/-- The fold answers whenever there is a row. -/
theorem fold_answers {f : Nat → Int} {rows : List Nat} (nonempty : rows ≠ []) :
    ∃ k, firstMax f rows = some k := by
  cases rows with
  | nil => exact absurd rfl nonempty
  | cons i rows => exact ⟨_, rfl⟩

/-- **The fold that the code runs computes the first maximum**, and nothing else does. -/
theorem fold_iff_first_max {f : Nat → Int} {rows : List Nat} {k : Nat} (ascending : rows.Pairwise (· < ·)) :
    firstMax f rows = some k ↔ IsFirstMaxAmong (· ∈ rows) f k := by
  constructor
  · exact fold_is_first_max ascending
  · intro h
    have nonempty : rows ≠ [] := fun e => absurd h.1 (by rw [e]; exact List.not_mem_nil)
    obtain ⟨j, hj⟩ := fold_answers (f := f) nonempty
    rw [hj, first_max_is_unique (fold_is_first_max ascending hj) h]

/-- **Over all rows**: the fold over `0, …, n − 1` is the first maximum. -/
theorem fold_over_range_iff_first_max {f : Nat → Int} {n k : Nat} :
    firstMax f (List.range n) = some k ↔ IsFirstMax f n k := by
  rw [fold_iff_first_max List.pairwise_lt_range]
  unfold IsFirstMax IsFirstMaxAmong
  simp only [List.mem_range]

/-- **A nonempty head has a first maximum**. -/
theorem first_max_exists (f : Nat → Int) {n : Nat} (positive : 0 < n) : ∃ k, IsFirstMax f n k := by
  have nonempty : List.range n ≠ [] := by
    intro e
    have : 0 ∈ List.range n := List.mem_range.2 positive
    rw [e] at this
    exact absurd this List.not_mem_nil
  obtain ⟨k, hk⟩ := fold_answers (f := f) nonempty
  exact ⟨k, fold_over_range_iff_first_max.1 hk⟩

/-- Only the order of the values matters: two functions that agree on the rows have the same first maximum. -/
theorem first_max_depends_on_values_only {P : Nat → Prop} {f g : Nat → Int} {k : Nat}
    (agree : ∀ i, P i → f i = g i) (h : IsFirstMaxAmong P f k) : IsFirstMaxAmong P g k := by
  obtain ⟨pk, most, first⟩ := h
  refine ⟨pk, ?_, ?_⟩
  · intro i pi
    rw [← agree i pi, ← agree k pk]
    exact most i pi
  · intro i pi less
    rw [← agree i pi, ← agree k pk]
    exact first i pi less

/-- **Rows that lie strictly below some kept row can be dropped**: the first maximum among the kept rows is
the first maximum among all. -/
theorem dropping_losers_keeps_first_max {P Q : Nat → Prop} {f : Nat → Int} {k : Nat}
    (kept : ∀ i, Q i → P i) (dropped : ∀ i, P i → ¬ Q i → ∃ j, Q j ∧ f i < f j)
    (h : IsFirstMaxAmong Q f k) : IsFirstMaxAmong P f k := by
  obtain ⟨qk, most, first⟩ := h
  have below : ∀ i, P i → ¬ Q i → f i < f k := by
    intro i pi nq
    obtain ⟨j, qj, less⟩ := dropped i pi nq
    have := most j qj
    omega
  refine ⟨kept k qk, ?_, ?_⟩
  · intro i pi
    by_cases q : Q i
    · exact most i q
    · exact Int.le_of_lt (below i pi q)
  · intro i pi less
    by_cases q : Q i
    · exact first i q less
    · exact below i pi q

/-- A strictly increasing map (a positive scale, say) keeps the first maximum. -/
theorem strictly_increasing_map_keeps_first_max {P : Nat → Prop} {f : Nat → Int} {g : Int → Int} {k : Nat}
    (increasing : ∀ a b, a < b → g a < g b) (h : IsFirstMaxAmong P f k) :
    IsFirstMaxAmong P (fun i => g (f i)) k := by
  obtain ⟨pk, most, first⟩ := h
  refine ⟨pk, ?_, fun i pi less => increasing _ _ (first i pi less)⟩
  intro i pi
  show g (f i) ≤ g (f k)
  by_cases l : f i < f k
  · exact Int.le_of_lt (increasing _ _ l)
  · have e : f i = f k := Int.le_antisymm (most i pi) (Int.not_lt.1 l)
    rw [e]
    exact Int.le_refl _

end CertHead
