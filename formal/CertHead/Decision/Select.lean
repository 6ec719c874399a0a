import CertHead.Decision.Rounding

/-!
# `select` drops nothing that could win or tie

The screen's intervals enclose the stock accumulators. A row whose rounded upper end stays below the rounded
best lower end rounds strictly below the row that attains it. Blocks are judged by their largest upper end
only, and that loses nothing.
-/

namespace CertHead

/-- A row outside the candidates rounds strictly below the row that attains the best lower end. -/
theorem row_below_threshold_loses {rn : Int → Int} (monotone : Monotone rn) {v : Nat → Interval} {y : Nat → Int}
    {best j : Nat} (encloses_best : (v best).Contains (y best)) (encloses : (v j).Contains (y j))
    (below : rn (v j).hi < rn (v best).lo) : rn (y j) < rn (y best) := by
  have up := monotone _ _ encloses.2
  have low := monotone _ _ encloses_best.1
  omega

/-- **Candidates suffice.** The first maximum over any set of rows that contains every candidate is the first
maximum over all rows. -/
theorem first_max_over_candidates {rn : Int → Int} (monotone : Monotone rn) {n k best : Nat} {v : Nat → Interval}
    {y : Nat → Int} {kept : Nat → Prop} (encloses : ∀ i, i < n → (v i).Contains (y i))
    (best_inside : best < n) (kept_inside : ∀ i, kept i → i < n)
    (keeps_candidates : ∀ i, i < n → rn (v best).lo ≤ rn (v i).hi → kept i)
    (h : IsFirstMaxAmong kept (fun i => rn (y i)) k) : IsFirstMax (fun i => rn (y i)) n k := by
  refine dropping_losers_keeps_first_max kept_inside ?_ h
  intro i hi dropped
  have best_kept : kept best := by
    refine keeps_candidates best best_inside (monotone _ _ ?_)
    have := encloses best best_inside
    unfold Interval.Contains at this
    omega
  refine ⟨best, best_kept, ?_⟩
  refine row_below_threshold_loses monotone (encloses best best_inside) (encloses i hi) ?_
  rcases Int.lt_or_le (rn (v i).hi) (rn (v best).lo) with less | ge
  · exact less
  · exact absurd (keeps_candidates i hi ge) dropped

/-- **Threshold form.** Comparing with the least value that rounds high enough is the same as rounding and
comparing, so a kernel may compare unrounded ends with one precomputed number. -/
theorem threshold_form {rn : Int → Int} (monotone : Monotone rn) {t goal : Int}
    (reaches : goal ≤ rn t) (least : ∀ x, goal ≤ rn x → t ≤ x) (x : Int) : t ≤ x ↔ goal ≤ rn x := by
  constructor
  · intro h
    have := monotone _ _ h
    omega
  · exact least x

/-! ## Blocks -/

/-- The rows of a block are the head's rows with that block number. -/
theorem mem_rows_of_block {s : Shape} {b i : Nat} :
    i ∈ s.rowsOf b ↔ b * s.block ≤ i ∧ i < b * s.block + s.block ∧ i < s.rows := by
  unfold Shape.rowsOf
  rw [List.mem_range'_1]
  omega

/-- Every row lies in the block `i / block`, and that block exists. -/
theorem every_row_is_in_a_block {s : Shape} (positive : 0 < s.block) {i : Nat} (inside : i < s.rows) :
    i ∈ s.rowsOf (i / s.block) ∧ i / s.block < s.blocks := by
  have split := Nat.div_add_mod i s.block
  have rest := Nat.mod_lt i positive
  rw [Nat.mul_comm] at split
  refine ⟨mem_rows_of_block.2 ⟨by omega, by omega, inside⟩, ?_⟩
  unfold Shape.blocks
  rw [Nat.lt_iff_add_one_le, Nat.le_div_iff_mul_le positive, Nat.add_mul, Nat.one_mul]
  omega

private theorem range'_ascends : ∀ n start : Nat, (List.range' start n).Pairwise (· < ·)
  | 0, _ => List.Pairwise.nil
  | n + 1, start =>
    List.Pairwise.cons (fun x m => by have := List.mem_range'_1.1 m; omega) (range'_ascends n (start + 1))

/-- Rows of a block ascend. -/
theorem rows_of_block_ascend (s : Shape) (b : Nat) : (s.rowsOf b).Pairwise (· < ·) :=
  range'_ascends _ _

/-- **Block summaries drop nothing.** A block qualifies by its largest upper end exactly when one of its rows
qualifies by its own. -/
theorem block_qualifies_iff_a_row_does {rn : Int → Int} (monotone : Monotone rn) {s : Shape}
    {v : Nat → Interval} {threshold : Int} {b : Nat} :
    blockQualifies rn s v threshold b = true ↔ ∃ i, i ∈ s.rowsOf b ∧ threshold ≤ rn (v i).hi := by
  unfold blockQualifies
  cases found : firstMax (fun i => (v i).hi) (s.rowsOf b) with
  | none =>
    constructor
    · intro h
      exact Bool.noConfusion h
    · intro ⟨i, mem, _⟩
      have nonempty : s.rowsOf b ≠ [] := fun e => absurd mem (by rw [e]; exact List.not_mem_nil)
      obtain ⟨k, hk⟩ := fold_answers (f := fun i => (v i).hi) nonempty
      rw [hk] at found
      exact absurd found (by simp only [reduceCtorEq, not_false_eq_true])
  | some top =>
    have isTop := fold_is_first_max (rows_of_block_ascend s b) found
    show decide (threshold ≤ rn (v top).hi) = true ↔ _
    rw [decide_eq_true_iff]
    constructor
    · intro h
      exact ⟨top, isTop.1, h⟩
    · intro ⟨i, mem, h⟩
      exact Int.le_trans h (monotone _ _ (isTop.2.1 i mem))

/-- **What `select` returned is the whole list of candidate blocks**: nothing is cut off at the capacity. -/
theorem select_returns_all_blocks {rn : Int → Int} {s : Shape} {v : Nat → Interval} {selected : List Nat}
    (answer : select rn s v = some selected) :
    selected = candidateBlocks rn s v ∧ selected.length ≤ s.capacity := by
  unfold select at answer
  dsimp only at answer
  split at answer
  · rename_i fits
    have e := Option.some.inj answer
    rw [← e]
    exact ⟨rfl, fits⟩
  · exact absurd answer (by simp only [reduceCtorEq, not_false_eq_true])

/-- **More candidate blocks than the capacity**: `select` says so. -/
theorem select_overflows_iff {rn : Int → Int} {s : Shape} {v : Nat → Interval} :
    select rn s v = none ↔ s.capacity < (candidateBlocks rn s v).length := by
  unfold select
  dsimp only
  split
  · rename_i fits
    simp only [reduceCtorEq, false_iff]
    omega
  · rename_i over
    simp only [true_iff]
    omega

/-- **A row of the head is among the rescored rows when its own upper end qualifies**. -/
theorem candidate_rows_are_rescored {rn : Int → Int} (monotone : Monotone rn) {s : Shape} (positive : 0 < s.block)
    {v : Nat → Interval} {best i : Nat} (isBest : firstMax (fun i => (v i).lo) (List.range s.rows) = some best)
    (inside : i < s.rows) (qualifies : rn (v best).lo ≤ rn (v i).hi) :
    i ∈ rowsOfBlocks s (candidateBlocks rn s v) := by
  obtain ⟨mem, exists_⟩ := every_row_is_in_a_block positive inside
  unfold rowsOfBlocks candidateBlocks
  rw [isBest]
  refine List.mem_flatMap.2 ⟨i / s.block, ?_, mem⟩
  exact List.mem_filter.2 ⟨List.mem_range.2 exists_, (block_qualifies_iff_a_row_does monotone).2 ⟨i, mem, qualifies⟩⟩

/-- Rescored rows are rows of the head. -/
theorem rescored_rows_are_inside {s : Shape} {selected : List Nat} {i : Nat}
    (mem : i ∈ rowsOfBlocks s selected) : i < s.rows := by
  obtain ⟨b, _, m⟩ := List.mem_flatMap.1 mem
  exact (mem_rows_of_block.1 m).2.2

/-- Rows of ascending blocks ascend. -/
theorem rows_of_blocks_ascend (s : Shape) (selected : List Nat) (ascending : selected.Pairwise (· < ·)) :
    (rowsOfBlocks s selected).Pairwise (· < ·) := by
  unfold rowsOfBlocks
  induction selected with
  | nil => exact List.Pairwise.nil
  | cons b rest ih =>
    rw [List.flatMap_cons, List.pairwise_append]
    have parts := List.pairwise_cons.1 ascending
    refine ⟨rows_of_block_ascend s b, ih parts.2, ?_⟩
    intro i hi j hj
    obtain ⟨c, hc, hj⟩ := List.mem_flatMap.1 hj
    have bc := parts.1 c hc
    have hi := mem_rows_of_block.1 hi
    have hj := mem_rows_of_block.1 hj
    have step := Nat.mul_le_mul_right s.block (Nat.succ_le_of_lt bc)
    rw [Nat.succ_mul] at step
    omega

/-- Candidate blocks ascend. -/
theorem candidate_blocks_ascend (rn : Int → Int) (s : Shape) (v : Nat → Interval) :
    (candidateBlocks rn s v).Pairwise (· < ·) := by
  unfold candidateBlocks
  split
  · exact List.Pairwise.nil
  · exact List.Pairwise.filter _ List.pairwise_lt_range

end CertHead
