import CertHead.Decision.Select
import CertHead.Decision.Interval

/-!
# The certificate

`certify` answers with a token only if that token is the first maximum of the rounded stock accumulators. The
assumptions are exactly two: the screen encloses them, and rescoring returned them (exact mode) or encloses
them (enclosed mode), for the rows that were rescored.
-/

namespace CertHead

/-- What rescoring must deliver for the rows that it was asked about. -/
def Rescored.Describes (r : Rescored) (y : Nat → Int) (rows : List Nat) : Prop :=
  match r with
  | .exact value => ∀ i, i ∈ rows → value i = y i
  | .enclosed value => ∀ i, i ∈ rows → (value i).Contains (y i)

/-- `decide` names the first maximum of the rows that it was given. -/
theorem decide_rows_is_sound {rn : Int → Int} (monotone : Monotone rn) {r : Rescored} {y : Nat → Int}
    {rows : List Nat} {k : Nat} (ascending : rows.Pairwise (· < ·)) (describes : r.Describes y rows)
    (answer : (decideRows rn r rows).token? = some k) : IsFirstMaxAmong (· ∈ rows) (fun i => rn (y i)) k := by
  unfold decideRows at answer
  cases r with
  | exact value =>
    dsimp only at answer
    split at answer
    · rename_i k' found
      have e : k' = k := Option.some.inj answer
      rw [e] at found
      refine first_max_depends_on_values_only ?_ (fold_is_first_max ascending found)
      intro i hi
      show rn (value i) = rn (y i)
      rw [describes i hi]
    · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])
  | enclosed value =>
    dsimp only at answer
    split at answer
    · rename_i k' found
      have e : k' = k := Option.some.inj answer
      rw [e] at found
      exact decide_enclosed_is_sound monotone ascending describes found
    · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])

/-- **The certificate is sound.** For any monotone rounding: if the screen encloses every stock accumulator and
rescoring describes those of the selected rows, then the token that `certify` names is the first maximum of the
rounded stock accumulators over the whole head. -/
theorem certify_is_sound {rn : Int → Int} (monotone : Monotone rn) {s : Shape} {screen : Nat → Interval}
    {r : Rescored} {y : Nat → Int} {k : Nat} (encloses : ∀ i, i < s.rows → (screen i).Contains (y i))
    (describes : ∀ selected, select rn s screen = some selected → r.Describes y (rowsOfBlocks s selected))
    (answer : (certify rn s screen r).token? = some k) : IsFirstMax (fun i => rn (y i)) s.rows k := by
  unfold certify at answer
  split at answer
  · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])
  · rename_i selected found
    have desc := describes selected found
    have all := (select_returns_all_blocks found).1
    rw [all] at answer desc
    have amongSelected := decide_rows_is_sound monotone
      (rows_of_blocks_ascend s _ (candidate_blocks_ascend rn s screen)) desc answer
    have inside := rescored_rows_are_inside amongSelected.1
    have positive : 0 < s.block := by
      obtain ⟨b, _, m⟩ := List.mem_flatMap.1 amongSelected.1
      have := mem_rows_of_block.1 m
      omega
    obtain ⟨best, isBest⟩ := fold_answers (f := fun i => (screen i).lo) (rows := List.range s.rows)
      (fun e => absurd (List.mem_range.2 inside) (by rw [e]; exact List.not_mem_nil))
    have best_inside := (fold_over_range_iff_first_max.1 isBest).1
    exact first_max_over_candidates monotone encloses best_inside (fun _ => rescored_rows_are_inside)
      (fun i hi q => candidate_rows_are_rescored monotone positive isBest hi q) amongSelected

/-- **The state is honest**: `exact` comes from values, `enclosed` from enclosures. -/
theorem exact_state_means_values {rn : Int → Int} {s : Shape} {screen : Nat → Interval} {r : Rescored} {k : Nat}
    (answer : certify rn s screen r = .exact k) : ∃ value, r = .exact value := by
  unfold certify at answer
  split at answer
  · exact absurd answer (by simp only [reduceCtorEq, not_false_eq_true])
  · unfold decideRows at answer
    cases r with
    | exact value => exact ⟨value, rfl⟩
    | enclosed value =>
      dsimp only at answer
      split at answer <;> exact absurd answer (by simp only [reduceCtorEq, not_false_eq_true])

/-- **Only overflow stops exact mode.** With the candidates' accumulators known, a nonempty head always gets
its token unless there were more candidate blocks than the capacity. -/
theorem exact_mode_answers_unless_overflow {rn : Int → Int} (monotone : Monotone rn) {s : Shape}
    {screen : Nat → Interval} {value : Nat → Int} (positive : 0 < s.block) (nonempty : 0 < s.rows)
    (ordered : ∀ i, i < s.rows → (screen i).lo ≤ (screen i).hi)
    (fits : (candidateBlocks rn s screen).length ≤ s.capacity) :
    ∃ k, certify rn s screen (.exact value) = .exact k := by
  obtain ⟨best, isBest⟩ := fold_answers (f := fun i => (screen i).lo) (rows := List.range s.rows)
    (fun e => absurd (List.mem_range.2 nonempty) (by rw [e]; exact List.not_mem_nil))
  have best_inside := (fold_over_range_iff_first_max.1 isBest).1
  have mem := candidate_rows_are_rescored monotone positive isBest best_inside
    (monotone _ _ (ordered best best_inside))
  obtain ⟨k, hk⟩ := fold_answers (f := fun i => rn (value i)) (rows := rowsOfBlocks s (candidateBlocks rn s screen))
    (fun e => absurd mem (by rw [e]; exact List.not_mem_nil))
  refine ⟨k, ?_⟩
  have selected : select rn s screen = some (candidateBlocks rn s screen) := by
    unfold select
    dsimp only
    rw [if_pos fits]
  unfold certify
  rw [selected]
  dsimp only [decideRows]
  rw [hk]

/-- **Exact and enclosed agree.** Rescoring by points gives the same token as rescoring by values. -/
theorem points_give_the_exact_token {rn : Int → Int} {s : Shape} {screen : Nat → Interval} {value : Nat → Int} :
    (certify rn s screen (.enclosed fun i => .point (value i))).token? =
      (certify rn s screen (.exact value)).token? := by
  unfold certify
  split
  · rfl
  · rename_i selected found
    have all := (select_returns_all_blocks found).1
    have ascending := rows_of_blocks_ascend s _ (candidate_blocks_ascend rn s screen)
    rw [← all] at ascending
    unfold decideRows
    dsimp only
    rw [points_always_decide ascending]
    cases firstMax (fun i => rn (value i)) (rowsOfBlocks s selected) <;> rfl

/-- **`certify` is a function of the rescored rows only**: values elsewhere are never looked at. -/
theorem only_selected_rows_matter {rn : Int → Int} {s : Shape} {screen : Nat → Interval} {a b : Nat → Int}
    (agree : ∀ selected, select rn s screen = some selected → ∀ i, i ∈ rowsOfBlocks s selected → a i = b i) :
    certify rn s screen (.exact a) = certify rn s screen (.exact b) := by
  unfold certify
  split
  · rfl
  · rename_i selected found
    have same := agree selected found
    have ascending := rows_of_blocks_ascend s _ (candidate_blocks_ascend rn s screen)
    rw [← (select_returns_all_blocks found).1] at ascending
    have fold : firstMax (fun i => rn (a i)) (rowsOfBlocks s selected) =
        firstMax (fun i => rn (b i)) (rowsOfBlocks s selected) := by
      cases h : firstMax (fun i => rn (b i)) (rowsOfBlocks s selected) with
      | none =>
        cases rows : rowsOfBlocks s selected with
        | nil => rfl
        | cons i rest => rw [rows] at h; exact absurd h (by simp only [firstMax, reduceCtorEq, not_false_eq_true])
      | some k =>
        refine (fold_iff_first_max ascending).2 ?_
        refine first_max_depends_on_values_only ?_ (fold_is_first_max ascending h)
        intro i hi
        show rn (b i) = rn (a i)
        rw [same i hi]
    unfold decideRows
    dsimp only
    rw [fold]

end CertHead
