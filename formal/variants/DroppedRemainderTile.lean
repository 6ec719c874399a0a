import CertHead.Decision.Reduce
/-! Tiles that pass on rows without a bound for their remainder. -/
namespace CertHead

theorem dropped_remainder_tile {rn : Int → Int} (monotone : Monotone rn) {v : Nat → Interval}
    {passed : Nat → Prop} {tile : Nat → Nat} {rest : Nat → Int} {threshold : Int} {n : Nat}
    (quiet : ∀ i, i < n → rn (rest (tile i)) < threshold) :
    ∀ i, i < n → threshold ≤ rn (v i).hi → passed i := by
  intro i hi qualifies
  refine Decidable.byContradiction (dec := Classical.propDecidable _) fun dropped => ?_
  have := monotone (v i).hi (rest (tile i))
  have := quiet i hi
  omega -- rejected: omega could not prove the goal

end CertHead
