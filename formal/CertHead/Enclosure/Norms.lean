import CertHead.Sum.Fdpa

/-!
# Sums, norms and rounded-up roots

What the enclosures are computed from: dot products, sums of squares and of absolute products of
integer lists, the two roundings up (`ceilDiv`, `ceilSqrt`) that keep an upper bound an upper bound,
and the rounding to nearest of a quotient. Everything runs; the theorems are in `NormsProperties`.
-/

namespace CertHead.Enclosure

/-- `Σ x_k · y_k`; the longer list is cut to the length of the shorter. -/
def dot : List Int → List Int → Int
  | x :: xs, y :: ys => x * y + dot xs ys
  | _, _ => 0

/-- `Σ |x_k · y_k|`, the quantity that every accumulation bound is relative to. -/
def absDot : List Int → List Int → Int
  | x :: xs, y :: ys => ((x * y).natAbs : Int) + absDot xs ys
  | _, _ => 0

/-- `Σ x_k²`, the square of the Euclidean norm. -/
def sumSq : List Int → Int
  | [] => 0
  | x :: xs => x * x + sumSq xs

/-- `max_k |x_k|`, zero for the empty list. -/
def maxAbs : List Int → Nat
  | [] => 0
  | x :: xs => max x.natAbs (maxAbs xs)

/-- The quotient rounded up, `⌈n / d⌉`. -/
def ceilDiv (n d : Nat) : Nat := (n + (d - 1)) / d

/-- The column groups of a row; only the last may be shorter. -/
def groups (size : Nat) (xs : List Int) : List (List Int) := blocksOf size xs

/-- One binary digit of the root per level; `fuel ≥ n` is enough. -/
def floorSqrtFrom : Nat → Nat → Nat
  | 0, _ => 0
  | fuel + 1, n =>
    if n = 0 then 0
    else
      let r := 2 * floorSqrtFrom fuel (n / 4)
      if (r + 1) * (r + 1) ≤ n then r + 1 else r

/-- The square root rounded down, `⌊√n⌋`. -/
def floorSqrt (n : Nat) : Nat := floorSqrtFrom n n

/-- The square root rounded up, `⌈√n⌉`: the smallest `r` with `n ≤ r²`. -/
def ceilSqrt (n : Nat) : Nat :=
  let r := floorSqrt n
  if n ≤ r * r then r else r + 1

/-- `n / d` to the nearest integer, ties to even, for a positive `d`. -/
def nearestEven (n d : Int) : Int :=
  let q := (2 * n + d) / (2 * d)
  if (2 * n + d) % (2 * d) = 0 ∧ q % 2 = 1 then q - 1 else q

/-- `x_k − d · y_k`: what is left of `x` when `y` counts units of `d`. -/
def remainders (d : Int) : List Int → List Int → List Int
  | x :: xs, y :: ys => (x - d * y) :: remainders d xs ys
  | _, _ => []

end CertHead.Enclosure
