import CertHead.Enclosure.Quantize

/-!
# The head input as two int8 limbs and a few norms

Stage `limbs` of the specification. The input and its unit are integers on one scale `2^-B`.
`LimbsProperties` has the theorems; the enclosure needs `StateEncodes` only.
-/

namespace CertHead.Enclosure

/-- What the screen reads of one position. -/
structure StateCodes where
  /-- `u = 2^x`, on the scale of the input. -/
  unit : Int
  /-- `a_k`, the high limbs. -/
  high : List Int
  /-- `b_k`, the low limbs. -/
  low : List Int
  /-- `H_g`: the norm of group `g` of `t` is at most `H_g · 2^τ`. -/
  groupCodes : List Int
  /-- `τ ≥ ρ`. -/
  groupShift : Nat
  /-- `Y`: times `X · 2^(τ-ρ) · s · u` it covers the remainders and the stock error. -/
  tailCode : Int
deriving DecidableEq, Repr

/-- `a = ⌊(t + 128) / 256⌋`. -/
def highLimb (t : Int) : Int := (t + 128) / 256

/-- `b = t - 256 a`. -/
def lowLimb (t : Int) : Int := t - 256 * highLimb t

/-- `t_k = 256 a_k + b_k`. -/
def joinLimbs : List Int → List Int → List Int
  | a :: as, b :: bs => (256 * a + b) :: joinLimbs as bs
  | _, _ => []

/-- `2^x` with `x = max(⌊log2 max|h|⌋ - 13, -40)`. -/
def unitOf (B : Nat) (h : List Int) : Int :=
  ((2 ^ max ((maxAbs h).log2 - 13) (B - 40) : Nat) : Int)

/-- `T_g = ⌈√(Σ_g t²)⌉`. -/
def rootsUp (gs : List (List Int)) : List Nat := gs.map fun g => ceilSqrt (sumSq g).toNat

/-- `max_g T_g`. -/
def largest : List Nat → Nat
  | [] => 0
  | x :: xs => max x (largest xs)

/-- `τ`: the smallest shift `≥ ρ` with `⌈T_g / 2^τ⌉ ≤ 127` for every group. -/
def groupShiftOf (ρ : Nat) (roots : List Nat) : Nat :=
  firstFrom (fun τ => decide (ceilDiv (largest roots) (2 ^ τ) ≤ 127)) (largest roots).log2 ρ

/-- `⌈2^8 · |r_k| / u⌉`. -/
def remainderCode (u : Int) (r : Int) : Int := (ceilDiv (2 ^ 8 * r.natAbs) u.toNat : Nat)

/-- `Y = ⌈(R/2^8 + γ·(N + R/2^8)) · 2^ν / 2^(τ-ρ)⌉` with `γ = gammaNum / 2^40`. -/
def tailCodeOf (ρ ν τ gammaNum R N : Nat) : Nat :=
  ceilDiv ((2 ^ 40 * R + gammaNum * (2 ^ 8 * N + R)) * 2 ^ ν) (2 ^ 48 * 2 ^ (τ - ρ))

/-- Limbs, group codes and tail code for a given unit. -/
def limbsWith (u : Int) (group ρ ν gammaNum : Nat) (h : List Int) : StateCodes :=
  let t := h.map fun x => nearestEven x u
  let roots := rootsUp (groups group t)
  let τ := groupShiftOf ρ roots
  let R := ceilSqrt (sumSq ((remainders u h t).map (remainderCode u))).toNat
  let N := ceilSqrt (sumSq t).toNat
  { unit := u
    high := t.map highLimb
    low := t.map lowLimb
    groupCodes := roots.map fun T => (ceilDiv T (2 ^ τ) : Int)
    groupShift := τ
    tailCode := tailCodeOf ρ ν τ gammaNum R N }

/-- Stage `limbs` for one position, its input on the scale `2^-B`. -/
def limbsOf (B group gammaNum : Nat) (h : List Int) : StateCodes :=
  limbsWith (unitOf B h) group (residualShift group) (normShift h.length) gammaNum h

/-- `127 · ΣH + 255 · Y < 2^31`: the half-width code of every row fits int32. Otherwise the position
is refused. -/
def StateCodes.fits (state : StateCodes) : Bool :=
  decide (127 * total state.groupCodes + 255 * state.tailCode < 2 ^ 31)

/-- What the enclosure needs of a coded position, and all that it needs. `N` and `R` are any upper
bounds of the norms of `t` and (in units of `u/2^8`) of the remainder. -/
structure StateEncodes (group ρ ν gammaNum : Nat) (h : List Int) (state : StateCodes) : Prop where
  unit_pos : 0 < state.unit
  one_high_limb_per_input : h.length = state.high.length
  one_low_limb_per_input : h.length = state.low.length
  shift_ge : ρ ≤ state.groupShift
  groups_covered : NormsCovered 1 ((2 ^ state.groupShift : Nat) : Int)
    (groups group (joinLimbs state.high state.low)) state.groupCodes
  tail_code_nonneg : 0 ≤ state.tailCode
  tail_covered : ∃ N R : Int, 0 ≤ N ∧ 0 ≤ R ∧
    sumSq (joinLimbs state.high state.low) ≤ N * N ∧
    2 ^ 8 * 2 ^ 8 * sumSq (remainders state.unit h (joinLimbs state.high state.low)) ≤
      (R * state.unit) * (R * state.unit) ∧
    (2 ^ 40 * R + gammaNum * (2 ^ 8 * N + R)) * ((2 ^ ν : Nat) : Int) ≤
      state.tailCode * (2 ^ 48 * ((2 ^ (state.groupShift - ρ) : Nat) : Int))

end CertHead.Enclosure
