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
theorem total_of_dots_le_dot_of_codes {k k' d d' : Int} (hk : 0 ≤ k) (hk' : 0 ≤ k') (hd : 0 ≤ d)
    (hd' : 0 ≤ d') : ∀ (xs ys : List (List Int)) (cs cs' : List Int), NormsCovered k d xs cs →
    NormsCovered k' d' ys cs' →
    k * k' * ((total (List.zipWith dot xs ys)).natAbs : Int) ≤ d * d' * dot cs cs'
  | [], _, [], _, _, _ => by
    simp only [List.zipWith_nil_left, total, dot, Int.natAbs_zero, Int.mul_zero]
    exact Int.le_of_eq (Int.mul_zero _)
  | [], _, _ :: _, _, h, _ => False.elim h
  | _ :: _, _, [], _, h, _ => False.elim h
  | _ :: _, [], _ :: _, [], _, _ => by
    simp only [List.zipWith_nil_right, total, dot, Int.natAbs_zero, Int.mul_zero]
    exact Int.le_of_eq (Int.mul_zero _)
  | _ :: _, [], _ :: _, _ :: _, _, h => False.elim h
  | _ :: _, _ :: _, _ :: _, [], _, h => False.elim h
  | x :: xs, y :: ys, c :: cs, c' :: cs', ⟨c0, hc, hcs⟩, ⟨c0', hc', hcs'⟩ => by
    have ih := total_of_dots_le_dot_of_codes hk hk' hd hd' xs ys cs cs' hcs hcs'
    have h := dot_le_of_codes hk hk' (Int.mul_nonneg c0 hd) (Int.mul_nonneg c0' hd') hc hc'
    have e : c * d * (c' * d') = d * d' * (c * c') := by ac_rfl
    simp only [List.zipWith_cons_cons, total, dot]
    generalize total (List.zipWith dot xs ys) = s at *
    have t := Int.mul_le_mul_of_nonneg_left
      (show ((dot x y + s).natAbs : Int) ≤ ((dot x y).natAbs : Int) + (s.natAbs : Int) by omega)
      (Int.mul_nonneg hk hk')
    rw [Int.mul_add] at t
    rw [Int.mul_add]
    omega

/-! ## The three parts of the half-width -/

/-- The residual part: `2^ρ · |Σ e·t| ≤ s · 2^τ · Σ_g E·H`. -/
theorem residual_part_le {group ρ ν gammaNum : Nat} {w h : List Int} {row : RowCodes}
    {state : StateCodes} (hg : 0 < group) (hr : RowEncodes group ρ ν w row)
    (hs : StateEncodes group ρ ν gammaNum h state) (same : w.length = h.length) :
    ((2 ^ ρ : Nat) : Int) *
        ((dot (remainders row.scale w row.codes) (joinLimbs state.high state.low)).natAbs : Int) ≤
      row.scale * ((2 ^ state.groupShift : Nat) : Int) * dot row.residualCodes state.groupCodes := by
  have hp : 0 < row.scale := hr.scale_pos
  have a := hs.one_high_limb_per_input
  have b := hs.one_low_limb_per_input
  have k := total_of_dots_le_dot_of_codes (Int.le_of_lt (two_pow_cast_pos ρ)) (show (0 : Int) ≤ 1 by omega)
    (Int.le_of_lt hp) (Int.le_of_lt (two_pow_cast_pos state.groupShift)) _ _ _ _
    hr.residuals_covered hs.groups_covered
  rw [← dot_eq_total_of_groups hg (by
    rw [length_remainders _ _ _ hr.one_code_per_weight, length_joinLimbs _ _ (by omega)]
    omega), Int.mul_one] at k
  exact k

/-- The other two parts, the remainders of the limbs and the stock error, come to at most
`X · 2^ν · s · u` times the tail: `2^48·|Σ w r| + 2^8·γ'·Σ|w h| ≤ 2^48 · s·u·2^(τ-ρ)·X·Y`. -/
theorem tail_part_le {group ρ ν gammaNum : Nat} {w h : List Int} {row : RowCodes}
    {state : StateCodes} (hr : RowEncodes group ρ ν w row)
    (hs : StateEncodes group ρ ν gammaNum h state) :
    2 ^ 48 * ((dot w (remainders state.unit h (joinLimbs state.high state.low))).natAbs : Int) +
        2 ^ 8 * (gammaNum * absDot w h) ≤
      2 ^ 48 * (row.scale * state.unit * (((2 ^ (state.groupShift - ρ) : Nat) : Int) *
        (row.normCode * state.tailCode))) := by
  obtain ⟨N, R, hN0, hR0, hN, hR, hY⟩ := hs.tail_covered
  have a := hs.one_high_limb_per_input
  have b := hs.one_low_limb_per_input
  have split := absDot_split (Int.le_of_lt hs.unit_pos) w h (joinLimbs state.high state.low)
    (by rw [length_joinLimbs _ _ (by omega)]; omega)
  have hu := hs.unit_pos
  have hp := hr.scale_pos
  have hX := hr.norm_code_nonneg
  have hw := hr.norm_covered
  generalize joinLimbs state.high state.low = t at *
  generalize remainders state.unit h t = r at *
  generalize state.tailCode = Y at *
  generalize state.unit = u at *
  generalize row.scale = s at *
  generalize row.normCode = X at *
  have hv : (0 : Int) < ((2 ^ ν : Nat) : Int) := two_pow_cast_pos ν
  generalize ((2 ^ ν : Nat) : Int) = v at *
  generalize ((2 ^ (state.groupShift - ρ) : Nat) : Int) = z at *
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

/-! ## int32 -/

/-- What the stored bytes hold: int8 codes and limbs, and half-width codes within their ranges. -/
structure CodesInRange (row : RowCodes) (state : StateCodes) : Prop where
  codes : ∀ q, q ∈ row.codes → (q.natAbs : Int) ≤ 127
  high : ∀ a, a ∈ state.high → (a.natAbs : Int) ≤ 128
  low : ∀ b, b ∈ state.low → (b.natAbs : Int) ≤ 128
  residualCodes : ∀ E, E ∈ row.residualCodes → 0 ≤ E ∧ E ≤ 127
  groupCodes : ∀ H, H ∈ state.groupCodes → 0 ≤ H
  normCode : 0 ≤ row.normCode ∧ row.normCode ≤ 255
  tailCode : 0 ≤ state.tailCode
  columns : row.codes.length ≤ 132104
  fits : state.fits = true

/-- **The screen in int32 is the screen**: no product and no sum overflows. -/
theorem screenRow32_eq_screenRow {ρ : Nat} {row : RowCodes} {state : StateCodes}
    (h : CodesInRange row state) : screenRow32 ρ row state = screenRow ρ row state := by
  have fit := half_width_code_fits_int32 h.residualCodes h.groupCodes h.normCode h.tailCode
    (of_decide_eq_true h.fits)
  simp only [screenRow32, screenRow, int8_dot_exact_in_int32 h.codes h.high h.columns,
    int8_dot_exact_in_int32 h.codes h.low h.columns, dot32_exact_of_result_fits fit.1,
    wrap32_of_fits fit.2.1, wrap32_of_fits fit.2.2]

/-- **The codes that `quantize` and `limbs` make are in range**, for inputs that BF16 can hold (the
largest magnitude is `m · 2^e` with `m < 256`), at most `2^16` columns, and a position that is not
refused. -/
theorem quantized_codes_in_range {B group gammaNum m e : Nat} {w h : List Int} (group_pos : 0 < group)
    (group_small : group ≤ 254 * 254) (columns : w.length ≤ 2 ^ 16) (eight_bits : m < 256)
    (largest_is : maxAbs h = m * 2 ^ e) (fits : (limbsOf B group gammaNum h).fits = true) :
    CodesInRange (quantizeRow B group w) (limbsOf B group gammaNum h) := by
  refine ⟨fun q => codes_fit_int8, ?_, ?_, fun E => residual_codes_fit_int8 group_pos group_small,
    fun H hH => (group_codes_fit_int8 hH).1, norm_code_fits_uint8 B group w,
    Int.natCast_nonneg _, ?_, fits⟩
  · intro a ha
    obtain ⟨t, ht, rfl⟩ := List.mem_map.1 (show a ∈ (h.map fun x => nearestEven x (unitOf B h)).map
      highLimb from ha)
    have := high_limb_within_64 (ticks_within_16320 eight_bits largest_is ht)
    omega
  · intro b hb
    obtain ⟨t, _, rfl⟩ := List.mem_map.1 (show b ∈ (h.map fun x => nearestEven x (unitOf B h)).map
      lowLimb from hb)
    have := low_limb_fits_int8 t
    omega
  · show (w.map _).length ≤ _
    rw [List.length_map]
    omega

/-! ## The main theorem -/

/-- **The screen's interval encloses the stock accumulator.** For every row and every position,
whatever their codes, provided the codes encode them (`RowEncodes`, `StateEncodes`), and for every
accumulator `y` that the stock model admits (`WithinGamma`), with a floor `η ≤ s·u`:
`s·u·(I - width) ≤ y ≤ s·u·(I + width)`. -/
theorem screen_encloses_stock_accumulator {group ρ ν gammaNum : Nat} {η y : Int} {w h : List Int}
    {row : RowCodes} {state : StateCodes} (group_pos : 0 < group)
    (row_encodes : RowEncodes group ρ ν w row)
    (state_encodes : StateEncodes group ρ ν gammaNum h state)
    (same_length : w.length = h.length)
    (stock : WithinGamma gammaNum η w h y)
    (floor_small : η ≤ row.scale * state.unit) :
    row.scale * state.unit * ((screenRow ρ row state).centre - (screenRow ρ row state).width) ≤ y ∧
      y ≤ row.scale * state.unit * ((screenRow ρ row state).centre + (screenRow ρ row state).width) := by
  have res := residual_part_le group_pos row_encodes state_encodes same_length
  have tail := tail_part_le row_encodes state_encodes
  have a := state_encodes.one_high_limb_per_input
  have b := state_encodes.one_low_limb_per_input
  have split := dot_split row.scale state.unit w row.codes h (joinLimbs state.high state.low)
    row_encodes.one_code_per_weight (by rw [length_joinLimbs _ _ (by omega)]; omega) same_length
  have centre := dot_of_joinLimbs row.codes state.high state.low (by omega)
  have hu := state_encodes.unit_pos
  have pow : ((2 ^ state.groupShift : Nat) : Int) =
      ((2 ^ ρ : Nat) : Int) * ((2 ^ (state.groupShift - ρ) : Nat) : Int) := by
    rw [← Int.natCast_mul, ← Nat.pow_add, Nat.add_sub_of_le state_encodes.shift_ge]
  rw [pow] at res
  simp only [screenRow]
  rw [← centre]
  unfold WithinGamma at stock
  have hp2 : (0 : Int) < ((2 ^ ρ : Nat) : Int) := two_pow_cast_pos ρ
  generalize joinLimbs state.high state.low = t at *
  generalize dot (remainders row.scale w row.codes) t = et at *
  generalize dot w (remainders state.unit h t) = wr at *
  generalize absDot w h = awh at *
  generalize dot w h = wh at *
  generalize dot row.codes t = I at *
  generalize dot row.residualCodes state.groupCodes = EH at *
  generalize row.normCode * state.tailCode = XY at *
  generalize ((2 ^ (state.groupShift - ρ) : Nat) : Int) = z at *
  generalize ((2 ^ ρ : Nat) : Int) = p at *
  generalize row.scale = s at *
  generalize state.unit = u at *
  have res' : (et.natAbs : Int) ≤ s * (z * EH) := by
    apply Int.le_of_mul_le_mul_left (c := 0 + p) _ (by omega)
    rw [Int.zero_add]
    have e : s * (p * z) * EH = p * (s * (z * EH)) := by ac_rfl
    omega
  have uet : ((u * et).natAbs : Int) ≤ s * u * (z * EH) := by
    rw [Int.natAbs_mul, Int.natCast_mul, Int.natAbs_of_nonneg (Int.le_of_lt hu)]
    have m := Int.mul_le_mul_of_nonneg_left res' (Int.le_of_lt hu)
    have e : u * (s * (z * EH)) = s * u * (z * EH) := by ac_rfl
    omega
  rw [Int.mul_sub, Int.mul_add (s * u) I, Int.mul_add (s * u) (z * (EH + XY)), Int.mul_one,
    Int.mul_add z, Int.mul_add (s * u)]
  omega

/-- **Directed rounding of the ends keeps the enclosure**, on any grid. -/
theorem rounded_screen_encloses_stock_accumulator {group ρ ν gammaNum : Nat} {η y : Int}
    {w h : List Int} {row : RowCodes} {state : StateCodes} (g : Grid) (group_pos : 0 < group)
    (row_encodes : RowEncodes group ρ ν w row)
    (state_encodes : StateEncodes group ρ ν gammaNum h state)
    (same_length : w.length = h.length)
    (stock : WithinGamma gammaNum η w h y)
    (floor_small : η ≤ row.scale * state.unit) :
    (screenEnds g row state (screenRow ρ row state)).1 ≤ y ∧
      y ≤ (screenEnds g row state (screenRow ρ row state)).2 := by
  have k := screen_encloses_stock_accumulator group_pos row_encodes state_encodes same_length stock
    floor_small
  exact ⟨Int.le_trans (roundDown_le g _) k.1, Int.le_trans k.2 (le_roundUp g _)⟩

/-- The floor `2^-90` is at most the product of the smallest scale and the smallest unit. -/
theorem floorTerm_le {B : Nat} (hB : 50 ≤ B) (w h : List Int) :
    floorTerm B ≤ rowScale B w * unitOf B h := by
  have e : floorTerm B = ((2 ^ (B - 50) : Nat) : Int) * ((2 ^ (B - 40) : Nat) : Int) := by
    unfold floorTerm
    rw [← Int.natCast_mul, ← Nat.pow_add, show B - 50 + (B - 40) = 2 * B - 90 by omega]
  rw [e]
  exact Int.mul_le_mul (rowScale_ge_smallest B w) (unitOf_ge_smallest B h)
    (Int.le_of_lt (two_pow_cast_pos _)) (Int.le_of_lt (rowScale_pos B w))

/-- **quantize → limbs → screen encloses the stock accumulator**: nothing is assumed of the codes. For
weights and inputs on the scale `2^-B`, any group size and any stock model with a `γ`, the rounded
interval around row and position holds the stock accumulator. -/
theorem quantized_screen_encloses_stock_accumulator {B group gammaNum : Nat} {y : Int} {w h : List Int}
    (g : Grid) (hB : 50 ≤ B) (group_pos : 0 < group) (same_length : w.length = h.length)
    (stock : WithinGamma gammaNum (floorTerm B) w h y) :
    let row := quantizeRow B group w
    let state := limbsOf B group gammaNum h
    let ends := screenEnds g row state (screenRow (residualShift group) row state)
    ends.1 ≤ y ∧ y ≤ ends.2 := by
  have hs := limbsOf_encodes B group gammaNum h
  rw [← same_length] at hs
  exact rounded_screen_encloses_stock_accumulator g group_pos (quantizeRow_encodes B group w) hs
    same_length stock (floorTerm_le hB w h)

end CertHead.Enclosure
