import CertHead.Decision.Reduce
/-! A tile whose remainder *reaches* the threshold is not quiet: it may hold a candidate. -/
namespace CertHead

/-- A remainder of 5 at the threshold 5 holds a row whose upper end is 5. -/
example : (5 : Int) ≤ 5 ∧ ¬ (5 : Int) < 5 := by decide

theorem remainder_at_threshold {rn : Int → Int} (monotone : Monotone rn) {v : Nat → Interval}
    {passed : Nat → Prop} {tile : Nat → Nat} {rest : Nat → Int} {threshold : Int} {n : Nat}
    (bounded : ∀ i, i < n → ¬ passed i → (v i).hi ≤ rest (tile i))
    (quiet : ∀ i, i < n → rn (rest (tile i)) ≤ threshold) :
    ∀ i, i < n → threshold ≤ rn (v i).hi → passed i := by
  intro i hi qualifies
  refine Decidable.byContradiction (dec := Classical.propDecidable _) fun dropped => ?_
  have := monotone _ _ (bounded i hi dropped)
  have := quiet i hi
  omega -- rejected: omega could not prove the goal

end CertHead
