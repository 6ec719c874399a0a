import CertHead.Decision.Head
import CertHead.Sum.Tree

/-!
# Rescoring by enclosure, as a program

Enclosed mode of `rescore`: the exact products are folded in FP64, and so are their magnitudes; the radius covers
the stock model's `γ` and the fold's own rounding. Products and folds are integers on the scale `2^-298`, the
radius and the ends on `2^-343`, 45 bits finer, so that `a · C` is an integer.
-/

namespace CertHead

open Enclosure

/-- Halvings that leave one of `n` values. -/
def levels (n : Nat) : Nat := if n ≤ 1 then 0 else (n - 1).log2 + 1

/-- The products, which FP64 holds exactly. -/
def productsOf (w h : List Int) : List Int := List.zipWith (· * ·) w h

/-- `fold`: pad with zeros to a power of two, then halve with FP64 additions rounded to nearest even. -/
def fold64 (xs : List Int) : Int :=
  foldHalves (fun x y => roundNE (fp64.grid (2 * headScale)) (x + y)) (levels xs.length)
    (xs ++ List.replicate (2 ^ levels xs.length - xs.length) 0)

/-- `z` and `a`: the folds of the products and of their magnitudes. -/
def foldsOf (w h : List Int) : Int × Int :=
  (fold64 (productsOf w h), fold64 ((productsOf w h).map fun p => (p.natAbs : Int)))

/-- `radius = RNE64(RNE64(a · C) + 2^-90)` with `C = gammaNum/2^40 + 2^-45`, on the scale `2^-343`. -/
def radiusOf (gammaNum : Nat) (a : Int) : Int :=
  let rn := roundNE (fp64.grid (2 * headScale + 45))
  rn (rn (a * (32 * gammaNum + 1)) + 2 ^ 253)

/-- The FP32 ends on the scale `2^-343`. -/
def endsAround (z radius : Int) : Int × Int :=
  let rn := roundNE (fp64.grid (2 * headScale + 45))
  (roundDown (fp32.grid (2 * headScale + 45)) (rn (z * 2 ^ 45 - radius)),
    roundUp (fp32.grid (2 * headScale + 45)) (rn (z * 2 ^ 45 + radius)))

/-- Enclosed mode of stage `rescore` for one row, its interval on the scale `2^-298`. (FP32 values are multiples of
`2^-149`, so the divisions are exact; they round outward all the same.) -/
def rescoreEnclosed (gammaNum : Nat) (w h : List Nat) : Interval :=
  let folds := foldsOf (integersOf w) (integersOf h)
  let ends := endsAround folds.1 (radiusOf gammaNum folds.2)
  ⟨ends.1 / 2 ^ 45, -(-ends.2 / 2 ^ 45)⟩

/-- **The certified head in enclosed mode**, for a stock kernel that is only known by its `γ`. -/
def certifiedHeadEnclosed (c : HeadConfig) (W : List (List Nat)) (h : List Nat) : Outcome :=
  if c.gammaNum ≤ 2 ^ 40 then
    headWith c (.enclosed fun i => rescoreEnclosed c.gammaNum (W.getD i []) h) W h
  else .fallback .refused

end CertHead
