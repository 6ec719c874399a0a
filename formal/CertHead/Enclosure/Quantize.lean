import CertHead.Float.Round
import CertHead.Enclosure.Norms

/-!
# A weight row as int8 codes with a measured residual

Stage `quantize` of the specification. Weights and scale are integers on one scale `2^-B`.
`QuantizeProperties` has the theorems; the enclosure needs `RowEncodes` only, so any scale and any
codes that satisfy it are sound.
-/

namespace CertHead.Enclosure

/-- The first `n` of `start, start + 1, …` with `p n`; after `fuel` failures, `start + fuel`. -/
def firstFrom (p : Nat → Bool) : (fuel start : Nat) → Nat
  | 0, start => start
  | fuel + 1, start => if p start then start else firstFrom p fuel (start + 1)

/-- What is stored of a row. -/
structure QuantizedRow where
  /-- `s`, a positive integer on the scale of the weights. -/
  scale : Int
  /-- `q_k`, the int8 codes. -/
  codes : List Int
  /-- `E_g`: the residual norm of group `g` is at most `E_g · s / 2^ρ`. -/
  residualCodes : List Int
  /-- `X`: the norm of the row is at most `X · 2^ν · s`. -/
  normCode : Int
deriving DecidableEq, Repr

/-- `ρ = ⌊log2(254/√group)⌋`, the largest with `4^ρ · group ≤ 254²`. -/
def residualShift (group : Nat) : Nat := (254 * 254 / group).log2 / 2

/-- `ν`: the smallest with `127 · √K ≤ 255 · 2^ν`. -/
def normShift (columns : Nat) : Nat :=
  firstFrom (fun ν => decide (127 * 127 * columns ≤ 255 * 255 * 4 ^ ν)) (columns.log2 + 1) 0

/-- `⌈k · ‖x‖ / d⌉`, the smallest code `c` with `k² · Σ x² ≤ (c · d)²`. -/
def normCodeOf (k d : Nat) (xs : List Int) : Nat :=
  ceilSqrt (ceilDiv (k * k * (sumSq xs).toNat) (d * d))

/-- `s`: the smallest BF16 value that is at least `max|w|/127` and at least `2^-50`. -/
def rowScale (B : Nat) (w : List Int) : Int :=
  max (roundUp (bf16.grid B) (ceilDiv (maxAbs w) 127 : Nat)) ((2 ^ (B - 50) : Nat) : Int)

/-- Codes, residual codes and norm code of a row for a given scale. -/
def quantizeWith (s : Int) (group ρ ν : Nat) (w : List Int) : QuantizedRow :=
  let q := w.map fun x => nearestEven x s
  { scale := s
    codes := q
    residualCodes := (groups group (remainders s w q)).map fun e => (normCodeOf (2 ^ ρ) s.toNat e : Int)
    normCode := normCodeOf 1 (2 ^ ν * s.toNat) w }

/-- Stage `quantize` for one row of weights on the scale `2^-B`. -/
def quantizeRow (B group : Nat) (w : List Int) : QuantizedRow :=
  quantizeWith (rowScale B w) group (residualShift group) (normShift w.length) w

/-- Group by group, `c ≥ 0` and `k² · Σ x² ≤ (c · d)²`: the code `c`, counted in `d/k`, covers the
norm of its group. -/
def NormsCovered (k d : Int) : List (List Int) → List Int → Prop
  | x :: xs, c :: cs => 0 ≤ c ∧ k * k * sumSq x ≤ (c * d) * (c * d) ∧ NormsCovered k d xs cs
  | [], [] => True
  | _, _ => False

/-- `Q = 2^ν · max X + ⌈√K/2⌉`: no row of codes has a larger Euclidean norm, since
`‖q‖ ≤ ‖w‖/s + ‖e‖/s`. -/
def codeNormBound (columns : Nat) (maxNormCode : Int) : Int :=
  ((2 ^ normShift columns : Nat) : Int) * maxNormCode + (ceilSqrt (ceilDiv columns 4) : Nat)

/-- What the enclosure needs of a coded row, and all that it needs. -/
structure RowEncodes (group ρ ν : Nat) (w : List Int) (row : QuantizedRow) : Prop where
  scale_pos : 0 < row.scale
  one_code_per_weight : w.length = row.codes.length
  residuals_covered : NormsCovered ((2 ^ ρ : Nat) : Int) row.scale
    (groups group (remainders row.scale w row.codes)) row.residualCodes
  norm_code_nonneg : 0 ≤ row.normCode
  norm_covered : sumSq w ≤ (row.normCode * (((2 ^ ν : Nat) : Int) * row.scale)) *
    (row.normCode * (((2 ^ ν : Nat) : Int) * row.scale))

end CertHead.Enclosure
