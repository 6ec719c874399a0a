import CertHead.Decision.Bf16
/-! A screen of unrounded values without margin: an upper end merely below the best lower end. The row may tie
after rounding, and win by its index. -/
namespace CertHead

example : (11 : Int) < 13 ∧ ¬ roundNE ⟨3, 0, 20⟩ 11 < roundNE ⟨3, 0, 20⟩ 13 := by decide

theorem below_is_enough {rn : Int → Int} (monotone : Monotone rn) {v : Nat → Interval} {y : Nat → Int}
    {best j : Nat} (encloses_best : (v best).Contains (y best)) (encloses : (v j).Contains (y j))
    (below : (v j).hi < (v best).lo) : rn (y j) < rn (y best) := by
  have up := monotone _ _ encloses.2
  have low := monotone _ _ encloses_best.1
  have between := monotone _ _ (Int.le_of_lt below)
  omega -- rejected: omega could not prove the goal

end CertHead
