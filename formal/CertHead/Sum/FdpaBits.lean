import CertHead.Float.Codec
import CertHead.Sum.Models
/-!
# The fused adder on bit patterns

The operands that the adder decodes are the codec's values of the same bits, and the chain on bits is
the chain on values: in range nothing is refused and nothing overflows.
-/

namespace CertHead

/-- **`decodeBf16` and the codec agree** on every finite pattern. -/
theorem decodeBf16_agrees_with_codec {B : Nat} (hB : 133 ≤ B) {bits : Nat} {a : Operand}
    (h : decodeBf16 bits = some a) : fromBits bf16 B bits = .fin (a.value B) := by
  have hq : (bf16.grid B).qmin = B - 133 := by
    unfold Format.grid bf16
    simp only
    rw [show (B : Int) + (-126 - (((8 : Nat) : Int) - 1)) = ((B - 133 : Nat) : Int) by omega]
    exact Int.toNat_natCast _
  have hw : bf16.expWidth = 8 := by
    unfold Format.expWidth bf16
    rw [show ((127 : Int) + 1).toNat = 2 ^ 7 from rfl, Nat.log2_two_pow]
  have hf : bf16.fracBits = 7 := rfl
  have hones : bf16.expOnes = 255 := by
    unfold Format.expOnes
    rw [hw]
  unfold decodeBf16 at h
  unfold fromBits decode
  rw [hones, hw, hf]
  have h7 : 2 ^ 7 = 128 := rfl
  have h8 : 2 ^ 8 = 256 := rfl
  have h15 : 2 ^ (7 + 8) = 32768 := rfl
  simp only [h7, h8, h15]
  by_cases h255 : bits / 128 % 256 = 255
  · simp only [if_pos h255] at h
    exact nomatch h
  simp only [if_neg h255, Option.some.injEq] at h ⊢
  subst h
  have hmag : (fieldsMag bf16 (bits / 128 % 256) (bits % 128) * 2 ^ (bf16.grid B).qmin : Nat)
      = (if bits / 128 % 256 = 0 then bits % 128 else 128 + bits % 128)
        * 2 ^ ((B : Int) + ((max (bits / 128 % 256) 1 : Nat) - 127) - 7).toNat := by
    unfold fieldsMag
    rw [hq, hf]
    by_cases h0 : bits / 128 % 256 = 0
    · rw [if_pos h0, if_pos h0]
      exact congrArg (fun e => bits % 128 * 2 ^ e) (by omega)
    · rw [if_neg h0, if_neg h0, h7, Nat.mul_assoc, ← Nat.pow_add]
      exact congrArg (fun e => (128 + bits % 128) * 2 ^ e) (by omega)
  unfold Operand.value
  by_cases hs : bits / 32768 % 2 = 1
  · rw [decide_eq_true hs, if_pos hs, Int.neg_mul]
    unfold Datum.toExt
    simp only
    rw [hmag, Int.natCast_mul, Int.natCast_pow]
    rfl
  · rw [decide_eq_false hs, if_neg hs]
    unfold Datum.toExt
    simp only
    rw [hmag, Int.natCast_mul, Int.natCast_pow]
    rfl

namespace Fdpa

/-- **From bits**: for rows of BF16 patterns below `2^16` in magnitude, `K ≤ 2^16`, the Hopper chain
answers, and its answer is the dot product that the bounds of `Models` speak about. -/
theorem hopper_dotBits_answers {B : Nat} {z : Option Int} {w h : List Nat}
    (hw : ∀ x ∈ w, x / 128 % 256 ≤ 142) (hh : ∀ x ∈ h, x / 128 % 256 ≤ 142) {K : Nat}
    (hwK : w.length = K) (hhK : h.length = K) (hK : K ≤ 2 ^ 16) :
    ∃ ws hs, decodeRow w = some ws ∧ decodeRow h = some hs
      ∧ (∀ x ∈ ws, x.Bf16 15) ∧ (∀ x ∈ hs, x.Bf16 15)
      ∧ (hopper B z).dotBits w h = some ((hopper B z).dot ws hs) := by
  obtain ⟨ws, hws, hwl, hwP⟩ := decodeRow_forall (P := Operand.Bf16 15)
    (fun x hx => decodeBf16_below_two_pow_16 (hw x hx))
  obtain ⟨vs, hvs, hvl, hvP⟩ := decodeRow_forall (P := Operand.Bf16 15)
    (fun x hx => decodeBf16_below_two_pow_16 (hh x hx))
  refine ⟨ws, vs, hws, hvs, hwP, hvP, ?_⟩
  rw [dotBits_eq hws hvs]
  exact hopper_dot_never_overflows hwP hvP (by omega) (by omega) hK

/-- Two products on bits, `1·3 + 2·0.5`, by computation. -/
theorem hopper_dotBits_example :
    (hopper 298).dotBits [0x3F80, 0x4000] [0x4040, 0x3F00] = some (4 * 2 ^ 298) := by
  decide +kernel

end Fdpa
end CertHead
