/-!
# Sums, norms and rounded-up roots

What the enclosures are computed from: dot products, sums of squares and of absolute values of
integer lists, the cutting of a row into column groups, and the two roundings up (`ceilDiv`,
`ceilSqrt`) that keep an upper bound an upper bound. Everything runs; the theorems are in
`NormsProperties`.
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

/-- `Σ |x_k|`. -/
def absSum : List Int → Int
  | [] => 0
  | x :: xs => (x.natAbs : Int) + absSum xs

/-- `max_k |x_k|`, zero for the empty list. -/
def maxAbs : List Int → Nat
  | [] => 0
  | x :: xs => max x.natAbs (maxAbs xs)

/-- `Σ x_k` of integers. -/
def total : List Int → Int
  | [] => 0
  | x :: xs => x + total xs

/-- The quotient rounded up, `⌈n / d⌉`. -/
def ceilDiv (n d : Nat) : Nat := (n + (d - 1)) / d

/-- `n` pieces of `size` elements each; the last ones may be shorter. -/
def pieces (size : Nat) : Nat → List Int → List (List Int)
  | 0, _ => []
  | n + 1, xs => xs.take size :: pieces size n (xs.drop size)

/-- The column groups of a row: `⌈length / size⌉` pieces, only the last of which may be shorter. -/
def groups (size : Nat) (xs : List Int) : List (List Int) :=
  pieces size (ceilDiv xs.length size) xs

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
