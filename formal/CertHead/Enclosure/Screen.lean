import CertHead.Enclosure.Int32
import CertHead.Enclosure.Limbs

/-!
# The screen: an interval around the stock accumulator

Stage `screen` of the specification, from the stored codes of a row and of a position. With weights
and inputs on the scale `2^-B`, products and accumulators are on the scale `2^-2B`.
`ScreenProperties` has the theorems.
-/

namespace CertHead.Enclosure

/-- The centre and the half-width, in units of `s · u`. -/
structure Screened where
  /-- `I = Σ q · (256 a + b)`. -/
  centre : Int
  /-- `J = Σ_g E · H + X · Y`. -/
  widthCode : Int
  /-- `2^(τ-ρ) · J + 1`. -/
  width : Int
deriving DecidableEq, Repr

/-- Stage `screen`, before the ends are rounded. -/
def screenRow (ρ : Nat) (row : RowCodes) (state : StateCodes) : Screened :=
  let I := 256 * dot row.codes state.high + dot row.codes state.low
  let J := dot row.residualCodes state.groupCodes + row.normCode * state.tailCode
  { centre := I, widthCode := J, width := ((2 ^ (state.groupShift - ρ) : Nat) : Int) * J + 1 }

/-- The same with the four dot products and sums as an int32 unit computes them. `I` itself is
assembled in 64 bits. -/
def screenRow32 (ρ : Nat) (row : RowCodes) (state : StateCodes) : Screened :=
  let I := 256 * dot32 row.codes state.high + dot32 row.codes state.low
  let J := wrap32 (dot32 row.residualCodes state.groupCodes + wrap32 (row.normCode * state.tailCode))
  { centre := I, widthCode := J, width := ((2 ^ (state.groupShift - ρ) : Nat) : Int) * J + 1 }

/-- `lo = RD(s·u·(I - width))` and `hi = RU(s·u·(I + width))` on the accumulator's grid. -/
def screenEnds (g : Grid) (row : RowCodes) (state : StateCodes) (screened : Screened) : Int × Int :=
  (roundDown g (row.scale * state.unit * (screened.centre - screened.width)),
    roundUp g (row.scale * state.unit * (screened.centre + screened.width)))

/-- The stock model's bound, `|y - Σ w·h| ≤ γ · Σ|w·h| + η`, with `γ = gammaNum / 2^40`; `y` and `η` on
the scale of the products. -/
def WithinGamma (gammaNum : Nat) (η : Int) (w h : List Int) (y : Int) : Prop :=
  2 ^ 40 * ((y - dot w h).natAbs : Int) ≤ gammaNum * absDot w h + 2 ^ 40 * η

/-- `η = 2^-90` on the scale `2^-2B`. -/
def floorTerm (B : Nat) : Int := ((2 ^ (2 * B - 90) : Nat) : Int)

end CertHead.Enclosure
