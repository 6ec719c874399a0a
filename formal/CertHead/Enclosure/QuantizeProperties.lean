import CertHead.Float.RoundProperties
import CertHead.Enclosure.NormsProperties
import CertHead.Enclosure.Quantize

/-!
# The coded row: sound for every scale, and narrow enough for its bytes
-/

namespace CertHead.Enclosure

/-! ## Searching -/

/-- A search that would succeed at its end succeeds. -/
theorem firstFrom_holds {p : Nat → Bool} : ∀ (fuel start : Nat), p (start + fuel) = true →
    p (firstFrom p fuel start) = true
  | 0, _, h => h
  | fuel + 1, start, h => by
    unfold firstFrom
    by_cases c : p start = true
    · rw [if_pos c]; exact c
    · rw [if_neg c]
      exact firstFrom_holds fuel (start + 1) (by rw [show start + 1 + fuel = start + (fuel + 1) by omega]; exact h)

/-- The search never goes back. -/
theorem start_le_firstFrom {p : Nat → Bool} : ∀ (fuel start : Nat), start ≤ firstFrom p fuel start
  | 0, start => Nat.le_refl start
  | fuel + 1, start => by
    unfold firstFrom
    by_cases c : p start = true
    · rw [if_pos c]; exact Nat.le_refl start
    · rw [if_neg c]
      exact Nat.le_trans (Nat.le_succ start) (start_le_firstFrom fuel (start + 1))

/-- The search skips nothing: its result is the smallest. -/
theorem firstFrom_is_first {p : Nat → Bool} : ∀ (fuel start n : Nat), start ≤ n →
    n < firstFrom p fuel start → p n = false
  | 0, start, n, h, k => by unfold firstFrom at k; omega
  | fuel + 1, start, n, h, k => by
    unfold firstFrom at k
    by_cases c : p start = true
    · rw [if_pos c] at k; omega
    · rw [if_neg c] at k
      by_cases e : n = start
      · subst e; exact Bool.eq_false_iff.2 c
      · exact firstFrom_is_first fuel (start + 1) n (by omega) k

/-! ## Codes of norms -/

/-- **A norm code covers its norm**: `k² · Σ x² ≤ (c · d)²`. -/
theorem normCodeOf_covers (k : Nat) {d : Nat} (hd : 0 < d) (xs : List Int) :
    (k : Int) * k * sumSq xs ≤ ((normCodeOf k d xs : Int) * d) * ((normCodeOf k d xs : Int) * d) := by
  have h1 := le_ceilDiv_mul (k * k * (sumSq xs).toNat) (Nat.mul_pos hd hd)
  have h2 := le_ceilSqrt_square (ceilDiv (k * k * (sumSq xs).toNat) (d * d))
  have h3 := Nat.mul_le_mul_right (d * d) h2
  have h4 : k * k * (sumSq xs).toNat ≤ normCodeOf k d xs * d * (normCodeOf k d xs * d) := by
    rw [Nat.mul_mul_mul_comm]
    exact Nat.le_trans h1 h3
  have h5 := Int.ofNat_le.2 h4
  simp only [Int.natCast_mul, Int.toNat_of_nonneg (sumSq_nonneg xs)] at h5
  exact h5

/-- **A norm code is the smallest that covers.** -/
theorem normCodeOf_le {k d c : Nat} (hd : 0 < d) {xs : List Int}
    (h : (k : Int) * k * sumSq xs ≤ ((c : Int) * d) * ((c : Int) * d)) : normCodeOf k d xs ≤ c := by
  apply ceilSqrt_le
  apply ceilDiv_le (Nat.mul_pos hd hd)
  rw [← Nat.mul_mul_mul_comm]
  apply Int.ofNat_le.1
  simp only [Int.natCast_mul, Int.toNat_of_nonneg (sumSq_nonneg xs)]
  exact h

/-- Codes made by `normCodeOf` cover group by group. -/
theorem normCodes_cover (k : Nat) {d : Nat} (hd : 0 < d) : ∀ gs : List (List Int),
    NormsCovered k d gs (gs.map fun g => (normCodeOf k d g : Int))
  | [] => True.intro
  | g :: gs => by
    simp only [List.map_cons, NormsCovered]
    exact ⟨by omega, normCodeOf_covers k hd g, normCodes_cover k hd gs⟩

/-! ## Soundness -/

/-- **Any positive scale is sound**: whatever scale, group size and shifts are chosen, the codes that
`quantizeWith` computes encode the row. -/
theorem any_scale_is_sound {s : Int} (hs : 0 < s) (group ρ ν : Nat) (w : List Int) :
    RowEncodes group ρ ν w (quantizeWith s group ρ ν w) := by
  have hn : 0 < s.toNat := by omega
  have e : (s.toNat : Int) = s := Int.toNat_of_nonneg (by omega)
  refine ⟨hs, ?_, ?_, ?_, ?_⟩
  · show w.length = (w.map _).length
    rw [List.length_map]
  · have h := normCodes_cover (2 ^ ρ) hn (groups group (remainders s w (w.map fun x => nearestEven x s)))
    rw [e] at h
    exact h
  · exact Int.natCast_nonneg _
  · have h := normCodeOf_covers 1 (Nat.mul_pos (Nat.two_pow_pos ν) hn) w
    simp only [Int.natCast_mul, e] at h
    have i : ((1 : Nat) : Int) * ((1 : Nat) : Int) * sumSq w = sumSq w := by
      rw [show ((1 : Nat) : Int) = 1 from rfl, Int.one_mul, Int.one_mul]
    rw [i] at h
    exact h

/-- The scale is at least `2^-50`. -/
theorem rowScale_ge_smallest (B : Nat) (w : List Int) : ((2 ^ (B - 50) : Nat) : Int) ≤ rowScale B w :=
  Int.le_max_right _ _

/-- The scale is positive. -/
theorem rowScale_pos (B : Nat) (w : List Int) : 0 < rowScale B w :=
  Int.lt_of_lt_of_le (two_pow_cast_pos (B - 50)) (rowScale_ge_smallest B w)

/-- **The stored codes of a row encode it.** -/
theorem quantizeRow_encodes (B group : Nat) (w : List Int) :
    RowEncodes group (residualShift group) (normShift w.length) w (quantizeRow B group w) :=
  any_scale_is_sound (rowScale_pos B w) group _ _ w

/-! ## Widths -/

/-- Every weight is at most 127 scales. -/
theorem weight_le_127_scales {B : Nat} {w : List Int} {x : Int} (h : x ∈ w) :
    (x.natAbs : Int) ≤ 127 * rowScale B w := by
  have h1 := magnitude_le_maxAbs h
  have h2 := le_ceilDiv_mul (maxAbs w) (show 0 < 127 by omega)
  have h3 := le_roundUp (bf16.grid B) (ceilDiv (maxAbs w) 127 : Nat)
  have h4 := Int.le_max_left (roundUp (bf16.grid B) (ceilDiv (maxAbs w) 127 : Nat))
    ((2 ^ (B - 50) : Nat) : Int)
  unfold rowScale
  omega

/-- The scale is a BF16 value. -/
theorem rowScale_is_bf16 {B : Nat} (hB : 133 ≤ B) (w : List Int) :
    Representable (bf16.grid B) (rowScale B w) := by
  have hp : 1 ≤ (bf16.grid B).prec := by show 1 ≤ 8; omega
  unfold rowScale
  rw [Int.max_def]
  by_cases c : roundUp (bf16.grid B) (ceilDiv (maxAbs w) 127 : Nat) ≤ ((2 ^ (B - 50) : Nat) : Int)
  · rw [if_pos c]
    apply representable_two_pow hp
    show ((B : Int) + (-126 - ((8 : Nat) - 1))).toNat ≤ B - 50
    omega
  · rw [if_neg c]
    exact roundUp_representable hp _

/-- No smaller BF16 value that is at least `2^-50` would do: the scale is the smallest. -/
theorem rowScale_is_smallest {B : Nat} {w : List Int} {s : Int} (hs : Representable (bf16.grid B) s)
    (h50 : ((2 ^ (B - 50) : Nat) : Int) ≤ s) (h127 : (maxAbs w : Int) ≤ 127 * s) : rowScale B w ≤ s := by
  have hp : 1 ≤ (bf16.grid B).prec := by show 1 ≤ 8; omega
  apply Int.max_le.2
  refine ⟨roundUp_le_of_representable hp hs ?_, h50⟩
  have h0 : (0 : Int) < ((2 ^ (B - 50) : Nat) : Int) := two_pow_cast_pos _
  have h := ceilDiv_le (n := maxAbs w) (d := 127) (m := s.toNat) (by omega) (by omega)
  omega

/-- **The codes fit int8**: `|q| ≤ 127`. -/
theorem codes_fit_int8 {B group : Nat} {w : List Int} {q : Int} (h : q ∈ (quantizeRow B group w).codes) :
    (q.natAbs : Int) ≤ 127 := by
  obtain ⟨x, hx, e⟩ := List.mem_map.1 (show q ∈ w.map fun x => nearestEven x (rowScale B w) from h)
  subst e
  exact nearestEven_bounded (rowScale_pos B w) (weight_le_127_scales hx)

/-- **The residual is at most half a scale.** -/
theorem residual_le_half_scale {s : Int} (hs : 0 < s) {e : Int} : ∀ {w : List Int},
    e ∈ remainders s w (w.map fun x => nearestEven x s) → 2 * (e.natAbs : Int) ≤ s
  | x :: xs, h => by
    simp only [List.map_cons, remainders] at h
    cases List.mem_cons.1 h with
    | inl k => subst k; exact nearestEven_within_half x hs
    | inr k => exact residual_le_half_scale hs k

/-- Doubling every element quadruples the sum of squares. -/
theorem sumSq_double : ∀ l : List Int, sumSq (l.map (2 * ·)) = 4 * sumSq l
  | [] => rfl
  | x :: xs => by
    have := square_mul 2 x
    simp only [List.map_cons, sumSq, sumSq_double xs]
    omega

/-- The residual shift leaves room: `4^ρ · group ≤ 254²`. -/
theorem residualShift_spec {group : Nat} (h0 : 0 < group) (h : group ≤ 254 * 254) :
    2 ^ residualShift group * 2 ^ residualShift group * group ≤ 254 * 254 := by
  have hm : 254 * 254 / group ≠ 0 := by
    have := Nat.div_pos h h0
    omega
  have h1 := Nat.log2_self_le hm
  have h2 : 2 ^ residualShift group * 2 ^ residualShift group ≤ 2 ^ (254 * 254 / group).log2 := by
    rw [← Nat.pow_add]
    exact Nat.pow_le_pow_right (by omega) (by unfold residualShift; omega)
  exact Nat.le_trans (Nat.mul_le_mul_right group (Nat.le_trans h2 h1)) (Nat.div_mul_le_self _ _)

/-- And it is the largest that does: `254² < 4^(ρ+1) · group`. -/
theorem residualShift_is_largest {group : Nat} (h0 : 0 < group) :
    254 * 254 < 2 ^ (residualShift group + 1) * 2 ^ (residualShift group + 1) * group := by
  have h1 : 254 * 254 / group < 2 ^ ((254 * 254 / group).log2 + 1) := Nat.lt_log2_self
  have h2 : 2 ^ ((254 * 254 / group).log2 + 1) ≤
      2 ^ (residualShift group + 1) * 2 ^ (residualShift group + 1) := by
    rw [← Nat.pow_add]
    exact two_pow_le_two_pow (by unfold residualShift; omega)
  exact (Nat.div_lt_iff_lt_mul h0).1 (Nat.lt_of_lt_of_le h1 h2)

/-- The norm shift leaves room: `127² · K ≤ 255² · 4^ν`. -/
theorem normShift_spec (columns : Nat) :
    127 * 127 * columns ≤ 255 * 255 * 4 ^ normShift columns := by
  have h : decide (127 * 127 * columns ≤ 255 * 255 * 4 ^ normShift columns) = true := by
    apply firstFrom_holds (p := fun ν => decide (127 * 127 * columns ≤ 255 * 255 * 4 ^ ν))
    apply decide_eq_true
    have h1 : columns < 2 ^ (columns.log2 + 1) := Nat.lt_log2_self
    have h2 : 2 ^ (columns.log2 + 1) ≤ 4 ^ (columns.log2 + 1) := Nat.pow_le_pow_left (by omega) _
    rw [Nat.zero_add]
    omega
  exact of_decide_eq_true h

/-- And it is the smallest that does. -/
theorem normShift_is_smallest {columns ν : Nat} (h : ν < normShift columns) :
    255 * 255 * 4 ^ ν < 127 * 127 * columns :=
  Nat.not_le.1 (of_decide_eq_false
    (firstFrom_is_first (p := fun ν => decide (127 * 127 * columns ≤ 255 * 255 * 4 ^ ν)) _ 0 ν
      (Nat.zero_le ν) h))

/-- **The residual codes fit int8**: `E ≤ 127`, for groups of at most `254²` columns. -/
theorem residual_codes_fit_int8 {B group : Nat} (h0 : 0 < group) (hg : group ≤ 254 * 254)
    {w : List Int} {E : Int} (h : E ∈ (quantizeRow B group w).residualCodes) : 0 ≤ E ∧ E ≤ 127 := by
  have hs := rowScale_pos B w
  generalize hsc : rowScale B w = s at hs
  have hn : 0 < s.toNat := by omega
  have en : (s.toNat : Int) = s := Int.toNat_of_nonneg (by omega)
  unfold quantizeRow at h
  rw [hsc] at h
  obtain ⟨e, he, rfl⟩ := List.mem_map.1 (show E ∈ (groups group (remainders s w
    (w.map fun x => nearestEven x s))).map fun e =>
      (normCodeOf (2 ^ residualShift group) s.toNat e : Int) from h)
  refine ⟨Int.natCast_nonneg _, Int.ofNat_le.2 (normCodeOf_le (c := 127) hn ?_)⟩
  have b : ∀ x, x ∈ e.map (2 * ·) → (x.natAbs : Int) ≤ s := by
    intro x hx
    obtain ⟨y, hy, rfl⟩ := List.mem_map.1 hx
    have := residual_le_half_scale hs (mem_of_mem_blocksOf h0 he hy)
    omega
  have h1 := sumSq_le_of_bounded b
  rw [sumSq_double, List.length_map] at h1
  have h2 := length_le_of_mem_blocksOf he
  have hss : 0 ≤ s * s := square_nonneg s
  have h3 := Int.mul_le_mul_of_nonneg_right (Int.ofNat_le.2 h2) hss
  have h4 := Int.ofNat_le.2 (residualShift_spec h0 hg)
  generalize 2 ^ residualShift group = p at *
  have hp := square_nonneg (p : Int)
  have h5 := Int.mul_le_mul_of_nonneg_left (Int.le_trans h1 h3) hp
  have h6 := Int.mul_le_mul_of_nonneg_right h4 hss
  rw [en]
  simp only [Int.natCast_mul] at h6
  have e1 : (p : Int) * p * (4 * sumSq e) = 4 * ((p : Int) * p * sumSq e) := by ac_rfl
  have e2 : (p : Int) * p * ((group : Int) * (s * s)) = (p : Int) * p * group * (s * s) := by ac_rfl
  have e3 : (((127 : Nat) : Int) * s) * (((127 : Nat) : Int) * s) = 16129 * (s * s) := by
    rw [square_mul]; rfl
  have e4 : ((254 : Nat) : Int) * ((254 : Nat) : Int) * (s * s) = 64516 * (s * s) := rfl
  omega

/-- **The norm code fits uint8**: `X ≤ 255`. -/
theorem norm_code_fits_uint8 (B group : Nat) (w : List Int) :
    0 ≤ (quantizeRow B group w).normCode ∧ (quantizeRow B group w).normCode ≤ 255 := by
  have hs := rowScale_pos B w
  have hw : ∀ x, x ∈ w → (x.natAbs : Int) ≤ 127 * rowScale B w := fun x h => weight_le_127_scales h
  refine ⟨Int.natCast_nonneg _, ?_⟩
  show (normCodeOf 1 (2 ^ normShift w.length * (rowScale B w).toNat) w : Int) ≤ 255
  generalize rowScale B w = s at hs hw
  have hn : 0 < s.toNat := by omega
  have en : (s.toNat : Int) = s := Int.toNat_of_nonneg (by omega)
  refine Int.ofNat_le.2 (normCodeOf_le (c := 255) (Nat.mul_pos (Nat.two_pow_pos _) hn) ?_)
  have h1 := sumSq_le_of_bounded hw
  have h2 := normShift_spec w.length
  rw [show 4 = 2 * 2 from rfl, Nat.mul_pow] at h2
  have h3 := Int.mul_le_mul_of_nonneg_right (Int.ofNat_le.2 h2) (square_nonneg s)
  generalize 2 ^ normShift w.length = p at *
  simp only [Int.natCast_mul, en] at h3 ⊢
  have e1 : ((1 : Nat) : Int) * ((1 : Nat) : Int) * sumSq w = sumSq w := by
    rw [show ((1 : Nat) : Int) = 1 from rfl, Int.one_mul, Int.one_mul]
  have e2 : (w.length : Int) * (127 * s * (127 * s)) =
      ((127 : Nat) : Int) * ((127 : Nat) : Int) * w.length * (s * s) := by
    show _ = (127 : Int) * 127 * _ * _
    ac_rfl
  have e3 : ((255 : Nat) : Int) * ((p : Int) * s) * (((255 : Nat) : Int) * ((p : Int) * s)) =
      ((255 : Nat) : Int) * ((255 : Nat) : Int) * ((p : Int) * p) * (s * s) := by ac_rfl
  omega

/-- The residuals of a row: `4 · Σ e² ≤ K · s²`. -/
theorem sumSq_of_residuals_le {s : Int} (hs : 0 < s) (w : List Int) :
    4 * sumSq (remainders s w (w.map fun x => nearestEven x s)) ≤ (w.length : Int) * (s * s) := by
  have b : ∀ x, x ∈ (remainders s w (w.map fun x => nearestEven x s)).map (2 * ·) →
      (x.natAbs : Int) ≤ s := by
    intro x hx
    obtain ⟨y, hy, rfl⟩ := List.mem_map.1 hx
    have := residual_le_half_scale hs hy
    omega
  have h := sumSq_le_of_bounded b
  rw [sumSq_double, List.length_map, length_remainders _ _ _ (by rw [List.length_map])] at h
  exact h

/-- **No row of codes exceeds the code norm bound**: `Σ q² ≤ Q²` for `Q` from any upper bound of the
norm codes. -/
theorem codes_within_norm_bound {B group : Nat} {w : List Int} {maxNormCode : Int}
    (hX : (quantizeRow B group w).normCode ≤ maxNormCode) :
    sumSq (quantizeRow B group w).codes ≤
      codeNormBound w.length maxNormCode * codeNormBound w.length maxNormCode := by
  have enc := quantizeRow_encodes B group w
  have hs : 0 < rowScale B w := rowScale_pos B w
  have hw := enc.norm_covered
  have hX0 := enc.norm_code_nonneg
  have he := sumSq_of_residuals_le hs w
  have e1 : (quantizeRow B group w).scale = rowScale B w := rfl
  have e2 : (quantizeRow B group w).codes = w.map fun x => nearestEven x (rowScale B w) := rfl
  rw [e1] at hw
  rw [e2]
  unfold codeNormBound
  have hv := two_pow_cast_pos (normShift w.length)
  generalize ((2 ^ normShift w.length : Nat) : Int) = v at *
  generalize (quantizeRow B group w).normCode = X at *
  generalize rowScale B w = s at *
  generalize hq : (w.map fun x => nearestEven x s) = q at *
  have hlen : w.length = q.length := by rw [← hq, List.length_map]
  have hc1 := le_ceilSqrt_square (ceilDiv w.length 4)
  have hc2 := le_ceilDiv_mul w.length (show 0 < 4 by omega)
  have hc0 := Int.natCast_nonneg (ceilSqrt (ceilDiv w.length 4))
  have hc : (w.length : Int) ≤ 4 * ((ceilSqrt (ceilDiv w.length 4) : Int) * ceilSqrt (ceilDiv w.length 4)) := by
    rw [← Int.natCast_mul]
    omega
  generalize (ceilSqrt (ceilDiv w.length 4) : Int) = c at *
  have hcs : 0 ≤ c * s := Int.mul_nonneg hc0 (Int.le_of_lt hs)
  have hn : 0 ≤ X * (v * s) := Int.mul_nonneg hX0 (Int.mul_nonneg (Int.le_of_lt hv) (Int.le_of_lt hs))
  have res : sumSq (remainders s w q) ≤ c * s * (c * s) := by
    have m := Int.mul_le_mul_of_nonneg_right hc (square_nonneg s)
    rw [square_mul c s]
    rw [Int.mul_assoc] at m
    omega
  have k := norm_of_codes_le hn hcs hlen hw res
  have mono : X * (v * s) + c * s ≤ (v * maxNormCode + c) * s := by
    have m := Int.mul_le_mul_of_nonneg_left hX (Int.mul_nonneg (Int.le_of_lt hv) (Int.le_of_lt hs))
    have f1 : X * (v * s) = v * s * X := Int.mul_comm _ _
    have f2 : v * maxNormCode * s = v * s * maxNormCode := by ac_rfl
    rw [Int.add_mul]
    omega
  have sq := square_le_square (by omega) mono
  rw [square_mul (v * maxNormCode + c) s] at sq
  have pos : 0 < s * s := Int.mul_pos hs hs
  apply le_of_scaled_le pos
  rw [Int.mul_comm (s * s) ((v * maxNormCode + c) * (v * maxNormCode + c))]
  omega

end CertHead.Enclosure
