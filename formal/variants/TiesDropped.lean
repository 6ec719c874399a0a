import CertHead.Decision.Select
/-! Keeping only rows whose rounded upper end *exceeds* the threshold: a row that ties with it may win. -/
namespace CertHead

example : ¬ (0 : Int) < 0 := by decide

theorem ties_dropped {rn : Int → Int} {n best : Nat} {v : Nat → Interval} {y : Nat → Int} {kept : Nat → Prop}
    (encloses : ∀ i, i < n → (v i).Contains (y i)) (best_inside : best < n) (monotone : Monotone rn)
    (keeps_candidates : ∀ i, i < n → rn (v best).lo < rn (v i).hi → kept i) :
    ∀ i, i < n → ¬ kept i → rn (y i) < rn (y best) := by
  intro i hi dropped
  refine row_below_threshold_loses monotone (encloses best best_inside) (encloses i hi) ?_
  rcases Int.lt_or_le (rn (v i).hi) (rn (v best).lo) with less | ge
  · exact less
  · exact absurd (keeps_candidates i hi ge) dropped -- rejected: Application type mismatch

end CertHead
