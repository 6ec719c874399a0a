import CertHead.Enclosure.Limbs
import CertHead.Enclosure.QuantizeProperties

/-!
# The limbs: exact digits, covered norms, and codes that fit their bytes
-/

namespace CertHead.Enclosure

/-! ## Digits -/

/-- The limbs give the tick back. -/
theorem limbs_join (limbs : LimbCount) (t : Int) : 256 * highLimb limbs t + lowLimb limbs t = t := by
  unfold lowLimb
  omega

/-- **The low limb fits int8**: always for two limbs, for one limb if the tick does. -/
theorem low_limb_fits_int8 (limbs : LimbCount) {t : Int} (h : limbs = .one → (t.natAbs : Int) ≤ 127) :
    -128 ≤ lowLimb limbs t ∧ lowLimb limbs t ≤ 127 := by
  cases limbs with
  | one =>
    have := h rfl
    show -128 ≤ t - 256 * 0 ∧ t - 256 * 0 ≤ 127
    omega
  | two =>
    show -128 ≤ t - 256 * ((t + 128) / 256) ∧ t - 256 * ((t + 128) / 256) ≤ 127
    omega

/-- **The high limb is within ±64** for every `|t| ≤ 16320`. -/
theorem high_limb_within_64 (limbs : LimbCount) {t : Int} (h : (t.natAbs : Int) ≤ 16320) :
    -64 ≤ highLimb limbs t ∧ highLimb limbs t ≤ 64 := by
  cases limbs with
  | one => show -64 ≤ (0 : Int) ∧ (0 : Int) ≤ 64; omega
  | two => show -64 ≤ (t + 128) / 256 ∧ (t + 128) / 256 ≤ 64; omega

theorem joinLimbs_of_limbs (limbs : LimbCount) : ∀ t : List Int,
    joinLimbs (t.map (highLimb limbs)) (t.map (lowLimb limbs)) = t
  | [] => rfl
  | t :: ts => by
    simp only [List.map_cons, joinLimbs, limbs_join, joinLimbs_of_limbs limbs ts]

theorem length_joinLimbs : ∀ as bs : List Int, as.length = bs.length →
    (joinLimbs as bs).length = as.length
  | [], _, _ => rfl
  | _ :: _, [], h => by simp only [List.length_cons, List.length_nil] at h; omega
  | a :: as, b :: bs, h => by
    simp only [List.length_cons] at h
    simp only [joinLimbs, List.length_cons, length_joinLimbs as bs (by omega)]

/-- Two int8 products make the wide one: `Σ q t = 256 · Σ q a + Σ q b`. -/
theorem dot_of_joinLimbs : ∀ q as bs : List Int, as.length = bs.length →
    dot q (joinLimbs as bs) = 256 * dot q as + dot q bs
  | [], as, bs, _ => by simp only [dot]; omega
  | _ :: _, [], [], _ => by simp only [joinLimbs, dot]; omega
  | q :: qs, a :: as, b :: bs, h => by
    simp only [List.length_cons] at h
    have ih := dot_of_joinLimbs qs as bs (by omega)
    have e : q * (256 * a + b) = 256 * (q * a) + q * b := by
      rw [Int.mul_add, Int.mul_left_comm]
    simp only [joinLimbs, dot, ih, e]
    omega

/-! ## Soundness -/

/-- Codes `⌈T/2^τ⌉` of rounded-up roots cover their groups. -/
theorem groupCodes_cover (d : Nat) (hd : 0 < d) : ∀ gs : List (List Int),
    NormsCovered 1 (d : Int) gs ((rootsUp gs).map fun T => (ceilDiv T d : Int))
  | [] => True.intro
  | g :: gs => by
    refine ⟨Int.natCast_nonneg _, ?_, groupCodes_cover d hd gs⟩
    have h1 := sumSq_le_square_of_ceilSqrt g
    have h2 := Int.ofNat_le.2 (le_ceilDiv_mul (ceilSqrt (sumSq g).toNat) hd)
    rw [Int.natCast_mul] at h2
    have h3 := square_le_square (Int.natCast_nonneg _) h2
    rw [Int.one_mul, Int.one_mul]
    exact Int.le_trans h1 h3

/-- The code of a remainder covers it: `2^8 · |r| ≤ code · u`. -/
theorem remainderCode_covers {u : Int} (hu : 0 < u) (r : Int) :
    2 ^ 8 * (r.natAbs : Int) ≤ remainderCode u r * u := by
  have h := Int.ofNat_le.2 (le_ceilDiv_mul (2 ^ 8 * r.natAbs) (show 0 < u.toNat by omega))
  rw [Int.natCast_mul, Int.natCast_mul, Int.toNat_of_nonneg (show 0 ≤ u by omega)] at h
  exact h

/-- Hence the norm of the remainders is covered by the norm of their codes. -/
theorem sumSq_of_remainders_le {u : Int} (hu : 0 < u) : ∀ rs : List Int,
    2 ^ 8 * 2 ^ 8 * sumSq rs ≤ sumSq (rs.map (remainderCode u)) * (u * u)
  | [] => by simp only [List.map_nil, sumSq]; omega
  | r :: rs => by
    have ih := sumSq_of_remainders_le hu rs
    have h := square_le_square (by omega) (remainderCode_covers hu r)
    rw [square_mul, square_mul, square_of_magnitude] at h
    simp only [List.map_cons, sumSq, Int.add_mul]
    omega

/-- The search for the group shift starts at `ρ`. -/
theorem groupShiftOf_ge (ρ : Nat) (roots : List Nat) : ρ ≤ groupShiftOf ρ roots :=
  start_le_firstFrom _ _

/-- **Any positive unit and any ticks are sound**: whatever unit, ticks, group size, shifts and `γ` are
chosen, the codes that `limbsOfTicks` computes encode the position. -/
theorem any_unit_and_ticks_are_sound (limbs : LimbCount) {u : Int} (hu : 0 < u)
    (group ρ ν gammaNum : Nat) {h t : List Int} (one_tick_per_input : h.length = t.length) :
    LimbsEncode group ρ ν gammaNum h (limbsOfTicks limbs u group ρ ν gammaNum h t) := by
  have ht := joinLimbs_of_limbs limbs t
  refine ⟨hu, ?_, ?_, groupShiftOf_ge ρ _, ?_, Int.natCast_nonneg _, ?_, Int.natCast_nonneg _, ?_⟩
  · show h.length = (t.map (highLimb limbs)).length
    rw [List.length_map, one_tick_per_input]
  · show h.length = (t.map (lowLimb limbs)).length
    rw [List.length_map, one_tick_per_input]
  · simp only [limbsOfTicks, ht]
    exact groupCodes_cover _ (Nat.two_pow_pos _) _
  · simp only [limbsOfTicks, ht]
    exact sumSq_le_square_of_ceilSqrt t
  · simp only [limbsOfTicks, ht]
    generalize groupShiftOf ρ (rootsUp (groups group t)) = τ
    refine ⟨(ceilSqrt (sumSq ((remainders u h t).map (remainderCode u))).toNat : Int),
      Int.natCast_nonneg _, ?_, ?_⟩
    · rw [square_mul]
      exact Int.le_trans (sumSq_of_remainders_le hu _) (Int.mul_le_mul_of_nonneg_right
        (sumSq_le_square_of_ceilSqrt _) (square_nonneg u))
    · generalize ceilSqrt (sumSq t).toNat = N
      generalize ceilSqrt (sumSq ((remainders u h t).map (remainderCode u))).toNat = R
      have k := Int.ofNat_le.2 (le_ceilDiv_mul
        ((2 ^ 40 * R + gammaNum * (2 ^ 8 * N + R)) * 2 ^ ν)
        (Nat.mul_pos (Nat.two_pow_pos 48) (Nat.two_pow_pos (τ - ρ))))
      simp only [Int.natCast_mul, Int.natCast_add] at k
      exact k

/-- The unit is positive. -/
theorem unitOf_pos (limbs : LimbCount) (B : Nat) (h : List Int) : 0 < unitOf limbs B h :=
  two_pow_cast_pos _

/-- The unit is at least `2^-40`. -/
theorem unitOf_ge_smallest (limbs : LimbCount) (B : Nat) (h : List Int) :
    ((2 ^ (B - 40) : Nat) : Int) ≤ unitOf limbs B h :=
  Int.ofNat_le.2 (two_pow_le_two_pow (Nat.le_max_right _ _))

/-- **The codes of a position encode it.** -/
theorem limbsOf_encodes (limbs : LimbCount) (B group gammaNum : Nat) (h : List Int) :
    LimbsEncode group (residualShift group) (normShift h.length) gammaNum h
      (limbsOf limbs B group gammaNum h) :=
  any_unit_and_ticks_are_sound limbs (unitOf_pos limbs B h) group _ _ gammaNum
    (by rw [List.length_map])

/-! ## Widths -/

/-- Every input is below `2^(bits+1)` units: 128 for one limb, 16384 for two. -/
theorem input_lt_units {limbs : LimbCount} {B : Nat} {h : List Int} {x : Int} (hx : x ∈ h) :
    (x.natAbs : Int) < ((2 ^ (limbs.unitBits + 1) : Nat) : Int) * unitOf limbs B h := by
  have h1 := magnitude_le_maxAbs hx
  have h2 : maxAbs h < 2 ^ ((maxAbs h).log2 + 1) := Nat.lt_log2_self
  have h3 : 2 ^ ((maxAbs h).log2 + 1) ≤ 2 ^ (limbs.unitBits + 1) *
      2 ^ max ((maxAbs h).log2 - limbs.unitBits) (B - 40) := by
    rw [← Nat.pow_add]
    exact two_pow_le_two_pow (by omega)
  unfold unitOf
  rw [← Int.natCast_mul]
  omega

/-- A number below `2^(L+1)` with at most eight significant bits is at most `255 · 2^(L-7)`, here
`2^7·m·2^e ≤ 255·2^L`. -/
theorem eight_bits_leave_room {m e : Nat} (hm : m < 256) (h0 : 0 < m) :
    128 * (m * 2 ^ e) ≤ 255 * 2 ^ (m * 2 ^ e).log2 := by
  have hne : m ≠ 0 := by omega
  have h1 := Nat.log2_self_le hne
  have h2 : m < 2 ^ (m.log2 + 1) := Nat.lt_log2_self
  have h7 : m.log2 ≤ 7 := by
    have := (Nat.log2_lt hne).2 (show m < 2 ^ 8 from hm)
    omega
  have hl : m.log2 + e ≤ (m * 2 ^ e).log2 := by
    apply (Nat.le_log2 (Nat.ne_of_gt (Nat.mul_pos h0 (Nat.two_pow_pos e)))).2
    rw [Nat.pow_add]
    exact Nat.mul_le_mul_right _ h1
  have h3 : 128 * m ≤ 255 * 2 ^ m.log2 := by
    rw [Nat.pow_succ] at h2
    have hp : 2 ^ m.log2 ≤ 2 ^ 7 := two_pow_le_two_pow h7
    omega
  have h4 := Nat.mul_le_mul_right (2 ^ e) h3
  have h5 : 2 ^ m.log2 * 2 ^ e ≤ 2 ^ (m * 2 ^ e).log2 := by
    rw [← Nat.pow_add]; exact Nat.pow_le_pow_right (by omega) hl
  rw [Nat.mul_assoc, Nat.mul_assoc] at h4
  omega

/-- **An input that BF16 can hold is at most 16320 units of two limbs**: `m · 2^e` with `m < 256` is the
largest magnitude. -/
theorem input_le_16320_units {B : Nat} {h : List Int} {m e : Nat} (hm : m < 256)
    (largest_is : maxAbs h = m * 2 ^ e) {x : Int} (hx : x ∈ h) :
    (x.natAbs : Int) ≤ 16320 * unitOf .two B h := by
  have h1 := magnitude_le_maxAbs hx
  have hu : 2 ^ ((maxAbs h).log2 - 13) ≤ 2 ^ max ((maxAbs h).log2 - 13) (B - 40) :=
    two_pow_le_two_pow (Nat.le_max_left _ _)
  show _ ≤ 16320 * ((2 ^ max ((maxAbs h).log2 - 13) (B - 40) : Nat) : Int)
  generalize 2 ^ max ((maxAbs h).log2 - 13) (B - 40) = u at *
  by_cases h0 : m = 0
  · rw [h0, Nat.zero_mul] at largest_is
    omega
  · have k := eight_bits_leave_room (e := e) hm (by omega)
    rw [← largest_is] at k
    have s : 2 ^ (maxAbs h).log2 ≤ 2 ^ ((maxAbs h).log2 - 13) * 2 ^ 13 := by
      rw [← Nat.pow_add]; exact two_pow_le_two_pow (by omega)
    omega

/-- **The ticks stay within 127 for one limb and 16320 for two**, so that low limbs fit int8 and high
limbs stay within ±64. -/
theorem ticks_bounded {limbs : LimbCount} {B : Nat} {h : List Int} {m e : Nat} (hm : m < 256)
    (largest_is : maxAbs h = m * 2 ^ e) {t : Int} (ht : t ∈ h.map (tickOf limbs (unitOf limbs B h))) :
    (limbs = .one → (t.natAbs : Int) ≤ 127) ∧ (t.natAbs : Int) ≤ 16320 := by
  obtain ⟨x, hx, rfl⟩ := List.mem_map.1 ht
  cases limbs with
  | one =>
    have k : ((tickOf .one (unitOf .one B h) x).natAbs : Int) ≤ 127 := by
      show ((max (-127) (min 127 (nearestEven x (unitOf .one B h)))).natAbs : Int) ≤ 127
      omega
    exact ⟨fun _ => k, by omega⟩
  | two =>
    have k := nearestEven_bounded (unitOf_pos .two B h) (input_le_16320_units (B := B) hm largest_is hx)
    exact ⟨fun e => LimbCount.noConfusion e, k⟩

/-- The largest magnitude is that of an element, or zero. -/
theorem maxAbs_attained : ∀ h : List Int, maxAbs h = 0 ∨ ∃ x, x ∈ h ∧ x.natAbs = maxAbs h
  | [] => Or.inl rfl
  | x :: xs => by
    simp only [maxAbs]
    by_cases c : maxAbs xs ≤ x.natAbs
    · exact Or.inr ⟨x, List.mem_cons_self, by omega⟩
    · cases maxAbs_attained xs with
      | inl z => omega
      | inr k =>
        obtain ⟨y, hy, e⟩ := k
        exact Or.inr ⟨y, List.mem_cons_of_mem x hy, by omega⟩

/-- The largest magnitude of BF16 values has at most eight significant bits. -/
theorem largest_has_eight_bits {B : Nat} {h : List Int}
    (bf16_values : ∀ x, x ∈ h → Representable (bf16.grid B) x) :
    ∃ m e, m < 256 ∧ maxAbs h = m * 2 ^ e := by
  cases maxAbs_attained h with
  | inl z => exact ⟨0, 0, by omega, by omega⟩
  | inr k =>
    obtain ⟨x, hx, e⟩ := k
    have lt := lt_two_pow_quantumExp_add_prec (bf16.grid B) x.natAbs
    obtain ⟨q, hq⟩ := bf16_values x hx
    unfold Grid.quantum at hq
    have n : x.natAbs = q.natAbs * 2 ^ (bf16.grid B).quantumExp x.natAbs := by
      have := congrArg Int.natAbs hq
      rw [Int.natAbs_mul, Int.natAbs_natCast, Nat.mul_comm] at this
      exact this
    have lt' : x.natAbs < 2 ^ 8 * 2 ^ (bf16.grid B).quantumExp x.natAbs := by
      rw [Nat.mul_comm, ← Nat.pow_add]
      exact lt
    generalize (bf16.grid B).quantumExp x.natAbs = k at *
    refine ⟨q.natAbs, k, ?_, by omega⟩
    rw [n] at lt'
    exact Nat.lt_of_mul_lt_mul_right lt'

/-- **The limbs of a BF16 position fit**: high limbs within ±64, low limbs in int8. -/
theorem limbs_fit_int8 {limbs : LimbCount} {B group gammaNum : Nat} {h : List Int}
    (bf16_values : ∀ x, x ∈ h → Representable (bf16.grid B) x) :
    (∀ a, a ∈ (limbsOf limbs B group gammaNum h).hi → -64 ≤ a ∧ a ≤ 64) ∧
      ∀ b, b ∈ (limbsOf limbs B group gammaNum h).lo → -128 ≤ b ∧ b ≤ 127 := by
  obtain ⟨m, e, hm, largest_is⟩ := largest_has_eight_bits bf16_values
  constructor
  · intro a ha
    obtain ⟨t, ht, rfl⟩ := List.mem_map.1
      (show a ∈ (h.map (tickOf limbs (unitOf limbs B h))).map (highLimb limbs) from ha)
    exact high_limb_within_64 limbs (ticks_bounded hm largest_is ht).2
  · intro b hb
    obtain ⟨t, ht, rfl⟩ := List.mem_map.1
      (show b ∈ (h.map (tickOf limbs (unitOf limbs B h))).map (lowLimb limbs) from hb)
    exact low_limb_fits_int8 limbs (ticks_bounded hm largest_is ht).1

/-- The remainder of a tick is at most half a unit for two limbs and at most one for one limb. -/
theorem remainder_le_unit {limbs : LimbCount} {u x : Int} (hu : 0 < u)
    (hx : (x.natAbs : Int) < ((2 ^ (limbs.unitBits + 1) : Nat) : Int) * u) :
    ((x - u * tickOf limbs u x).natAbs : Int) ≤ u := by
  have k := nearestEven_within_half x hu
  cases limbs with
  | two => show ((x - u * nearestEven x u).natAbs : Int) ≤ u; omega
  | one =>
    have hx' : (x.natAbs : Int) < 128 * u := hx
    show ((x - u * max (-127) (min 127 (nearestEven x u))).natAbs : Int) ≤ u
    generalize nearestEven x u = q at *
    by_cases c1 : 127 < q
    · have m := Int.mul_le_mul_of_nonneg_left (show 128 ≤ q by omega) (Int.le_of_lt hu)
      rw [show max (-127) (min 127 q) = 127 by omega]
      omega
    · by_cases c2 : q < -127
      · have m := Int.mul_le_mul_of_nonneg_left (show q ≤ -128 by omega) (Int.le_of_lt hu)
        rw [show max (-127) (min 127 q) = -127 by omega]
        omega
      · rw [show max (-127) (min 127 q) = q by omega]
        omega

/-- **The codes of the remainders stay within 256.** -/
theorem remainderCode_le_256 {u : Int} (hu : 0 < u) {r : Int} (hr : (r.natAbs : Int) ≤ u) :
    remainderCode u r ≤ 256 :=
  Int.ofNat_le.2 (ceilDiv_le (m := 256) (show 0 < u.toNat by omega) (by omega))

theorem le_largest {x : Nat} : ∀ {xs : List Nat}, x ∈ xs → x ≤ largest xs
  | y :: ys, h => by
    cases List.mem_cons.1 h with
    | inl e => subst e; simp only [largest]; omega
    | inr m => have := le_largest m; simp only [largest]; omega

/-- **The group codes fit int8**: `0 ≤ H ≤ 127`. -/
theorem group_codes_fit_int8 {limbs : LimbCount} {u : Int} {group ρ ν gammaNum : Nat} {h t : List Int}
    {H : Int} (hH : H ∈ (limbsOfTicks limbs u group ρ ν gammaNum h t).groupCodes) : 0 ≤ H ∧ H ≤ 127 := by
  simp only [limbsOfTicks] at hH
  generalize rootsUp (groups group t) = roots at hH
  obtain ⟨T, hT, rfl⟩ := List.mem_map.1 hH
  refine ⟨Int.natCast_nonneg _, Int.ofNat_le.2 ?_⟩
  have pos := Nat.two_pow_pos (groupShiftOf ρ roots)
  have big : decide (ceilDiv (largest roots) (2 ^ groupShiftOf ρ roots) ≤ 127) = true := by
    apply firstFrom_holds (p := fun τ => decide (ceilDiv (largest roots) (2 ^ τ) ≤ 127))
    apply decide_eq_true
    apply ceilDiv_le (Nat.two_pow_pos _)
    have h1 : largest roots < 2 ^ ((largest roots).log2 + 1) := Nat.lt_log2_self
    rw [Nat.pow_succ] at h1
    have h2 : 2 ^ (largest roots).log2 ≤ 2 ^ (ρ + (largest roots).log2) :=
      two_pow_le_two_pow (by omega)
    omega
  have h3 := (ceilDiv_le_iff pos).1 (of_decide_eq_true big)
  exact ceilDiv_le pos (Nat.le_trans (le_largest hT) h3)

/-- The group shift is the smallest: every smaller one from `ρ` on makes some code exceed 127. -/
theorem groupShiftOf_is_smallest {ρ τ : Nat} {roots : List Nat} (h : ρ ≤ τ)
    (k : τ < groupShiftOf ρ roots) : 127 < ceilDiv (largest roots) (2 ^ τ) := by
  have := firstFrom_is_first (p := fun τ => decide (ceilDiv (largest roots) (2 ^ τ) ≤ 127))
    _ ρ τ h k
  exact Nat.not_le.1 (of_decide_eq_false this)

end CertHead.Enclosure
