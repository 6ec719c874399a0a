import CertHead.Float.CodecProperties
/-!
# All BF16 codes by computation

The kernel decodes and encodes each of the `2^16` codes. `encode_decode` says the same of every
format by proof; this is the check that the definitions say what that proof is about.
-/

namespace CertHead

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

/-- The BF16 code `128 * head + frac` (sign and exponent field `head`, fraction `frac`) survives
decoding and encoding. For a finite one: normal, with a shift that makes the significand 8 bits long,
or else subnormal. -/
def bf16CodeSurvives (head frac : Nat) : Bool :=
  match decode bf16 (128 * head + frac) with
  | .finite neg mag =>
    (Nat.beq (mag / 2 ^ (head % 256 - 1) / 128) 1 &&
      Nat.beq (signBit bf16 neg + ((head % 256 - 1 + 1) * 128 + (mag / 2 ^ (head % 256 - 1) - 128)))
        (128 * head + frac)) ||
      (Nat.ble (mag + 1) 128 && Nat.beq (signBit bf16 neg + mag) (128 * head + frac))
  | d => Nat.beq (encode bf16 d) (128 * head + frac)

theorem encode_decode_of_survives {head frac : Nat} (h : bf16CodeSurvives head frac = true) :
    encode bf16 (decode bf16 (128 * head + frac)) = 128 * head + frac := by
  unfold bf16CodeSurvives at h
  match hd : decode bf16 (128 * head + frac) with
  | .finite neg mag =>
    rw [hd] at h
    dsimp only at h
    rw [Bool.or_eq_true, Bool.and_eq_true, Bool.and_eq_true] at h
    show signBit bf16 neg + encodeMag bf16 mag = _
    rcases h with ⟨h₁, h₂⟩ | ⟨h₁, h₂⟩
    · have hlead := Nat.eq_of_beq_eq_true h₁
      have hlow : 2 ^ bf16.fracBits ≤ mag / 2 ^ (head % 256 - 1) :=
        show 128 ≤ mag / 2 ^ (head % 256 - 1) by omega
      have hhigh : mag / 2 ^ (head % 256 - 1) < 2 ^ (bf16.fracBits + 1) :=
        show mag / 2 ^ (head % 256 - 1) < 256 by omega
      rw [encodeMag_of_shift hlow hhigh]
      exact Nat.eq_of_beq_eq_true h₂
    · have hsub : encodeMag bf16 mag = mag := if_pos (Nat.le_of_ble_eq_true h₁)
      rw [hsub]
      exact Nat.eq_of_beq_eq_true h₂
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
