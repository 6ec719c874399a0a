import CertHead.Float.Codec
import CertHead.Float.OverflowProperties
/-!
# The codec is a bijection, and its finite values are those of the grid
-/

namespace CertHead

/-! ## Fields -/

/-- Putting three fields together and taking them apart again. -/
theorem fields_of_code {P W s E F : Nat} (hF : F < P) (hE : E < W) :
    (s * (P * W) + (E * P + F)) % P = F ∧
      (s * (P * W) + (E * P + F)) / P % W = E ∧
      (s * (P * W) + (E * P + F)) / (P * W) = s := by
  have hP : 0 < P := by omega
  have hW : 0 < W := by omega
  have e : s * (P * W) + (E * P + F) = P * (W * s + E) + F := by
    rw [Nat.mul_add, Nat.add_assoc, Nat.mul_comm s, Nat.mul_assoc, Nat.mul_comm E P]
  have hdiv : (s * (P * W) + (E * P + F)) / P = W * s + E := by
    rw [e, Nat.mul_add_div hP, Nat.div_eq_of_lt hF, Nat.add_zero]
  refine ⟨?_, ?_, ?_⟩
  · rw [e, Nat.mul_add_mod, Nat.mod_eq_of_lt hF]
  · rw [hdiv, Nat.mul_add_mod, Nat.mod_eq_of_lt hE]
  · rw [← Nat.div_div_eq_div_mul, hdiv, Nat.mul_add_div hW, Nat.div_eq_of_lt hE, Nat.add_zero]

/-- Taking a code apart and putting the fields together again. -/
theorem code_of_fields (P W c : Nat) :
    c / (P * W) * (P * W) + (c / P % W * P + c % P) = c := by
  have h₁ := Nat.div_add_mod c P
  have h₂ := Nat.div_add_mod (c / P) W
  rw [Nat.div_div_eq_div_mul] at h₂
  have h₃ : (W * (c / (P * W)) + c / P % W) * P = c / P * P := by rw [h₂]
  have h₄ : W * (c / (P * W)) * P = c / (P * W) * (P * W) := by ac_rfl
  rw [Nat.add_mul, h₄, Nat.mul_comm (c / P)] at h₃
  omega

/-- A code made of a sign and two fields. -/
theorem code_lt {P W s E F : Nat} (hF : F < P) (hE : E < W) (hs : s < 2) :
    s * (P * W) + (E * P + F) < P * W * 2 := by
  have h₁ : (E + 1) * P ≤ W * P := Nat.mul_le_mul_right P hE
  have h₂ : s * (P * W) ≤ 1 * (P * W) := Nat.mul_le_mul_right _ (by omega)
  rw [Nat.add_mul, Nat.one_mul, Nat.mul_comm W P] at h₁
  rw [Nat.one_mul] at h₂
  omega

theorem expOnes_pos (f : Format) : 0 < f.expOnes := by
  unfold Format.expOnes Format.expWidth
  rw [Nat.pow_succ]
  have := Nat.two_pow_pos (f.emax + 1).toNat.log2
  omega

theorem expOnes_lt (f : Format) : f.expOnes < 2 ^ f.expWidth := by
  have := Nat.two_pow_pos f.expWidth
  unfold Format.expOnes
  omega

theorem two_pow_codeBits (f : Format) :
    2 ^ f.codeBits = 2 ^ f.fracBits * 2 ^ f.expWidth * 2 := by
  unfold Format.codeBits
  rw [Nat.pow_succ, Nat.pow_add]

/-! ## Magnitudes -/

/-- A leading one, `fracBits` further bits and `k` zeros. -/
theorem log2_normal {b m : Nat} (h₁ : 2 ^ b ≤ m) (h₂ : m < 2 ^ (b + 1)) (k : Nat) :
    (m * 2 ^ k).log2 = b + k := by
  have hm : m ≠ 0 := by
    have := Nat.two_pow_pos b
    omega
  rw [log2_mul_two_pow hm, (Nat.log2_eq_iff hm).2 ⟨h₁, h₂⟩]

theorem normal_bounds {b F : Nat} (hF : F < 2 ^ b) : 2 ^ b ≤ 2 ^ b + F ∧ 2 ^ b + F < 2 ^ (b + 1) := by
  rw [Nat.pow_succ]
  omega

/-- The code of a magnitude, from its fields. -/
theorem encodeMag_fieldsMag {f : Format} {E F : Nat} (hF : F < 2 ^ f.fracBits) :
    encodeMag f (fieldsMag f E F) = E * 2 ^ f.fracBits + F := by
  unfold fieldsMag
  by_cases hE : E = 0
  · rw [if_pos hE, hE, Nat.zero_mul, Nat.zero_add]
    exact if_pos hF
  · rw [if_neg hE]
    have hb := normal_bounds hF
    have hlog := log2_normal hb.1 hb.2 (E - 1)
    have hk := Nat.two_pow_pos (E - 1)
    have hge : ¬ (2 ^ f.fracBits + F) * 2 ^ (E - 1) < 2 ^ f.fracBits := Nat.not_lt.2
      (Nat.le_trans hb.1 (Nat.le_mul_of_pos_right _ hk))
    unfold encodeMag
    dsimp only
    rw [if_neg hge, hlog, Nat.add_sub_cancel_left, Nat.mul_div_cancel _ hk, Nat.add_sub_cancel_left,
      Nat.sub_add_cancel (Nat.pos_of_ne_zero hE)]

/-- The fields of a magnitude that has a code. -/
theorem exists_fields_of_canonical {f : Format} {neg : Bool} {mag : Nat}
    (h : Datum.Canonical f (.finite neg mag)) :
    ∃ E F, E < f.expOnes ∧ F < 2 ^ f.fracBits ∧ fieldsMag f E F = mag := by
  obtain ⟨hlt, hd⟩ := h
  by_cases hsub : mag < 2 ^ f.fracBits
  · exact ⟨0, mag, expOnes_pos f, hsub, if_pos rfl⟩
  · have h0 : mag ≠ 0 := by
      have := Nat.two_pow_pos f.fracBits
      omega
    have hge := (Nat.le_log2 h0).2 (Nat.le_of_not_lt hsub)
    have hle := (Nat.log2_lt h0).2 hlt
    obtain ⟨m, hm⟩ := hd
    have hk := Nat.two_pow_pos (mag.log2 - f.fracBits)
    have h₁ := Nat.log2_self_le h0
    have h₂ := Nat.lt_log2_self (n := mag)
    rw [show mag.log2 = mag.log2 - f.fracBits + f.fracBits by omega, Nat.pow_add] at h₁
    rw [show mag.log2 + 1 = mag.log2 - f.fracBits + (f.fracBits + 1) by omega, Nat.pow_add] at h₂
    have h₃ : 2 ^ f.fracBits ≤ m := Nat.le_of_mul_le_mul_left (by omega) hk
    have h₄ : m < 2 ^ (f.fracBits + 1) := Nat.lt_of_mul_lt_mul_left (a := 2 ^ (mag.log2 - f.fracBits))
      (by omega)
    rw [Nat.pow_succ] at h₄
    refine ⟨mag.log2 - f.fracBits + 1, m - 2 ^ f.fracBits, by omega, by omega, ?_⟩
    unfold fieldsMag
    rw [if_neg (Nat.succ_ne_zero _), Nat.add_sub_cancel, Nat.add_sub_cancel' h₃, Nat.mul_comm]
    exact hm.symm

/-- Two fields make a magnitude that has a code. -/
theorem canonical_of_fields {f : Format} (neg : Bool) {E F : Nat} (hE : E < f.expOnes)
    (hF : F < 2 ^ f.fracBits) : Datum.Canonical f (.finite neg (fieldsMag f E F)) := by
  unfold fieldsMag
  by_cases h0 : E = 0
  · rw [if_pos h0]
    refine ⟨Nat.lt_of_lt_of_le hF (two_pow_le_two_pow (by omega)), ?_⟩
    by_cases hF0 : F = 0
    · rw [hF0]
      exact Nat.dvd_zero _
    · have := (Nat.log2_lt hF0).2 hF
      rw [show F.log2 - f.fracBits = 0 by omega, Nat.pow_zero]
      exact Nat.one_dvd _
  · rw [if_neg h0]
    have hb := normal_bounds hF
    refine ⟨?_, ?_⟩
    · refine Nat.lt_of_lt_of_le (Nat.mul_lt_mul_of_pos_right hb.2 (Nat.two_pow_pos (E - 1))) ?_
      rw [← Nat.pow_add]
      exact two_pow_le_two_pow (by omega)
    · rw [log2_normal hb.1 hb.2, Nat.add_sub_cancel_left]
      exact Nat.dvd_mul_left _ _

/-! ## The codec -/

/-- `decode` on a code given by its fields. -/
theorem decode_code {f : Format} (neg : Bool) {E F : Nat} (hE : E < 2 ^ f.expWidth)
    (hF : F < 2 ^ f.fracBits) :
    decode f (signBit f neg + (E * 2 ^ f.fracBits + F)) =
      if E = f.expOnes then (if F = 0 then .inf neg else .nan neg F)
      else .finite neg (fieldsMag f E F) := by
  have h := fields_of_code (s := if neg then 1 else 0) hF hE
  unfold decode signBit
  dsimp only
  rw [Nat.pow_add, h.1, h.2.1, h.2.2]
  cases neg <;> rfl

/-- **Decoding an encoding gives the datum back**, for every datum that has a code. -/
theorem decode_encode {f : Format} {d : Datum} (h : d.Canonical f) : decode f (encode f d) = d := by
  match d with
  | .finite neg mag =>
    obtain ⟨E, F, hE, hF, hmag⟩ := exists_fields_of_canonical h
    show decode f (signBit f neg + encodeMag f mag) = _
    rw [← hmag, encodeMag_fieldsMag hF, decode_code neg (Nat.lt_trans hE (expOnes_lt f)) hF,
      if_neg (Nat.ne_of_lt hE)]
  | .inf neg =>
    have h := decode_code neg (expOnes_lt f) (Nat.two_pow_pos f.fracBits)
    rw [if_pos rfl, if_pos rfl] at h
    exact h
  | .nan neg payload =>
    show decode f (signBit f neg + (f.expOnes * 2 ^ f.fracBits + payload)) = _
    rw [decode_code neg (expOnes_lt f) h.2, if_pos rfl, if_neg (Nat.ne_of_gt h.1)]

/-- **Encoding a decoding gives the bit pattern back**, for every bit pattern of the format. -/
theorem encode_decode {f : Format} {bits : Nat} (h : bits < 2 ^ f.codeBits) :
    encode f (decode f bits) = bits := by
  have hF : bits % 2 ^ f.fracBits < 2 ^ f.fracBits := Nat.mod_lt _ (Nat.two_pow_pos _)
  have hs : bits / (2 ^ f.fracBits * 2 ^ f.expWidth) < 2 := by
    refine Nat.div_lt_of_lt_mul ?_
    rwa [two_pow_codeBits] at h
  have hcode := code_of_fields (2 ^ f.fracBits) (2 ^ f.expWidth) bits
  have hsign : signBit f (decide (bits / (2 ^ f.fracBits * 2 ^ f.expWidth) % 2 = 1)) =
      bits / (2 ^ f.fracBits * 2 ^ f.expWidth) * (2 ^ f.fracBits * 2 ^ f.expWidth) := by
    unfold signBit
    rw [Nat.pow_add, Nat.mod_eq_of_lt hs]
    by_cases h1 : bits / (2 ^ f.fracBits * 2 ^ f.expWidth) = 1
    · rw [h1]; rfl
    · have h01 : ∀ s : Nat, s < 2 → s ≠ 1 → s = 0 := by omega
      rw [h01 _ hs h1]; rfl
  unfold decode
  dsimp only
  rw [Nat.pow_add]
  by_cases hE : bits / 2 ^ f.fracBits % 2 ^ f.expWidth = f.expOnes
  · rw [if_pos hE]
    rw [hE] at hcode
    by_cases hF0 : bits % 2 ^ f.fracBits = 0
    · rw [if_pos hF0]
      rw [hF0, Nat.add_zero] at hcode
      show signBit f _ + f.expOnes * 2 ^ f.fracBits = bits
      rw [hsign, hcode]
    · rw [if_neg hF0]
      show signBit f _ + (f.expOnes * 2 ^ f.fracBits + bits % 2 ^ f.fracBits) = bits
      rw [hsign, hcode]
  · rw [if_neg hE]
    show signBit f _ + encodeMag f _ = bits
    rw [hsign, encodeMag_fieldsMag hF, hcode]

/-- **Every bit pattern decodes to a datum that has a code.** -/
theorem decode_canonical (f : Format) (bits : Nat) : (decode f bits).Canonical f := by
  have hF : bits % 2 ^ f.fracBits < 2 ^ f.fracBits := Nat.mod_lt _ (Nat.two_pow_pos _)
  have hE : bits / 2 ^ f.fracBits % 2 ^ f.expWidth < 2 ^ f.expWidth := Nat.mod_lt _ (Nat.two_pow_pos _)
  unfold decode
  dsimp only
  by_cases he : bits / 2 ^ f.fracBits % 2 ^ f.expWidth = f.expOnes
  · rw [if_pos he]
    by_cases hF0 : bits % 2 ^ f.fracBits = 0
    · rw [if_pos hF0]
      exact True.intro
    · rw [if_neg hF0]
      exact ⟨Nat.pos_of_ne_zero hF0, hF⟩
  · rw [if_neg he]
    have hlt : bits / 2 ^ f.fracBits % 2 ^ f.expWidth < f.expOnes := by
      have := expOnes_pos f
      unfold Format.expOnes at he this ⊢
      omega
    exact canonical_of_fields _ hlt hF

/-- **The encoding fits the code's bits.** -/
theorem encode_lt {f : Format} {d : Datum} (h : d.Canonical f) : encode f d < 2 ^ f.codeBits := by
  have hs : ∀ neg : Bool, (if neg then 1 else 0) < 2 := fun neg => by cases neg <;> decide
  rw [two_pow_codeBits]
  match d with
  | .finite neg mag =>
    obtain ⟨E, F, hE, hF, hmag⟩ := exists_fields_of_canonical h
    have := code_lt hF (Nat.lt_trans hE (expOnes_lt f)) (hs neg)
    show signBit f neg + encodeMag f mag < _
    unfold signBit
    rwa [← hmag, encodeMag_fieldsMag hF, Nat.pow_add]
  | .inf neg =>
    have := code_lt (Nat.two_pow_pos f.fracBits) (expOnes_lt f) (hs neg)
    show signBit f neg + f.expOnes * 2 ^ f.fracBits < _
    unfold signBit
    rwa [Nat.pow_add]
  | .nan neg payload =>
    have := code_lt h.2 (expOnes_lt f) (hs neg)
    show signBit f neg + (f.expOnes * 2 ^ f.fracBits + payload) < _
    unfold signBit
    rwa [Nat.pow_add]

/-- Decoding is injective on the bit patterns of the format. -/
theorem decode_injective {f : Format} {a b : Nat} (ha : a < 2 ^ f.codeBits) (hb : b < 2 ^ f.codeBits)
    (h : decode f a = decode f b) : a = b := by
  rw [← encode_decode ha, h, encode_decode hb]

/-! ## The values of the grid -/

theorem interchange_expWidth {f : Format} {w : Nat} (h : f.Interchange w) : f.expWidth = w := by
  have hw := h.width_pos
  unfold Format.expWidth
  rw [h.emax_eq, Int.toNat_natCast, Nat.log2_two_pow]
  omega

/-- The interchange encoding's range, on a scale that is fine enough: `qmin` and `top` are
`fracBits + expOnes - 1` binades apart. -/
theorem grid_top_eq {f : Format} {w B : Nat} (h : f.Interchange w) (hB : f.FitsScale B) :
    (f.grid B).top = (f.grid B).qmin + (f.fracBits + (f.expOnes - 1)) := by
  have hp := h.prec_ge
  have hw := h.width_pos
  have he := h.emax_eq
  have hm := h.emin_eq
  have h2 : 2 ^ w = 2 ^ (w - 1) * 2 := by
    rw [← Nat.pow_succ]
    exact congrArg (2 ^ ·) (by omega)
  have hpos := Nat.two_pow_pos (w - 1)
  unfold Format.FitsScale Format.qminExp at hB
  unfold Format.grid Format.fracBits Format.expOnes
  rw [interchange_expWidth h, h2]
  dsimp only
  omega

theorem grid_prec_eq {f : Format} {w : Nat} (h : f.Interchange w) (B : Nat) :
    (f.grid B).prec = f.fracBits + 1 := by
  have := h.prec_ge
  unfold Format.grid Format.fracBits
  dsimp only
  omega

/-- A magnitude that has a code is a finite value of the grid. -/
theorem finiteValue_of_canonical {f : Format} {w B : Nat} (h : f.Interchange w) (hB : f.FitsScale B)
    {neg : Bool} {mag : Nat} (hc : Datum.Canonical f (.finite neg mag)) :
    FiniteValue (f.grid B) ((mag * 2 ^ (f.grid B).qmin : Nat) : Int) := by
  obtain ⟨hlt, hd⟩ := hc
  have hprec := grid_prec_eq h B
  refine ⟨representable_of_two_pow_dvd (e := mag.log2 - f.fracBits + (f.grid B).qmin) (by omega)
    (by omega) ?_ ?_, ?_⟩
  · rw [Nat.pow_add]
    exact Int.natCast_dvd_natCast.2 (Nat.mul_dvd_mul hd (Nat.dvd_refl _))
  · rw [Int.natAbs_natCast, hprec,
      show mag.log2 - f.fracBits + (f.grid B).qmin + (f.fracBits + 1)
        = mag.log2 - f.fracBits + (f.fracBits + 1) + (f.grid B).qmin by omega, Nat.pow_add]
    refine Nat.mul_le_mul_right _ (Nat.le_of_lt (Nat.lt_of_lt_of_le (Nat.lt_log2_self (n := mag)) ?_))
    exact two_pow_le_two_pow (by omega)
  · rw [Int.natAbs_natCast, grid_top_eq h hB, Nat.add_comm, Nat.pow_add]
    exact Nat.mul_lt_mul_of_pos_right hlt (Nat.two_pow_pos _)

theorem two_pow_qmin_dvd {g : Grid} {x : Int} (h : Representable g x) : 2 ^ g.qmin ∣ x.natAbs :=
  Nat.dvd_trans (Nat.pow_dvd_pow 2 (Nat.le_max_left _ _)) (Int.ofNat_dvd_left.1 h)

theorem natAbs_div_mul_two_pow_qmin {g : Grid} {x : Int} (h : Representable g x) :
    x.natAbs / 2 ^ g.qmin * 2 ^ g.qmin = x.natAbs := Nat.div_mul_cancel (two_pow_qmin_dvd h)

/-- A finite value of the grid has a code. -/
theorem canonical_of_finiteValue {f : Format} {w B : Nat} (h : f.Interchange w) (hB : f.FitsScale B)
    {x : Int} (hx : FiniteValue (f.grid B) x) : (Datum.ofExt f B (.fin x)).Canonical f := by
  obtain ⟨hr, hlt⟩ := hx
  have hmag := natAbs_div_mul_two_pow_qmin hr
  have hprec := grid_prec_eq h B
  have hq := Nat.two_pow_pos (f.grid B).qmin
  show x.natAbs / 2 ^ (f.grid B).qmin < _ ∧ _ ∣ x.natAbs / 2 ^ (f.grid B).qmin
  generalize hm : x.natAbs / 2 ^ (f.grid B).qmin = mag at hmag ⊢
  refine ⟨?_, ?_⟩
  · rw [← hmag, grid_top_eq h hB, Nat.add_comm, Nat.pow_add] at hlt
    exact Nat.lt_of_mul_lt_mul_right hlt
  · by_cases h0 : mag = 0
    · rw [h0]
      exact Nat.dvd_zero _
    have hd := Int.ofNat_dvd_left.1 hr
    rw [← hmag] at hd
    refine dvd_of_mul_dvd_mul_right hq (Nat.dvd_trans ?_ hd)
    rw [← Nat.pow_add]
    refine Nat.pow_dvd_pow 2 ?_
    unfold Grid.quantumExp
    rw [log2_mul_two_pow h0, hprec]
    omega

/-- **What a bit pattern decodes to is a finite value of the format's grid** (or an infinity or
NaN). -/
theorem fromBits_finiteValue {f : Format} {w B : Nat} (h : f.Interchange w) (hB : f.FitsScale B)
    {bits : Nat} {x : Int} (hx : fromBits f B bits = .fin x) : FiniteValue (f.grid B) x := by
  have hc := decode_canonical f bits
  unfold fromBits at hx
  match hd : decode f bits with
  | .finite false mag =>
    rw [hd] at hx hc
    cases hx
    exact finiteValue_of_canonical h hB hc
  | .finite true mag =>
    rw [hd] at hx hc
    cases hx
    exact finiteValue_neg (finiteValue_of_canonical h hB hc)
  | .inf neg => rw [hd] at hx; cases hx
  | .nan neg payload => rw [hd] at hx; cases hx

/-- A value of the format: a finite value of its grid, an infinity or NaN. -/
def Ext.InFormat (f : Format) (B : Nat) : Ext → Prop
  | .fin x => FiniteValue (f.grid B) x
  | .inf _ => True
  | .nan => True

theorem ofExt_canonical {f : Format} {w B : Nat} (h : f.Interchange w) (hB : f.FitsScale B) {a : Ext}
    (ha : a.InFormat f B) : (Datum.ofExt f B a).Canonical f := by
  match a with
  | .fin x => exact canonical_of_finiteValue h hB ha
  | .inf neg => exact True.intro
  | .nan =>
    have hp := h.prec_ge
    refine ⟨Nat.two_pow_pos _, Nat.pow_lt_pow_right (by omega) ?_⟩
    unfold Format.fracBits
    omega

theorem toExt_ofExt {f : Format} {B : Nat} {a : Ext} (ha : a.InFormat f B) :
    (Datum.ofExt f B a).toExt f B = a := by
  match a with
  | .fin x =>
    have hmag := natAbs_div_mul_two_pow_qmin (show Representable (f.grid B) x from ha.1)
    by_cases hx : x < 0
    · show (Datum.finite (decide (x < 0)) _).toExt f B = _
      rw [decide_eq_true hx]
      show Ext.fin (-((_ : Nat) : Int)) = _
      rw [hmag]
      exact congrArg Ext.fin (by omega)
    · show (Datum.finite (decide (x < 0)) _).toExt f B = _
      rw [decide_eq_false hx]
      show Ext.fin ((_ : Nat) : Int) = _
      rw [hmag]
      exact congrArg Ext.fin (by omega)
  | .inf neg => rfl
  | .nan => rfl

/-- **Every value of the format survives the way through its bits.** -/
theorem fromBits_toBits {f : Format} {w B : Nat} (h : f.Interchange w) (hB : f.FitsScale B) {a : Ext}
    (ha : a.InFormat f B) : fromBits f B (toBits f B a) = a := by
  unfold fromBits toBits
  rw [decode_encode (ofExt_canonical h hB ha), toExt_ofExt ha]

/-- **The bits of a value are a code of the format.** -/
theorem toBits_lt {f : Format} {w B : Nat} (h : f.Interchange w) (hB : f.FitsScale B) {a : Ext}
    (ha : a.InFormat f B) : toBits f B a < 2 ^ f.codeBits :=
  encode_lt (ofExt_canonical h hB ha)

/-- **The result of rounding is a value of the format**, so it has a bit pattern. -/
theorem finish_inFormat {f : Format} {B : Nat} (hg : (f.grid B).Valid) (mode : Mode) (x : Int) :
    (finish (f.grid B) mode x).InFormat f B := by
  match h : finish (f.grid B) mode x with
  | .fin r => exact finish_finiteValue hg h
  | .inf neg => exact True.intro
  | .nan => exact True.intro

/-- **A bit pattern is canonical** unless it is a NaN or `-0`: it survives the way through its
value. -/
theorem toBits_fromBits {f : Format} {B : Nat} {bits : Nat} (hbits : bits < 2 ^ f.codeBits)
    (hnan : fromBits f B bits ≠ .nan) (hzero : decode f bits ≠ .finite true 0) :
    toBits f B (fromBits f B bits) = bits := by
  have hq := Nat.two_pow_pos (f.grid B).qmin
  unfold toBits fromBits
  unfold fromBits at hnan
  have key : Datum.ofExt f B ((decode f bits).toExt f B) = decode f bits := by
    match hd : decode f bits with
    | .finite false mag =>
      show Datum.finite (decide (((mag * 2 ^ (f.grid B).qmin : Nat) : Int) < 0))
        (Int.natAbs ((mag * 2 ^ (f.grid B).qmin : Nat) : Int) / 2 ^ (f.grid B).qmin) = _
      rw [decide_eq_false (by omega), Int.natAbs_natCast, Nat.mul_div_cancel _ hq]
    | .finite true mag =>
      have hm : 0 < mag := Nat.pos_of_ne_zero fun e => hzero (by rw [hd, e])
      have := Nat.mul_pos hm hq
      show Datum.finite (decide (-((mag * 2 ^ (f.grid B).qmin : Nat) : Int) < 0))
        (Int.natAbs (-((mag * 2 ^ (f.grid B).qmin : Nat) : Int)) / 2 ^ (f.grid B).qmin) = _
      rw [decide_eq_true (by omega), Int.natAbs_neg, Int.natAbs_natCast, Nat.mul_div_cancel _ hq]
    | .inf neg => rfl
    | .nan neg payload => exact absurd (by rw [hd]; rfl) hnan
  rw [key, encode_decode hbits]

end CertHead
