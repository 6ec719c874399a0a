import CertHead.Enclosure.Quantize

/-!
# The head input as int8 limbs and a few norms

Stage `limbs` of the specification. The input and its unit are integers on one scale `2^-B`.
`LimbsProperties` has the theorems; the enclosure needs `LimbsEncode` only, so any unit and any
ticks that satisfy it are sound.
-/

namespace CertHead.Enclosure

/-- How many int8 limbs hold a tick. -/
inductive LimbCount where
  | one
  | two
deriving DecidableEq, Repr

/-- Bits of the largest tick below its leading one: `|t| ≤ 127` fits one int8, `|t| ≤ 16320` two. -/
def LimbCount.unitBits : LimbCount → Nat
  | .one => 6
  | .two => 13

/-- What is kept of one position. -/
structure Limbs where
  /-- `u = 2^x`, on the scale of the input. -/
  unit : Int
  /-- `a_k`, the high limbs. -/
  hi : List Int
  /-- `b_k`, the low limbs. -/
  lo : List Int
  /-- `τ ≥ ρ`. -/
  groupShift : Nat
  /-- `H_g`: the norm of group `g` of `t` is at most `H_g · 2^τ`. -/
  groupCodes : List Int
  /-- `N`, at least the norm of `t`. -/
  norm : Int
  /-- `Y`: times `X · 2^(τ-ρ) · s · u` it covers the remainders and the stock error. -/
  tailCode : Int
deriving DecidableEq, Repr

/-- `2^x` with `x = max(⌊log2 max|h|⌋ - bits, -40)`. -/
def unitOf (limbs : LimbCount) (B : Nat) (h : List Int) : Int :=
  ((2 ^ max ((maxAbs h).log2 - limbs.unitBits) (B - 40) : Nat) : Int)

/-- `t = x/u` to the nearest integer, ties to even; for one limb clamped to `[-127, 127]`. -/
def tickOf (limbs : LimbCount) (u x : Int) : Int :=
  match limbs with
  | .one => max (-127) (min 127 (nearestEven x u))
  | .two => nearestEven x u

/-- `a = ⌊(t + 128) / 256⌋`, and 0 for one limb. -/
def highLimb (limbs : LimbCount) (t : Int) : Int :=
  match limbs with
  | .one => 0
  | .two => (t + 128) / 256

/-- `b = t - 256 a`. -/
def lowLimb (limbs : LimbCount) (t : Int) : Int := t - 256 * highLimb limbs t

/-- `t_k = 256 a_k + b_k`. -/
def joinLimbs : List Int → List Int → List Int
  | a :: as, b :: bs => (256 * a + b) :: joinLimbs as bs
  | _, _ => []

/-- `T_g = ⌈√(Σ_g t²)⌉`. -/
def rootsUp (gs : List (List Int)) : List Nat := gs.map fun g => ceilSqrt (sumSq g).toNat

/-- `max_g T_g`. -/
def largest : List Nat → Nat
  | [] => 0
  | x :: xs => max x (largest xs)

/-- `τ`: the smallest shift `≥ ρ` with `⌈T_g / 2^τ⌉ ≤ 127` for every group. -/
def groupShiftOf (ρ : Nat) (roots : List Nat) : Nat :=
  firstFrom (fun τ => decide (ceilDiv (largest roots) (2 ^ τ) ≤ 127)) (largest roots).log2 ρ

/-- `⌈2^8 · |r| / u⌉`. -/
def remainderCode (u : Int) (r : Int) : Int := (ceilDiv (2 ^ 8 * r.natAbs) u.toNat : Nat)

/-- `Y = ⌈(R/2^8 + γ·(N + R/2^8)) · 2^ν / 2^(τ-ρ)⌉` with `γ = gammaNum / 2^40`. -/
def tailCodeOf (ρ ν τ gammaNum R N : Nat) : Nat :=
  ceilDiv ((2 ^ 40 * R + gammaNum * (2 ^ 8 * N + R)) * 2 ^ ν) (2 ^ 48 * 2 ^ (τ - ρ))

/-- Limbs, group codes and tail code for a given unit and given ticks. -/
def limbsOfTicks (limbs : LimbCount) (u : Int) (group ρ ν gammaNum : Nat) (h t : List Int) : Limbs :=
  let roots := rootsUp (groups group t)
  let τ := groupShiftOf ρ roots
  let R := ceilSqrt (sumSq ((remainders u h t).map (remainderCode u))).toNat
  let N := ceilSqrt (sumSq t).toNat
  { unit := u
    hi := t.map (highLimb limbs)
    lo := t.map (lowLimb limbs)
    groupShift := τ
    groupCodes := roots.map fun T => (ceilDiv T (2 ^ τ) : Int)
    norm := N
    tailCode := tailCodeOf ρ ν τ gammaNum R N }

/-- Stage `limbs` for one position, its input on the scale `2^-B`, before the guard. -/
def limbsOf (limbs : LimbCount) (B group gammaNum : Nat) (h : List Int) : Limbs :=
  let u := unitOf limbs B h
  limbsOfTicks limbs u group (residualShift group) (normShift h.length) gammaNum h
    (h.map (tickOf limbs u))

/-- The largest half-width that any row can have, `2^(τ-ρ)·(127·ΣH + 255·Y) + 1`. -/
def Limbs.widest (ρ : Nat) (p : Limbs) : Int :=
  ((2 ^ (p.groupShift - ρ) : Nat) : Int) * (127 * p.groupCodes.sum + 255 * p.tailCode) + 1

/-- `Q·N + widest < 2^31`: the screen fits int32. Otherwise the position is refused. -/
def Limbs.fits (ρ : Nat) (codeNorm : Int) (p : Limbs) : Bool :=
  decide (codeNorm * p.norm + p.widest ρ < 2 ^ 31)

/-- Stage `limbs`: `none` where the position is refused, for its range or for the guard. `codeNorm` is
`Q` of the whole head (`codeNormBound`). -/
def limbs? (limbs : LimbCount) (B group gammaNum : Nat) (codeNorm : Int) (h : List Int) : Option Limbs :=
  let p := limbsOf limbs B group gammaNum h
  if maxAbs h < 2 ^ (B + 16) ∧ p.fits (residualShift group) codeNorm then some p else none

/-- What the enclosure needs of a coded position, and all that it needs. `R` is any upper bound of the
norm of the remainder, in units of `u/2^8`. -/
structure LimbsEncode (group ρ ν gammaNum : Nat) (h : List Int) (p : Limbs) : Prop where
  unit_pos : 0 < p.unit
  one_high_limb_per_input : h.length = p.hi.length
  one_low_limb_per_input : h.length = p.lo.length
  shift_ge : ρ ≤ p.groupShift
  groups_covered : NormsCovered 1 ((2 ^ p.groupShift : Nat) : Int)
    (groups group (joinLimbs p.hi p.lo)) p.groupCodes
  norm_nonneg : 0 ≤ p.norm
  norm_covered : sumSq (joinLimbs p.hi p.lo) ≤ p.norm * p.norm
  tail_code_nonneg : 0 ≤ p.tailCode
  tail_covered : ∃ R : Int, 0 ≤ R ∧
    2 ^ 8 * 2 ^ 8 * sumSq (remainders p.unit h (joinLimbs p.hi p.lo)) ≤ (R * p.unit) * (R * p.unit) ∧
    (2 ^ 40 * R + gammaNum * (2 ^ 8 * p.norm + R)) * ((2 ^ ν : Nat) : Int) ≤
      p.tailCode * (2 ^ 48 * ((2 ^ (p.groupShift - ρ) : Nat) : Int))

end CertHead.Enclosure
