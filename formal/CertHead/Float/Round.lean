import CertHead.Float.Format
/-!
# Rounding

The four rounding directions on scaled integers, with gradual underflow, and what happens beyond
the largest finite value. Source: IEEE 754-2019, 4.3 (rounding-direction attributes), 7.4
(overflow). `RoundProperties` has the theorems.
-/

namespace CertHead

/-- Round towards `-∞`: the largest multiple of the spacing at `x` that is `≤ x`. -/
def roundDown (g : Grid) (x : Int) : Int :=
  x / (g.quantum x.natAbs : Int) * (g.quantum x.natAbs : Int)

/-- Round towards `+∞`. -/
def roundUp (g : Grid) (x : Int) : Int := -(roundDown g (-x))

/-- Round towards zero. -/
def roundZ (g : Grid) (x : Int) : Int := if 0 ≤ x then roundDown g x else roundUp g x

/-- Round to nearest, ties to even: with `q` the spacing at `x`, twice the remainder against `q`
decides, and on a tie the parity of the quotient. The exponent has no upper end; see `finish`. -/
def roundNE (g : Grid) (x : Int) : Int :=
  let q : Int := g.quantum x.natAbs
  let quotient := x / q
  let twice := 2 * (x % q)
  if twice < q then quotient * q
  else if q < twice then (quotient + 1) * q
  else if quotient % 2 = 0 then quotient * q
  else (quotient + 1) * q

/-- The rounding directions. -/
inductive Mode where
  | nearestEven
  | towardZero
  | up
  | down
deriving DecidableEq, Repr

/-- Rounding in a named direction, the exponent unbounded above. -/
def Mode.round : Mode → Grid → Int → Int
  | .nearestEven => roundNE
  | .towardZero => roundZ
  | .up => roundUp
  | .down => roundDown

/-- The result of an overflow: an infinity, or the largest finite value where the direction
points back towards zero. -/
def overflow (g : Grid) (mode : Mode) (neg : Bool) : Ext :=
  match mode, neg with
  | .nearestEven, neg => .inf neg
  | .towardZero, false => .fin g.maxFinite
  | .towardZero, true => .fin (-g.maxFinite)
  | .up, false => .inf false
  | .up, true => .fin (-g.maxFinite)
  | .down, false => .fin g.maxFinite
  | .down, true => .inf true

/-- Rounding into the format: round as if the exponent were unbounded, then overflow if the
result is not below `2^top` in magnitude. -/
def finish (g : Grid) (mode : Mode) (x : Int) : Ext :=
  let r := mode.round g x
  if r.natAbs < 2 ^ g.top then .fin r else overflow g mode (decide (r < 0))

end CertHead
