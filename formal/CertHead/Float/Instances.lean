import CertHead.Float.CodecProperties
/-!
# The four formats

Everything that `RoundProperties` and `CodecProperties` prove of an arbitrary format, said of BF16,
FP16, FP32 and FP64; and narrowing from FP32 to BF16.
-/

namespace CertHead

/-! ## The laws in one place -/

/-- What rounding does on a grid, all in one statement. -/
structure RoundingLaws (g : Grid) : Prop where
  /-- Every direction is monotone. -/
  mono : ∀ (mode : Mode) {x y : Int}, x ≤ y → mode.round g x ≤ mode.round g y
  /-- Every direction lands on the grid. -/
  representable : ∀ (mode : Mode) (x : Int), Representable g (mode.round g x)
  /-- Every direction fixes the values of the grid. -/
  fixes : ∀ (mode : Mode) {x : Int}, Representable g x → mode.round g x = x
  /-- Every direction is idempotent. -/
  idem : ∀ (mode : Mode) (x : Int), mode.round g (mode.round g x) = mode.round g x
  /-- Rounding to nearest errs by at most half an ulp. -/
  half_ulp : ∀ x : Int, 2 * (roundNE g x - x).natAbs ≤ g.quantum x.natAbs
  /-- No value of the grid is nearer. -/
  nearest : ∀ {x z : Int}, Representable g z → (roundNE g x - x).natAbs ≤ (z - x).natAbs
  /-- Ties go to even. -/
  tie_even : ∀ {x : Int}, 2 * (x - roundDown g x) = g.quantum x.natAbs →
    2 * (g.quantum x.natAbs : Int) ∣ roundNE g x
  /-- The directed modes bracket the argument. -/
  brackets : ∀ x : Int, roundDown g x ≤ x ∧ x ≤ roundUp g x
  /-- Rounding down is the best lower bound on the grid. -/
  down_best : ∀ {x z : Int}, Representable g z → z ≤ x → z ≤ roundDown g x
  /-- Rounding up is the best upper bound on the grid. -/
  up_best : ∀ {x z : Int}, Representable g z → x ≤ z → roundUp g x ≤ z
  /-- Relative error at most `2^-prec` from the smallest normal number on. -/
  relative_error : ∀ {x : Int}, 2 ^ (g.qmin + g.prec - 1) ≤ x.natAbs →
    2 ^ g.prec * (roundNE g x - x).natAbs ≤ x.natAbs
  /-- Below that, absolute error at most half the smallest subnormal. -/
  subnormal_error : ∀ {x : Int}, x.natAbs < 2 ^ (g.qmin + g.prec) →
    2 * (roundNE g x - x).natAbs ≤ 2 ^ g.qmin
  /-- The spacing grows with magnitude. -/
  spacing_mono : ∀ {m n : Nat}, m ≤ n → g.quantum m ≤ g.quantum n
  /-- Rounding to nearest is odd. -/
  odd_nearest : ∀ x : Int, roundNE g (-x) = -(roundNE g x)
  /-- Rounding towards zero is odd. -/
  odd_zero : ∀ x : Int, roundZ g (-x) = -(roundZ g x)
  /-- Rounding down mirrors rounding up. -/
  mirror : ∀ x : Int, roundDown g (-x) = -(roundUp g x)

/-- What rounding into the format does, overflow included. -/
structure OverflowLaws (g : Grid) : Prop where
  /-- Every direction is monotone. -/
  mono : ∀ (mode : Mode) {x y : Int}, x ≤ y → (finish g mode x).le (finish g mode y) = true
  /-- Every direction fixes the finite values. -/
  fixes : ∀ (mode : Mode) {x : Int}, FiniteValue g x → finish g mode x = .fin x
  /-- A finite result is a finite value. -/
  finite : ∀ {mode : Mode} {x r : Int}, finish g mode x = .fin r → FiniteValue g r
  /-- The result is never NaN. -/
  not_nan : ∀ (mode : Mode) (x : Int), finish g mode x ≠ .nan
  /-- The directed results bracket the argument, infinities included. -/
  brackets : ∀ x : Int,
    (finish g .down x).le (.fin x) = true ∧ Ext.le (.fin x) (finish g .up x) = true
  /-- Rounding to nearest overflows from halfway between the largest finite value and `2^top` on. -/
  nearest_overflows_iff : ∀ x : Int,
    finish g .nearestEven x = .inf (decide (x < 0)) ↔ 2 * 2 ^ g.top ≤ 2 * x.natAbs + 2 ^ (g.top - g.prec)

/-- **The laws hold on every grid with at least one significand bit.** -/
theorem roundingLaws {g : Grid} (hp : 1 ≤ g.prec) : RoundingLaws g where
  mono mode := mode.round_mono hp
  representable mode := mode.round_representable hp
  fixes mode := mode.round_of_representable
  idem mode x := mode.round_of_representable (mode.round_representable hp x)
  half_ulp := roundNE_half_ulp g
  nearest := roundNE_nearest hp
  tie_even := roundNE_tie_even
  brackets := directed_rounding_brackets g
  down_best := le_roundDown_of_representable hp
  up_best := roundUp_le_of_representable hp
  relative_error := roundNE_relative_error hp
  subnormal_error := roundNE_subnormal_error hp
  spacing_mono := quantum_mono g
  odd_nearest := roundNE_neg g
  odd_zero := roundZ_neg g
  mirror := roundDown_neg g

/-- **The overflow laws hold on every valid grid.** -/
theorem overflowLaws {g : Grid} (hg : g.Valid) : OverflowLaws g where
  mono mode := finish_mono hg mode
  fixes mode := finish_of_finiteValue mode
  finite := finish_finiteValue hg
  not_nan := finish_ne_nan g
  brackets x := ⟨finish_down_le g x, le_finish_up g x⟩
  nearest_overflows_iff x := finish_nearestEven_eq_inf_iff hg x

/-! ## The interchange encodings -/

theorem bf16_interchange : bf16.Interchange 8 := ⟨by decide, by decide, by decide, by decide⟩
theorem fp16_interchange : fp16.Interchange 5 := ⟨by decide, by decide, by decide, by decide⟩
theorem fp32_interchange : fp32.Interchange 8 := ⟨by decide, by decide, by decide, by decide⟩
theorem fp64_interchange : fp64.Interchange 11 := ⟨by decide, by decide, by decide, by decide⟩

/-- The grid of a format on a fine enough scale is valid. -/
theorem grid_valid {f : Format} {w B : Nat} (h : f.Interchange w) (hw : 2 ≤ w) (hB : f.FitsScale B) :
    (f.grid B).Valid := by
  have hprec := grid_prec_eq h B
  have htop := grid_top_eq h hB
  have h2 : 2 ^ 2 ≤ 2 ^ w := two_pow_le_two_pow hw
  refine ⟨by omega, ?_⟩
  rw [htop, hprec]
  unfold Format.expOnes
  rw [interchange_expWidth h]
  omega

/-! ## The laws for each format, on any scale -/

/-- **BF16 rounding obeys the laws.** -/
theorem bf16_roundingLaws (B : Nat) : RoundingLaws (bf16.grid B) :=
  roundingLaws (show 1 ≤ 8 by decide)

/-- **FP16 rounding obeys the laws.** -/
theorem fp16_roundingLaws (B : Nat) : RoundingLaws (fp16.grid B) :=
  roundingLaws (show 1 ≤ 11 by decide)

/-- **FP32 rounding obeys the laws.** -/
theorem fp32_roundingLaws (B : Nat) : RoundingLaws (fp32.grid B) :=
  roundingLaws (show 1 ≤ 24 by decide)

/-- **FP64 rounding obeys the laws.** -/
theorem fp64_roundingLaws (B : Nat) : RoundingLaws (fp64.grid B) :=
  roundingLaws (show 1 ≤ 53 by decide)

theorem bf16_overflowLaws {B : Nat} (hB : bf16.FitsScale B) : OverflowLaws (bf16.grid B) :=
  overflowLaws (grid_valid bf16_interchange (by decide) hB)

theorem fp16_overflowLaws {B : Nat} (hB : fp16.FitsScale B) : OverflowLaws (fp16.grid B) :=
  overflowLaws (grid_valid fp16_interchange (by decide) hB)

theorem fp32_overflowLaws {B : Nat} (hB : fp32.FitsScale B) : OverflowLaws (fp32.grid B) :=
  overflowLaws (grid_valid fp32_interchange (by decide) hB)

theorem fp64_overflowLaws {B : Nat} (hB : fp64.FitsScale B) : OverflowLaws (fp64.grid B) :=
  overflowLaws (grid_valid fp64_interchange (by decide) hB)

/-! ## The codec for each format -/

/-- The bits and the values of a format correspond one to one. -/
structure CodecLaws (f : Format) (width : Nat) : Prop where
  /-- The code's width. -/
  width_eq : f.codeBits = width
  /-- Every bit pattern survives decoding and encoding. -/
  encode_decode : ∀ {bits : Nat}, bits < 2 ^ width → encode f (decode f bits) = bits
  /-- Every datum that has a code survives encoding and decoding. -/
  decode_encode : ∀ {d : Datum}, d.Canonical f → decode f (encode f d) = d
  /-- Every bit pattern decodes to a datum that has a code. -/
  canonical : ∀ bits : Nat, (decode f bits).Canonical f
  /-- Codes fit the width. -/
  encode_lt : ∀ {d : Datum}, d.Canonical f → encode f d < 2 ^ width
  /-- What decodes to a number is a finite value of the grid. -/
  finite : ∀ {B : Nat}, f.FitsScale B → ∀ {bits : Nat} {x : Int},
    fromBits f B bits = .fin x → FiniteValue (f.grid B) x
  /-- Every value of the format survives the way through its bits. -/
  from_to : ∀ {B : Nat}, f.FitsScale B → ∀ {a : Ext}, a.InFormat f B →
    fromBits f B (toBits f B a) = a

theorem codecLaws {f : Format} {w width : Nat} (h : f.Interchange w) (hw : f.codeBits = width) :
    CodecLaws f width where
  width_eq := hw
  encode_decode hb := CertHead.encode_decode (by rwa [hw])
  decode_encode := CertHead.decode_encode
  canonical := decode_canonical f
  encode_lt hc := by rw [← hw]; exact CertHead.encode_lt hc
  finite hB := fromBits_finiteValue h hB
  from_to hB := fromBits_toBits h hB

theorem codeBits_eq {f : Format} {w : Nat} (h : f.Interchange w) : f.codeBits = f.prec + w := by
  have := h.prec_ge
  unfold Format.codeBits Format.fracBits
  rw [interchange_expWidth h]
  omega

/-- **The BF16 codec is a bijection onto 16-bit codes.** -/
theorem bf16_codecLaws : CodecLaws bf16 16 := codecLaws bf16_interchange (codeBits_eq bf16_interchange)
/-- **The FP16 codec is a bijection onto 16-bit codes.** -/
theorem fp16_codecLaws : CodecLaws fp16 16 := codecLaws fp16_interchange (codeBits_eq fp16_interchange)
/-- **The FP32 codec is a bijection onto 32-bit codes.** -/
theorem fp32_codecLaws : CodecLaws fp32 32 := codecLaws fp32_interchange (codeBits_eq fp32_interchange)
/-- **The FP64 codec is a bijection onto 64-bit codes.** -/
theorem fp64_codecLaws : CodecLaws fp64 64 := codecLaws fp64_interchange (codeBits_eq fp64_interchange)

/-! ## What the decision needs -/

/-- **`RoundModel` holds for real BF16 rounding**, subnormals included, with BF16's own spacing. -/
theorem roundModel_bf16 (B : Nat) : RoundModel (roundNE (bf16.grid B)) (bf16.grid B).quantum :=
  roundModel_roundNE (show 1 ≤ 8 by decide)

/-- **`RoundModel` holds for real FP32 rounding.** -/
theorem roundModel_fp32 (B : Nat) : RoundModel (roundNE (fp32.grid B)) (fp32.grid B).quantum :=
  roundModel_roundNE (show 1 ≤ 24 by decide)

/-- **Narrowing FP32 to BF16 keeps a bracket:** the ends of an interval rounded outwards to FP32
still bracket the value after all are rounded to BF16. -/
theorem narrowing_fp32_bf16_keeps_bracket (B : Nat) {lo y hi : Int} (hlo : lo ≤ y) (hhi : y ≤ hi) :
    roundNE (bf16.grid B) (roundDown (fp32.grid B) lo) ≤ roundNE (bf16.grid B) y ∧
      roundNE (bf16.grid B) y ≤ roundNE (bf16.grid B) (roundUp (fp32.grid B) hi) :=
  narrowing_keeps_bracket (fp32.grid B) (show 1 ≤ 8 by decide) hlo hhi

/-- **Rounding a value outwards to FP32 first brackets its BF16 rounding.** -/
theorem narrowing_fp32_bf16 (B : Nat) (x : Int) :
    roundNE (bf16.grid B) (roundDown (fp32.grid B) x) ≤ roundNE (bf16.grid B) x ∧
      roundNE (bf16.grid B) x ≤ roundNE (bf16.grid B) (roundUp (fp32.grid B) x) :=
  narrowing_fp32_bf16_keeps_bracket B (Int.le_refl x) (Int.le_refl x)

/-- **Every BF16 value is an FP32 value.** -/
theorem representable_fp32_of_bf16 (B : Nat) {x : Int} (h : Representable (bf16.grid B) x) :
    Representable (fp32.grid B) x := by
  refine representable_of_coarser ?_ (show 8 ≤ 24 by decide) h
  show ((B : Int) + (-126 - ((24 : Nat) - 1))).toNat ≤ ((B : Int) + (-126 - ((8 : Nat) - 1))).toNat
  omega

end CertHead
