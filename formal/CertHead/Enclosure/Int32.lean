import CertHead.Enclosure.Norms

/-!
# Integer arithmetic as the device does it

Two's complement of 32 bits. Sums of products may be taken in any order: `WrapTree` is one order.
`Int32Properties` has the theorems.
-/

namespace CertHead.Enclosure

/-- The int32 value that a register holds after an operation with exact result `n`. -/
def wrap32 (n : Int) : Int := (n + 2 ^ 31) % 2 ^ 32 - 2 ^ 31

/-- `n` fits in int32. -/
def FitsInt32 (n : Int) : Prop := -(2 ^ 31) ≤ n ∧ n < 2 ^ 31

/-- An int32 dot product, accumulated from the left: every product and every sum wraps. -/
def dot32From (acc : Int) : List Int → List Int → Int
  | x :: xs, y :: ys => dot32From (wrap32 (acc + wrap32 (x * y))) xs ys
  | _, _ => acc

/-- `Σ x_k · y_k` in int32. -/
def dot32 (xs ys : List Int) : Int := dot32From 0 xs ys

/-- One order of adding terms. -/
inductive WrapTree where
  | term (n : Int)
  | add (left right : WrapTree)

/-- The exact sum of the terms. -/
def WrapTree.exact : WrapTree → Int
  | term n => n
  | add l r => l.exact + r.exact

/-- The sum as int32 additions compute it. -/
def WrapTree.wrapped : WrapTree → Int
  | term n => wrap32 n
  | add l r => wrap32 (l.wrapped + r.wrapped)

end CertHead.Enclosure
