import CertHead.Enclosure.Int32Properties
import CertHead.Enclosure.LimbsProperties
import CertHead.Enclosure.Screen

/-!
# The screen encloses the stock accumulator
-/

namespace CertHead.Enclosure

/-! ## Cauchy–Schwarz on codes -/

/-- One group: if the codes cover the norms, their product covers the dot product. -/
theorem dot_le_of_codes {xs ys : List Int} {k k' b b' : Int} (hk : 0 ≤ k) (hk' : 0 ≤ k')
    (hb : 0 ≤ b) (hb' : 0 ≤ b') (hx : k * k * sumSq xs ≤ b * b) (hy : k' * k' * sumSq ys ≤ b' * b') :
    k * k' * ((dot xs ys).natAbs : Int) ≤ b * b' := by
  have e : k * k' * ((dot xs ys).natAbs : Int) = ((k * k' * dot xs ys).natAbs : Int) := by
    rw [Int.natAbs_mul (k * k'), Int.natCast_mul, Int.natAbs_of_nonneg (Int.mul_nonneg hk hk')]
  rw [e]
  apply magnitude_le_of_square_le (Int.mul_nonneg hb hb')
  have h1 := Int.mul_le_mul_of_nonneg_left (square_of_dot_le xs ys)
    (Int.mul_nonneg (square_nonneg k) (square_nonneg k'))
  have h2 := Int.mul_le_mul hx hy (Int.mul_nonneg (square_nonneg k') (sumSq_nonneg ys)) (square_nonneg b)
  have e1 : k * k' * dot xs ys * (k * k' * dot xs ys) = k * k * (k' * k') * (dot xs ys * dot xs ys) := by
    ac_rfl
  have e2 : k * k * (k' * k') * (sumSq xs * sumSq ys) = k * k * sumSq xs * (k' * k' * sumSq ys) := by
    ac_rfl
  rw [square_mul b b']
  omega

/-- **All groups**: `k·k'·|Σ_g Σ x y| ≤ d·d'·Σ_g c·c'` for codes that cover the groups' norms. -/
theorem sum_of_dots_le_dot_of_codes {k k' d d' : Int} (hk : 0 ≤ k) (hk' : 0 ≤ k') (hd : 0 ≤ d)
    (hd' : 0 ≤ d') : ∀ (xs ys : List (List Int)) (cs cs' : List Int), NormsCovered k d xs cs →
    NormsCovered k' d' ys cs' →
    k * k' * (((List.zipWith dot xs ys).sum).natAbs : Int) ≤ d * d' * dot cs cs'
  | [], _, [], _, _, _ => by
    simp only [List.zipWith_nil_left, List.sum_nil, dot, Int.natAbs_zero, Int.mul_zero]
    exact Int.le_of_eq (Int.mul_zero _)
  | [], _, _ :: _, _, h, _ => False.elim h
  | _ :: _, _, [], _, h, _ => False.elim h
  | _ :: _, [], _ :: _, [], _, _ => by
    simp only [List.zipWith_nil_right, List.sum_nil, dot, Int.natAbs_zero, Int.mul_zero]
    exact Int.le_of_eq (Int.mul_zero _)
  | _ :: _, [], _ :: _, _ :: _, _, h => False.elim h
  | _ :: _, _ :: _, _ :: _, [], _, h => False.elim h
  | x :: xs, y :: ys, c :: cs, c' :: cs', ⟨c0, hc, hcs⟩, ⟨c0', hc', hcs'⟩ => by
    have ih := sum_of_dots_le_dot_of_codes hk hk' hd hd' xs ys cs cs' hcs hcs'
    have h := dot_le_of_codes hk hk' (Int.mul_nonneg c0 hd) (Int.mul_nonneg c0' hd') hc hc'
    have e : c * d * (c' * d') = d * d' * (c * c') := by ac_rfl
    simp only [List.zipWith_cons_cons, List.sum_cons, dot]
    generalize (List.zipWith dot xs ys).sum = s at *
    have t := Int.mul_le_mul_of_nonneg_left
      (show ((dot x y + s).natAbs : Int) ≤ ((dot x y).natAbs : Int) + (s.natAbs : Int) by omega)
      (Int.mul_nonneg hk hk')
    rw [Int.mul_add] at t
    rw [Int.mul_add]
    omega

/-! ## The three parts of the half-width -/

/-- The residual part: `2^ρ · |Σ e·t| ≤ s · 2^τ · Σ_g E·H`. -/
theorem residual_part_le {group ρ ν gammaNum : Nat} {w h : List Int} {row : QuantizedRow}
    {p : Limbs} (hg : 0 < group) (hr : RowEncodes group ρ ν w row)
    (hs : LimbsEncode group ρ ν gammaNum h p) (same : w.length = h.length) :
    ((2 ^ ρ : Nat) : Int) *
        ((dot (remainders row.scale w row.codes) (joinLimbs p.hi p.lo)).natAbs : Int) ≤
      row.scale * ((2 ^ p.groupShift : Nat) : Int) * dot row.residualCodes p.groupCodes := by
  have hsp : 0 < row.scale := hr.scale_pos
  have a := hs.one_high_limb_per_input
  have b := hs.one_low_limb_per_input
  have k := sum_of_dots_le_dot_of_codes (Int.le_of_lt (two_pow_cast_pos ρ)) (show (0 : Int) ≤ 1 by omega)
    (Int.le_of_lt hsp) (Int.le_of_lt (two_pow_cast_pos p.groupShift)) _ _ _ _
    hr.residuals_covered hs.groups_covered
  rw [← dot_eq_sum_of_groups hg (by
    rw [length_remainders _ _ _ hr.one_code_per_weight, length_joinLimbs _ _ (by omega)]
    omega), Int.mul_one] at k
  exact k

/-- The other two parts, the remainders of the limbs and the stock error, come to at most
`X · 2^ν · s · u` times the tail: `2^48·|Σ w r| + 2^8·γ'·Σ|w h| ≤ 2^48 · s·u·2^(τ-ρ)·X·Y`. -/
theorem tail_part_le {group ρ ν gammaNum : Nat} {w h : List Int} {row : QuantizedRow}
    {p : Limbs} (hr : RowEncodes group ρ ν w row)
    (hs : LimbsEncode group ρ ν gammaNum h p) :
    2 ^ 48 * ((dot w (remainders p.unit h (joinLimbs p.hi p.lo))).natAbs : Int) +
        2 ^ 8 * (gammaNum * absDot w h) ≤
      2 ^ 48 * (row.scale * p.unit * (((2 ^ (p.groupShift - ρ) : Nat) : Int) *
        (row.normCode * p.tailCode))) := by
  obtain ⟨R, hR0, hR, hY⟩ := hs.tail_covered
  have hN0 := hs.norm_nonneg
  have hN := hs.norm_covered
  have a := hs.one_high_limb_per_input
  have b := hs.one_low_limb_per_input
  have split := absDot_split (Int.le_of_lt hs.unit_pos) w h (joinLimbs p.hi p.lo)
    (by rw [length_joinLimbs _ _ (by omega)]; omega)
  have hu := hs.unit_pos
  have hp := hr.scale_pos
  have hX := hr.norm_code_nonneg
  have hw := hr.norm_covered
  generalize joinLimbs p.hi p.lo = t at *
  generalize remainders p.unit h t = r at *
  generalize p.norm = N at *
  generalize p.tailCode = Y at *
  generalize p.unit = u at *
  generalize row.scale = s at *
  generalize row.normCode = X at *
  have hv : (0 : Int) < ((2 ^ ν : Nat) : Int) := two_pow_cast_pos ν
  generalize ((2 ^ ν : Nat) : Int) = v at *
  generalize ((2 ^ (p.groupShift - ρ) : Nat) : Int) = z at *
  -- the norm of the row, `n = X·2^ν·s`
  have hn : 0 ≤ X * (v * s) := Int.mul_nonneg hX (Int.mul_nonneg (Int.le_of_lt hv) (Int.le_of_lt hp))
  have wt : absDot w t ≤ X * (v * s) * N := absDot_le_of_norm_bounds hn hN0 hw hN
  -- `2^8·Σ|w r| ≤ n·R·u`
  have wr : 2 ^ 8 * absDot w r ≤ X * (v * s) * (R * u) := by
    rw [absDot_eq_dot_of_magnitudes]
    rw [← sumSq_of_magnitudes] at hw hR
    have k := dot_le_of_codes (k := 1) (k' := 2 ^ 8) (by omega) (by omega) hn
      (Int.mul_nonneg hR0 (Int.le_of_lt hu)) (by rw [Int.one_mul, Int.one_mul]; exact hw) hR
    omega
  have dr := dot_le_absDot w r
  have wh : 2 ^ 8 * absDot w h ≤ X * (v * s) * (u * (2 ^ 8 * N)) + X * (v * s) * (R * u) := by
    have m := Int.mul_le_mul_of_nonneg_left wt (Int.le_of_lt hu)
    have e : u * (X * (v * s) * N) * 2 ^ 8 = X * (v * s) * (u * (2 ^ 8 * N)) := by ac_rfl
    omega
  have g0 := Int.mul_le_mul_of_nonneg_left wh (Int.natCast_nonneg gammaNum)
  have c0 : 0 ≤ s * u * X := Int.mul_nonneg (Int.mul_nonneg (Int.le_of_lt hp) (Int.le_of_lt hu)) hX
  have y0 := Int.mul_le_mul_of_nonneg_left hY c0
  have e1 : (gammaNum : Int) * (2 ^ 8 * absDot w h) = 2 ^ 8 * (gammaNum * absDot w h) := by ac_rfl
  have e2 : s * u * X * ((2 ^ 40 * R + gammaNum * (2 ^ 8 * N + R)) * v) =
      2 ^ 40 * (X * (v * s) * (R * u)) +
        gammaNum * (X * (v * s) * (u * (2 ^ 8 * N)) + X * (v * s) * (R * u)) := by
    simp only [Int.mul_add, Int.add_mul]
    ac_rfl
  have e3 : s * u * X * (Y * (2 ^ 48 * z)) = 2 ^ 48 * (s * u * (z * (X * Y))) := by ac_rfl
  rw [e2, e3] at y0
  omega

/-! ## The main theorem -/

/-- **The screen's interval encloses the stock accumulator.** For every row and every position,
whatever their codes, provided the codes encode them (`RowEncodes`, `LimbsEncode`), and for every
accumulator `y` that the stock model admits (`WithinGamma`), with a floor `η ≤ s·u`:
`s·u·(I - width) ≤ y ≤ s·u·(I + width)`. -/
theorem screen_encloses_stock_accumulator {group ρ ν gammaNum : Nat} {η y : Int} {w h : List Int}
    {row : QuantizedRow} {p : Limbs} (group_pos : 0 < group)
    (row_encodes : RowEncodes group ρ ν w row)
    (limbs_encode : LimbsEncode group ρ ν gammaNum h p)
    (same_length : w.length = h.length)
    (stock : WithinGamma gammaNum η w h y)
    (floor_small : η ≤ row.scale * p.unit) :
    row.scale * p.unit * ((screenRow ρ row p).center - (screenRow ρ row p).width) ≤ y ∧
      y ≤ row.scale * p.unit * ((screenRow ρ row p).center + (screenRow ρ row p).width) := by
  have res := residual_part_le group_pos row_encodes limbs_encode same_length
  have tail := tail_part_le row_encodes limbs_encode
  have a := limbs_encode.one_high_limb_per_input
  have b := limbs_encode.one_low_limb_per_input
  have split := dot_split row.scale p.unit w row.codes h (joinLimbs p.hi p.lo)
    row_encodes.one_code_per_weight (by rw [length_joinLimbs _ _ (by omega)]; omega) same_length
  have center := dot_of_joinLimbs row.codes p.hi p.lo (by omega)
  have hu := limbs_encode.unit_pos
  have pow : ((2 ^ p.groupShift : Nat) : Int) =
      ((2 ^ ρ : Nat) : Int) * ((2 ^ (p.groupShift - ρ) : Nat) : Int) := by
    rw [← Int.natCast_mul, ← Nat.pow_add, Nat.add_sub_of_le limbs_encode.shift_ge]
  rw [pow] at res
  simp only [screenRow]
  rw [← center]
  unfold WithinGamma at stock
  have hd : (0 : Int) < ((2 ^ ρ : Nat) : Int) := two_pow_cast_pos ρ
  generalize joinLimbs p.hi p.lo = t at *
  generalize dot (remainders row.scale w row.codes) t = et at *
  generalize dot w (remainders p.unit h t) = wr at *
  generalize absDot w h = awh at *
  generalize dot w h = wh at *
  generalize dot row.codes t = I at *
  generalize dot row.residualCodes p.groupCodes = EH at *
  generalize row.normCode * p.tailCode = XY at *
  generalize ((2 ^ (p.groupShift - ρ) : Nat) : Int) = z at *
  generalize ((2 ^ ρ : Nat) : Int) = d at *
  generalize row.scale = s at *
  generalize p.unit = u at *
  have res' : (et.natAbs : Int) ≤ s * (z * EH) := by
    apply le_of_scaled_le hd
    have e : s * (d * z) * EH = d * (s * (z * EH)) := by ac_rfl
    omega
  have uet : ((u * et).natAbs : Int) ≤ s * u * (z * EH) := by
    rw [Int.natAbs_mul, Int.natCast_mul, Int.natAbs_of_nonneg (Int.le_of_lt hu)]
    have m := Int.mul_le_mul_of_nonneg_left res' (Int.le_of_lt hu)
    have e : u * (s * (z * EH)) = s * u * (z * EH) := by ac_rfl
    omega
  rw [Int.mul_sub, Int.mul_add (s * u) I, Int.mul_add (s * u) (z * (EH + XY)), Int.mul_one,
    Int.mul_add z, Int.mul_add (s * u)]
  omega

/-! ## What the guard buys -/

/-- What stage `limbs` lets through is `limbsOf`, in range and within the guard. -/
theorem eq_limbsOf_of_accepted {limbs : LimbCount} {B group gammaNum : Nat} {codeNorm : Int}
    {h : List Int} {p : Limbs} (accepted : limbs? limbs B group gammaNum codeNorm h = some p) :
    p = limbsOf limbs B group gammaNum h ∧ maxAbs h < 2 ^ (B + 16) ∧
      p.fits (residualShift group) codeNorm = true := by
  unfold limbs? at accepted
  by_cases c : maxAbs h < 2 ^ (B + 16) ∧
      (limbsOf limbs B group gammaNum h).fits (residualShift group) codeNorm = true
  · simp only [if_pos c] at accepted
    have e := Option.some.inj accepted
    exact ⟨e.symm, c.1, e ▸ c.2⟩
  · simp only [if_neg c] at accepted
    exact absurd accepted (by intro e; cases e)

/-- The ranges of the stored codes, and the norms whose product the guard bounds. -/
structure CodesInRange (ρ : Nat) (codeNorm : Int) (row : QuantizedRow) (p : Limbs) : Prop where
  residualCodes : ∀ E, E ∈ row.residualCodes → 0 ≤ E ∧ E ≤ 127
  groupCodes : ∀ H, H ∈ p.groupCodes → 0 ≤ H
  normCode : 0 ≤ row.normCode ∧ row.normCode ≤ 255
  tailCode : 0 ≤ p.tailCode
  codeNorm_nonneg : 0 ≤ codeNorm
  codes_within : sumSq row.codes ≤ codeNorm * codeNorm
  norm_nonneg : 0 ≤ p.norm
  ticks_within : sumSq (joinLimbs p.hi p.lo) ≤ p.norm * p.norm
  one_low_per_high : p.hi.length = p.lo.length
  fits : p.fits ρ codeNorm = true

/-- **Under the guard everything fits int32**: `I`, `J`, `width`, and both `I ± width`. -/
theorem screen_fits_int32 {ρ : Nat} {codeNorm : Int} {row : QuantizedRow} {p : Limbs}
    (h : CodesInRange ρ codeNorm row p) :
    let s := screenRow ρ row p
    FitsInt32 s.center ∧ FitsInt32 s.spread ∧ FitsInt32 s.width ∧
      FitsInt32 (s.center - s.width) ∧ FitsInt32 (s.center + s.width) := by
  have guard : codeNorm * p.norm + p.widest ρ < 2 ^ 31 := of_decide_eq_true h.fits
  have center := dot_le_of_norm_bounds h.codeNorm_nonneg h.norm_nonneg h.codes_within h.ticks_within
  rw [dot_of_joinLimbs row.codes p.hi p.lo h.one_low_per_high] at center
  have eh := dot_of_codes_bounded h.residualCodes h.groupCodes
  have xy0 := Int.mul_nonneg h.normCode.1 h.tailCode
  have xy := Int.mul_le_mul_of_nonneg_right h.normCode.2 h.tailCode
  have z0 : (0 : Int) < ((2 ^ (p.groupShift - ρ) : Nat) : Int) := two_pow_cast_pos _
  unfold Limbs.widest at guard
  simp only [screenRow]
  generalize 256 * dot row.codes p.hi + dot row.codes p.lo = I at *
  generalize dot row.residualCodes p.groupCodes = EH at *
  generalize row.normCode * p.tailCode = XY at *
  generalize ((2 ^ (p.groupShift - ρ) : Nat) : Int) = z at *
  have m := Int.mul_le_mul_of_nonneg_left
    (show EH + XY ≤ 127 * p.groupCodes.sum + 255 * p.tailCode by omega) (Int.le_of_lt z0)
  have j := Int.mul_le_mul_of_nonneg_right (show 1 ≤ z by omega) (show 0 ≤ EH + XY by omega)
  rw [Int.one_mul] at j
  unfold FitsInt32
  omega

/-- **The screen in int32 is the screen**: sums may wrap on the way, the results are exact. -/
theorem screenRow32_eq_screenRow {ρ : Nat} {codeNorm : Int} {row : QuantizedRow} {p : Limbs}
    (h : CodesInRange ρ codeNorm row p) : screenRow32 ρ row p = screenRow ρ row p := by
  have fits := screen_fits_int32 h
  simp only [screenRow] at fits
  obtain ⟨fI, fJ, fw, _, _⟩ := fits
  have eI : wrap32 (wrap32 (256 * dot32 row.codes p.hi) + dot32 row.codes p.lo) =
      256 * dot row.codes p.hi + dot row.codes p.lo := by
    rw [← wrap32_of_fits fI, dot32_eq, dot32_eq]
    unfold wrap32
    omega
  have eJ : wrap32 (dot32 row.residualCodes p.groupCodes + wrap32 (row.normCode * p.tailCode)) =
      dot row.residualCodes p.groupCodes + row.normCode * p.tailCode := by
    rw [dot32_eq, wrap32_add_wrap32, wrap32_of_fits fJ]
  simp only [screenRow32, screenRow, eI, eJ, wrap32_add_left, wrap32_of_fits fw]

/-- **The codes that `quantize` and `limbs` make are in range**, for every row whose norm code is at most
the largest of the head, from which `Q` is taken. -/
theorem quantized_codes_in_range {limbs : LimbCount} {B group gammaNum : Nat} {maxNormCode : Int}
    {w h : List Int} {p : Limbs} (group_pos : 0 < group) (group_small : group ≤ 254 * 254)
    (norm_code_le : (quantizeRow B group w).normCode ≤ maxNormCode)
    (accepted : limbs? limbs B group gammaNum (codeNormBound w.length maxNormCode) h = some p) :
    CodesInRange (residualShift group) (codeNormBound w.length maxNormCode) (quantizeRow B group w) p := by
  obtain ⟨rfl, _, fits⟩ := eq_limbsOf_of_accepted accepted
  have enc := limbsOf_encodes limbs B group gammaNum h
  have X := norm_code_fits_uint8 B group w
  have q0 : 0 ≤ codeNormBound w.length maxNormCode := by
    have := Int.mul_nonneg (Int.le_of_lt (two_pow_cast_pos (normShift w.length)))
      (show 0 ≤ maxNormCode by omega)
    unfold codeNormBound
    omega
  exact {
    residualCodes := fun E => residual_codes_fit_int8 group_pos group_small
    groupCodes := fun H hH => (group_codes_fit_int8 hH).1
    normCode := X
    tailCode := enc.tail_code_nonneg
    codeNorm_nonneg := q0
    codes_within := codes_within_norm_bound norm_code_le
    norm_nonneg := enc.norm_nonneg
    ticks_within := enc.norm_covered
    one_low_per_high := by rw [← enc.one_high_limb_per_input, ← enc.one_low_limb_per_input]
    fits := fits }

/-- **Two directed roundings an end keep the enclosure**, on any two grids. -/
theorem directed_ends_enclose {f y : Int} {s : Screened} (integers products : Grid) (hf : 0 ≤ f)
    (enclosed : f * (s.center - s.width) ≤ y ∧ y ≤ f * (s.center + s.width)) :
    (endsOf integers products f s).1 ≤ y ∧ y ≤ (endsOf integers products f s).2 := by
  have h1 := Int.mul_le_mul_of_nonneg_left (roundDown_le integers (s.center - s.width)) hf
  have h2 := Int.mul_le_mul_of_nonneg_left (le_roundUp integers (s.center + s.width)) hf
  exact ⟨Int.le_trans (roundDown_le products _) (Int.le_trans h1 enclosed.1),
    Int.le_trans (Int.le_trans enclosed.2 h2) (le_roundUp products _)⟩

/-- **The FP32 interval of the screen encloses the stock accumulator**, for all codes that encode. -/
theorem screen_ends_enclose_stock_accumulator {B group ρ ν gammaNum : Nat} {η y : Int}
    {w h : List Int} {row : QuantizedRow} {p : Limbs} (group_pos : 0 < group)
    (row_encodes : RowEncodes group ρ ν w row)
    (limbs_encode : LimbsEncode group ρ ν gammaNum h p)
    (same_length : w.length = h.length)
    (stock : WithinGamma gammaNum η w h y)
    (floor_small : η ≤ row.scale * p.unit) :
    (screen B ρ row p).1 ≤ y ∧ y ≤ (screen B ρ row p).2 :=
  directed_ends_enclose _ _
    (Int.mul_nonneg (Int.le_of_lt row_encodes.scale_pos) (Int.le_of_lt limbs_encode.unit_pos))
    (screen_encloses_stock_accumulator group_pos row_encodes limbs_encode same_length stock floor_small)

/-- The floor `2^-90` is at most the product of the smallest scale and the smallest unit. -/
theorem floorTerm_le {B : Nat} (hB : 50 ≤ B) (limbs : LimbCount) (w h : List Int) :
    floorTerm B ≤ rowScale B w * unitOf limbs B h := by
  have e : floorTerm B = ((2 ^ (B - 50) : Nat) : Int) * ((2 ^ (B - 40) : Nat) : Int) := by
    unfold floorTerm
    rw [← Int.natCast_mul, ← Nat.pow_add, show B - 50 + (B - 40) = 2 * B - 90 by omega]
  rw [e]
  exact Int.mul_le_mul (rowScale_ge_smallest B w) (unitOf_ge_smallest limbs B h)
    (Int.le_of_lt (two_pow_cast_pos _)) (Int.le_of_lt (rowScale_pos B w))

/-- **quantize → limbs → screen encloses the stock accumulator**, with nothing assumed of the codes: for
weights and inputs on the scale `2^-B`, one limb or two, any group size and any stock model with a
`γ`, the FP32 interval of row and position holds the stock accumulator. -/
theorem quantized_screen_encloses_stock_accumulator {limbs : LimbCount} {B group gammaNum : Nat} {y : Int}
    {w h : List Int} (hB : 50 ≤ B) (group_pos : 0 < group) (same_length : w.length = h.length)
    (stock : WithinGamma gammaNum (floorTerm B) w h y) :
    let ends := screen B (residualShift group) (quantizeRow B group w) (limbsOf limbs B group gammaNum h)
    ends.1 ≤ y ∧ y ≤ ends.2 := by
  have hs := limbsOf_encodes limbs B group gammaNum h
  rw [← same_length] at hs
  exact screen_ends_enclose_stock_accumulator group_pos (quantizeRow_encodes B group w) hs
    same_length stock (floorTerm_le hB limbs w h)

/-- The same for a position that stage `limbs` let through. -/
theorem accepted_screen_encloses_stock_accumulator {limbs : LimbCount} {B group gammaNum : Nat}
    {codeNorm y : Int} {w h : List Int} {p : Limbs} (hB : 50 ≤ B) (group_pos : 0 < group)
    (accepted : limbs? limbs B group gammaNum codeNorm h = some p) (same_length : w.length = h.length)
    (stock : WithinGamma gammaNum (floorTerm B) w h y) :
    (screen B (residualShift group) (quantizeRow B group w) p).1 ≤ y ∧
      y ≤ (screen B (residualShift group) (quantizeRow B group w) p).2 := by
  rw [(eq_limbsOf_of_accepted accepted).1]
  exact quantized_screen_encloses_stock_accumulator hB group_pos same_length stock

/-- A bound over any common denominator gives `WithinGamma`: from `D·|y - S| ≤ P·A + F` for the exact sum
`S = Σ w·h` and the mass `A = Σ|w·h|`, with `P/D ≤ gammaNum/2^40` and `F/D ≤ η`. -/
theorem withinGamma_of_bound {D P F A gammaNum : Nat} {η y S : Int} {w h : List Int} (hD : 0 < D)
    (exact_sum : S = dot w h) (mass : (A : Int) = absDot w h)
    (bound : D * (y - S).natAbs ≤ P * A + F)
    (gamma : P * 2 ^ 40 ≤ gammaNum * D) (floor : (F : Int) ≤ D * η) :
    WithinGamma gammaNum η w h y := by
  unfold WithinGamma
  rw [← mass, ← exact_sum]
  generalize (y - S).natAbs = a at *
  have b := Int.ofNat_le.2 bound
  have g := Int.ofNat_le.2 (Nat.mul_le_mul_right A gamma)
  simp only [Int.natCast_mul, Int.natCast_add] at b g
  have g' : (P : Int) * 2 ^ 40 * A ≤ gammaNum * D * A := g
  apply le_of_scaled_le (show (0 : Int) < D by omega)
  have e1 : (D : Int) * (2 ^ 40 * a) = 2 ^ 40 * (D * a) := by ac_rfl
  have e2 : (P : Int) * 2 ^ 40 * A = 2 ^ 40 * (P * A) := by ac_rfl
  have e3 : (gammaNum : Int) * D * A = D * (gammaNum * A) := by ac_rfl
  have e4 : (D : Int) * (2 ^ 40 * η) = 2 ^ 40 * (D * η) := by ac_rfl
  rw [Int.mul_add]
  omega

/-- **Any summation order is a stock model**: a tree of roundings over the products, in any order and of
any shape (`SumTree`), with `K` terms, returns an accumulator within the `any_order` `γ`. -/
theorem any_order_accumulator_within_gamma {e : NodeError} {t : SumTree} {K gammaNum : Nat} {η : Int}
    {w h : List Int} (obeys : t.Obeys e) (any_order : t.AnyOrder) (unary : t.unaryDepth ≤ 2)
    (terms : t.leaves.length ≤ K) (small : 2 * K * e.num < e.den)
    (exact_sum : t.leaves.sum = dot w h) (mass : (absSum t.leaves : Int) = absDot w h)
    (gamma : 2 * K * e.num * 2 ^ 40 ≤ gammaNum * (e.den - 2 * K * e.num))
    (floor : ((e.den * (t.nodeCount * e.floor) : Nat) : Int) ≤ ((e.den - 2 * K * e.num : Nat) : Int) * η) :
    WithinGamma gammaNum η w h t.value :=
  withinGamma_of_bound (by omega) exact_sum mass
    (SumTree.sum_any_order_bound (by omega) obeys any_order unary terms (Nat.le_of_lt small)) gamma floor

end CertHead.Enclosure
