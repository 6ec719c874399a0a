import CertHead.Decision.Rounding
/-! The gap condition with the winner's error only: the other row may be larger than its reference. -/
namespace CertHead

/-- References 10 and 5, errors 0 and 10: the loser may be 15. -/
example : (0 : Int) + 1 < 10 - 5 ∧ ((15 : Int) - 5).natAbs ≤ 10 ∧ ¬ (15 : Int) < 10 := by decide

theorem gap_without_the_other_error {rn : Int → Int} {spacing : Nat → Nat} (model : RoundModel rn spacing)
    {n a b : Nat} {y z : Nat → Int} {err : Nat → Nat} (insideA : a < n) (insideB : b < n)
    (close : ∀ i, i < n → (y i - z i).natAbs ≤ err i)
    (lead : err a + spacing (max (z a).natAbs (z b).natAbs + max (err a) (err b)) < z a - z b) :
    rn (y b) < rn (y a) := by
  have ca := close a insideA
  have cb := close b insideB
  apply separation model
  have grow := model.spacing_mono
    (show max (y a).natAbs (y b).natAbs ≤ max (z a).natAbs (z b).natAbs + max (err a) (err b) by omega)
  omega -- rejected: omega could not prove the goal

end CertHead
