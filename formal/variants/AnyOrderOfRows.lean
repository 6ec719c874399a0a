import CertHead.Decision.FirstMax
/-! The left fold over rows in any order: with row 1 before row 0 and equal values it returns 1. -/
namespace CertHead

example : firstMax (fun _ => 0) [1, 0] = some 1 := by decide

theorem any_order_of_rows {f : Nat → Int} {rows : List Nat} {k : Nat} (answer : firstMax f rows = some k) :
    IsFirstMaxAmong (· ∈ rows) f k :=
  fold_is_first_max List.pairwise_lt_range answer -- rejected: Application type mismatch

end CertHead
