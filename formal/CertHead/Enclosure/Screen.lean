import CertHead.Enclosure.Int32
import CertHead.Enclosure.Limbs

/-!
# The screen: an interval around the stock accumulator

Stage `screen` of the specification, from the stored codes of a row and of a position. With weights
and inputs on the scale `2^-B`, products and accumulators are on the scale `2^-2B`.
`ScreenProperties` has the theorems.
-/

namespace CertHead.Enclosure

/-- Centre and half-width, in units of `s · u`. -/
structure Screened where
  /-- `I = Σ q · t = 256 · Σ q·a + Σ q·b`. -/
  center : Int
  /-- `J = Σ_g E · H + X · Y`. -/
  spread : Int
  /-- `2^(τ-ρ) · J + 1`. -/
  width : Int
deriving DecidableEq, Repr

/-- Stage `screen`, before the ends are rounded. -/
def screenRow (ρ : Nat) (row : QuantizedRow) (p : Limbs) : Screened :=
  let I := 256 * dot row.codes p.hi + dot row.codes p.lo
  let J := dot row.residualCodes p.groupCodes + row.normCode * p.tailCode
  { center := I, spread := J, width := ((2 ^ (p.groupShift - ρ) : Nat) : Int) * J + 1 }

/-- The same as an int32 unit computes it: every product and every sum wraps. -/
def screenRow32 (ρ : Nat) (row : QuantizedRow) (p : Limbs) : Screened :=
  let I := wrap32 (wrap32 (256 * dot32 row.codes p.hi) + dot32 row.codes p.lo)
  let J := wrap32 (dot32 row.residualCodes p.groupCodes + wrap32 (row.normCode * p.tailCode))
  { center := I, spread := J,
    width := wrap32 (wrap32 (((2 ^ (p.groupShift - ρ) : Nat) : Int) * J) + 1) }

/-- `lo = RD(f · RD(I - width))` and `hi = RU(f · RU(I + width))` with `f = s · u`: the integer is
rounded on `integers`, the product on `products` (the accumulator's format on the two scales). -/
def endsOf (integers products : Grid) (f : Int) (s : Screened) : Int × Int :=
  (roundDown products (f * roundDown integers (s.center - s.width)),
    roundUp products (f * roundUp integers (s.center + s.width)))

/-- Stage `screen`: the FP32 ends, on the scale `2^-2B`. -/
def screen (B ρ : Nat) (row : QuantizedRow) (p : Limbs) : Int × Int :=
  endsOf (fp32.grid 0) (fp32.grid (2 * B)) (row.scale * p.unit) (screenRow ρ row p)

/-- The stock model's bound, `|y - Σ w·h| ≤ γ · Σ|w·h| + η`, with `γ = gammaNum / 2^40`; `y` and `η` on
the scale of the products. -/
def WithinGamma (gammaNum : Nat) (η : Int) (w h : List Int) (y : Int) : Prop :=
  2 ^ 40 * ((y - dot w h).natAbs : Int) ≤ gammaNum * absDot w h + 2 ^ 40 * η

/-- `η = 2^-90` on the scale `2^-2B`. -/
def floorTerm (B : Nat) : Int := ((2 ^ (2 * B - 90) : Nat) : Int)

end CertHead.Enclosure
