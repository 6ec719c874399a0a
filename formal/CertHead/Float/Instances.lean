import CertHead.Float.CodecProperties
/-!
# The four formats

Everything that `RoundProperties` and `CodecProperties` prove of an arbitrary format, said of BF16,
FP16, FP32 and FP64; narrowing from FP32 to BF16; and all BF16 codes by computation.
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

/-! ## All BF16 codes by computation -/

/-- `p` holds of every number below `n`. -/
def allBelow (p : Nat → Bool) : Nat → Bool
  | 0 => true
  | n + 1 => p n && allBelow p n

theorem of_allBelow {p : Nat → Bool} : ∀ {n : Nat}, allBelow p n = true → ∀ k, k < n → p k = true
  | 0, _, _, hk => absurd hk (Nat.not_lt_zero _)
  | n + 1, h, k, hk => by
    have h' : (p n && allBelow p n) = true := h
    rw [Bool.and_eq_true] at h'
    by_cases e : k = n
    · rw [e]; exact h'.1
    · exact of_allBelow h'.2 k (by omega)

/-- A normal magnitude's code, from a shift that is seen to be the right one. The kernel has no fast
`log2`, so the computation below takes the shift from the code and checks it. -/
theorem encodeMag_of_shift {f : Format} {mag shift : Nat}
    (h₁ : 2 ^ f.fracBits ≤ mag / 2 ^ shift) (h₂ : mag / 2 ^ shift < 2 ^ (f.fracBits + 1)) :
    encodeMag f mag = (shift + 1) * 2 ^ f.fracBits + (mag / 2 ^ shift - 2 ^ f.fracBits) := by
  have hk := Nat.two_pow_pos shift
  have h₃ := (Nat.le_div_iff_mul_le hk).1 h₁
  have h₄ := (Nat.div_lt_iff_lt_mul hk).1 h₂
  rw [← Nat.pow_add] at h₃ h₄
  have hge : 2 ^ f.fracBits ≤ mag := Nat.le_trans (two_pow_le_two_pow (by omega)) h₃
  have h0 : mag ≠ 0 := by
    have := Nat.two_pow_pos f.fracBits
    omega
  have hlog : mag.log2 = f.fracBits + shift := (Nat.log2_eq_iff h0).2
    ⟨h₃, by rwa [show f.fracBits + shift + 1 = f.fracBits + 1 + shift by omega]⟩
  unfold encodeMag
  dsimp only
  rw [if_neg (Nat.not_lt.2 hge), hlog, Nat.add_sub_cancel_left]

/-- The BF16 code with sign and exponent field `head` and fraction `frac` survives decoding and
encoding. -/
def bf16CodeSurvives (head frac : Nat) : Bool :=
  match decode bf16 (128 * head + frac) with
  | .finite neg mag =>
    (Nat.ble (mag + 1) 128 && Nat.beq (signBit bf16 neg + mag) (128 * head + frac)) ||
      (Nat.ble 128 (mag / 2 ^ (head % 256 - 1)) && Nat.ble (mag / 2 ^ (head % 256 - 1) + 1) 256 &&
        Nat.beq (signBit bf16 neg + ((head % 256 - 1 + 1) * 128 + (mag / 2 ^ (head % 256 - 1) - 128)))
          (128 * head + frac))
  | d => Nat.beq (encode bf16 d) (128 * head + frac)

theorem encode_decode_of_survives {head frac : Nat} (h : bf16CodeSurvives head frac = true) :
    encode bf16 (decode bf16 (128 * head + frac)) = 128 * head + frac := by
  unfold bf16CodeSurvives at h
  match hd : decode bf16 (128 * head + frac) with
  | .finite neg mag =>
    rw [hd] at h
    dsimp only at h
    rw [Bool.or_eq_true, Bool.and_eq_true, Bool.and_eq_true, Bool.and_eq_true] at h
    show signBit bf16 neg + encodeMag bf16 mag = _
    rcases h with ⟨h₁, h₂⟩ | ⟨⟨h₁, h₂⟩, h₃⟩
    · have hsub : encodeMag bf16 mag = mag := if_pos (Nat.le_of_ble_eq_true h₁)
      rw [hsub]
      exact Nat.eq_of_beq_eq_true h₂
    · rw [encodeMag_of_shift (f := bf16) (Nat.le_of_ble_eq_true h₁) (Nat.le_of_ble_eq_true h₂)]
      exact Nat.eq_of_beq_eq_true h₃
  | .inf neg => rw [hd] at h; exact Nat.eq_of_beq_eq_true h
  | .nan neg payload => rw [hd] at h; exact Nat.eq_of_beq_eq_true h

theorem bf16_all_codes_survive :
    allBelow (fun head => allBelow (bf16CodeSurvives head) 128) 512 = true := by decide +kernel

/-- **All `2^16` BF16 codes, computed one by one by the kernel:** decoding and encoding gives the code
back. (`encode_decode` proves the same for every format.) -/
theorem bf16_encode_decode_by_computation (bits : Nat) (h : bits < 2 ^ 16) :
    encode bf16 (decode bf16 bits) = bits := by
  have h₁ := of_allBelow bf16_all_codes_survive (bits / 128) (by omega)
  have h₂ := encode_decode_of_survives (of_allBelow h₁ (bits % 128) (by omega))
  rwa [Nat.div_add_mod] at h₂

/-- **All `2^16` BF16 codes:** decoding, encoding and decoding again gives the same datum. -/
theorem bf16_decode_encode_by_computation (bits : Nat) (h : bits < 2 ^ 16) :
    decode bf16 (encode bf16 (decode bf16 bits)) = decode bf16 bits := by
  rw [bf16_encode_decode_by_computation bits h]

end CertHead
