import CertHead.Enclosure.ScreenProperties
import CertHead.Float.OverflowProperties

/-!
# The screen's FP32 operations: exact factor, no overflow

The factor `s · 2^x` is an FP32 value, and neither the rounded integers nor the rounded products
leave FP32's range: an end is two directed operations, both with finite results.
-/

namespace CertHead.Enclosure

/-- Rounding down stays within any power of two that the format has. -/
theorem roundDown_within_two_pow {g : Grid} (hp : 1 ≤ g.prec) {n : Nat} (hn : g.qmin ≤ n) {x : Int}
    (hx : (x.natAbs : Int) ≤ ((2 ^ n : Nat) : Int)) :
    ((roundDown g x).natAbs : Int) ≤ ((2 ^ n : Nat) : Int) := by
  have r := representable_two_pow hp hn
  have h1 := le_roundDown_of_representable hp (x := x) (representable_neg r) (by omega)
  have h2 := roundDown_le g x
  omega

/-- And so does rounding up. -/
theorem roundUp_within_two_pow {g : Grid} (hp : 1 ≤ g.prec) {n : Nat} (hn : g.qmin ≤ n) {x : Int}
    (hx : (x.natAbs : Int) ≤ ((2 ^ n : Nat) : Int)) :
    ((roundUp g x).natAbs : Int) ≤ ((2 ^ n : Nat) : Int) := by
  have h := roundDown_within_two_pow hp hn (x := -x) (by omega)
  rw [roundUp_eq_neg]
  omega

/-- A weight below `2^16` has a scale of at most `2^10`. -/
theorem rowScale_le {B : Nat} {w : List Int} (in_range : maxAbs w < 2 ^ (B + 16)) :
    rowScale B w ≤ ((2 ^ (B + 10) : Nat) : Int) := by
  apply rowScale_is_smallest
  · apply representable_two_pow (show 1 ≤ 8 by omega)
    show ((B : Int) + (-126 - ((8 : Nat) - 1))).toNat ≤ B + 10
    omega
  · exact Int.ofNat_le.2 (two_pow_le_two_pow (by omega))
  · rw [show B + 16 = B + 10 + 6 by omega, Nat.pow_add] at in_range
    omega

/-- An input below `2^16` has a unit of at most `2^9`. -/
theorem unitOf_le {limbs : LimbCount} {B : Nat} {h : List Int} (in_range : maxAbs h < 2 ^ (B + 16)) :
    unitOf limbs B h ≤ ((2 ^ (B + 9) : Nat) : Int) := by
  have l : (maxAbs h).log2 < B + 16 := by
    by_cases c : maxAbs h = 0
    · rw [c, Nat.log2_zero]
      omega
    · exact (Nat.log2_lt c).2 in_range
  have b : 6 ≤ limbs.unitBits := by
    cases limbs with
    | one => exact Nat.le_refl 6
    | two => show 6 ≤ 13; omega
  exact Int.ofNat_le.2 (two_pow_le_two_pow (by omega))

/-- **The factor `s · 2^x` is exact in FP32**: eight significant bits, and not below `2^-90`. -/
theorem factor_is_fp32 {B : Nat} (hB : 133 ≤ B) (limbs : LimbCount) (w h : List Int) :
    Representable (fp32.grid (2 * B)) (rowScale B w * unitOf limbs B h) := by
  have rep := rowScale_is_bf16 hB w
  have ge := rowScale_ge_smallest B w
  have pos := rowScale_pos B w
  have lt := lt_two_pow_quantumExp_add_prec (bf16.grid B) (rowScale B w).natAbs
  unfold Representable Grid.quantum at rep
  have he : B - 57 ≤ (bf16.grid B).quantumExp (rowScale B w).natAbs := by
    have l : B - 50 ≤ (rowScale B w).natAbs.log2 := (Nat.le_log2 (by omega)).2 (by omega)
    have m : (rowScale B w).natAbs.log2 + 1 - 8 ≤ (bf16.grid B).quantumExp (rowScale B w).natAbs :=
      Nat.le_max_right _ _
    omega
  generalize (bf16.grid B).quantumExp (rowScale B w).natAbs = e at *
  generalize rowScale B w = s at *
  unfold unitOf
  have hx : B - 40 ≤ max ((maxAbs h).log2 - limbs.unitBits) (B - 40) := Nat.le_max_right _ _
  generalize max ((maxAbs h).log2 - limbs.unitBits) (B - 40) = x at *
  apply representable_of_two_pow_dvd (g := fp32.grid (2 * B)) (e := e + x) (show 1 ≤ 24 by omega)
  · show (((2 * B : Nat) : Int) + (-126 - ((24 : Nat) - 1))).toNat ≤ e + x
    omega
  · rw [Nat.pow_add, Int.natCast_mul]
    exact Int.mul_dvd_mul rep (Int.dvd_refl _)
  · rw [Int.natAbs_mul, Int.natAbs_natCast]
    have m := Nat.mul_le_mul_right (2 ^ x) (Nat.le_of_lt lt)
    rw [← Nat.pow_add] at m
    refine Nat.le_trans m (two_pow_le_two_pow ?_)
    show e + 8 + x ≤ e + x + 24
    omega

/-- **No end overflows FP32**: for weights and inputs below `2^16`, a row whose norm code is at most the
largest of the head, and a position that stage `limbs` let through, all four directed operations
of the two ends have finite results, those of `screen`. -/
theorem screen_ends_are_finite {limbs : LimbCount} {B group gammaNum : Nat} {maxNormCode : Int}
    {w h : List Int} {p : Limbs} (group_pos : 0 < group) (group_small : group ≤ 254 * 254)
    (weights_in_range : maxAbs w < 2 ^ (B + 16))
    (norm_code_le : (quantizeRow B group w).normCode ≤ maxNormCode)
    (accepted : limbs? limbs B group gammaNum (codeNormBound w.length maxNormCode) h = some p) :
    let row := quantizeRow B group w
    let s := screenRow (residualShift group) row p
    let f := row.scale * p.unit
    finish (fp32.grid 0) .down (s.center - s.width) = .fin (roundDown (fp32.grid 0) (s.center - s.width)) ∧
      finish (fp32.grid 0) .up (s.center + s.width) = .fin (roundUp (fp32.grid 0) (s.center + s.width)) ∧
      finish (fp32.grid (2 * B)) .down (f * roundDown (fp32.grid 0) (s.center - s.width)) =
        .fin (screen B (residualShift group) row p).1 ∧
      finish (fp32.grid (2 * B)) .up (f * roundUp (fp32.grid 0) (s.center + s.width)) =
        .fin (screen B (residualShift group) row p).2 := by
  have in_range := quantized_codes_in_range group_pos group_small norm_code_le accepted
  obtain ⟨hp, inputs_in_range, _⟩ := eq_limbsOf_of_accepted accepted
  have fits := screen_fits_int32 in_range
  have hs : (quantizeRow B group w).scale = rowScale B w := rfl
  have hu : p.unit = unitOf limbs B h := by rw [hp]; rfl
  have s0 := rowScale_pos B w
  have u0 := unitOf_pos limbs B h
  have f1 : rowScale B w * unitOf limbs B h ≤ ((2 ^ (2 * B + 19) : Nat) : Int) := by
    have m := Int.mul_le_mul (rowScale_le weights_in_range) (unitOf_le (limbs := limbs) inputs_in_range)
      (Int.le_of_lt u0) (Int.le_of_lt (two_pow_cast_pos _))
    rw [← Int.natCast_mul, ← Nat.pow_add, show B + 10 + (B + 9) = 2 * B + 19 by omega] at m
    exact m
  simp only [screen, endsOf, hs, hu]
  generalize screenRow (residualShift group) (quantizeRow B group w) p = s at *
  have fm := fits.2.2.2.1
  have fp := fits.2.2.2.2
  generalize s.center - s.width = a at *
  generalize s.center + s.width = b at *
  have f0 : 0 ≤ rowScale B w * unitOf limbs B h := Int.mul_nonneg (Int.le_of_lt s0) (Int.le_of_lt u0)
  generalize rowScale B w * unitOf limbs B h = f at *
  have int_prec : 1 ≤ (fp32.grid 0).prec := show 1 ≤ 24 by omega
  have int_qmin : (fp32.grid 0).qmin ≤ 31 := by
    show (((0 : Nat) : Int) + (-126 - ((24 : Nat) - 1))).toNat ≤ 31
    omega
  have prod_prec : 1 ≤ (fp32.grid (2 * B)).prec := show 1 ≤ 24 by omega
  have prod_qmin : (fp32.grid (2 * B)).qmin ≤ 2 * B + 50 := by
    show (((2 * B : Nat) : Int) + (-126 - ((24 : Nat) - 1))).toNat ≤ 2 * B + 50
    omega
  have int_top : 2 ^ 31 < 2 ^ (fp32.grid 0).top := Nat.pow_lt_pow_right (by omega) (by
    show 31 < (((0 : Nat) : Int) + 127 + 1).toNat
    omega)
  have prod_top : 2 ^ (2 * B + 50) < 2 ^ (fp32.grid (2 * B)).top := Nat.pow_lt_pow_right (by omega) (by
    show 2 * B + 50 < (((2 * B : Nat) : Int) + 127 + 1).toNat
    omega)
  have p31 : ((2 ^ 31 : Nat) : Int) = 2 ^ 31 := rfl
  unfold FitsInt32 at fm fp
  have da := roundDown_within_two_pow int_prec int_qmin (x := a) (by omega)
  have ub := roundUp_within_two_pow int_prec int_qmin (x := b) (by omega)
  have scaled : ∀ z : Int, (z.natAbs : Int) ≤ ((2 ^ 31 : Nat) : Int) →
      ((f * z).natAbs : Int) ≤ ((2 ^ (2 * B + 50) : Nat) : Int) := by
    intro z hz
    rw [Int.natAbs_mul, Int.natCast_mul, Int.natAbs_of_nonneg f0,
      show 2 * B + 50 = 2 * B + 19 + 31 by omega, Nat.pow_add, Int.natCast_mul]
    exact Int.mul_le_mul f1 hz (Int.natCast_nonneg _) (Int.natCast_nonneg _)
  have dfa := roundDown_within_two_pow prod_prec prod_qmin (scaled _ da)
  have ufb := roundUp_within_two_pow prod_prec prod_qmin (scaled _ ub)
  have kept : ∀ (g : Grid) (mode : Mode) (x : Int) (n : Nat), 2 ^ n < 2 ^ g.top →
      ((mode.round g x).natAbs : Int) ≤ ((2 ^ n : Nat) : Int) →
      finish g mode x = .fin (mode.round g x) :=
    fun _ _ _ _ top le => finish_of_lt (Nat.lt_of_le_of_lt (Int.ofNat_le.1 le) top)
  exact ⟨kept _ .down _ 31 int_top da, kept _ .up _ 31 int_top ub,
    kept _ .down _ _ prod_top dfa, kept _ .up _ _ prod_top ufb⟩

end CertHead.Enclosure
