import CertHead.Basic
import CertHead.Float.Round
/-!
# What rounding does

For an arbitrary grid with at least one significand bit. `Instances` names the four formats.
-/

namespace CertHead

/-! ## The spacing -/

/-- The spacing grows with magnitude (exponent form). -/
theorem quantumExp_mono (g : Grid) {m n : Nat} (h : m ≤ n) : g.quantumExp m ≤ g.quantumExp n := by
  have hl := log2_le_log2 h
  unfold Grid.quantumExp
  omega

/-- **The spacing of the grid grows with magnitude.** -/
theorem quantum_mono (g : Grid) {m n : Nat} (h : m ≤ n) : g.quantum m ≤ g.quantum n :=
  two_pow_le_two_pow (quantumExp_mono g h)

theorem quantum_pos (g : Grid) (n : Nat) : 0 < g.quantum n := Nat.two_pow_pos _

theorem quantum_cast_pos (g : Grid) (n : Nat) : (0 : Int) < (g.quantum n : Int) := two_pow_cast_pos _

theorem quantum_dvd_quantum (g : Grid) {m n : Nat} (h : m ≤ n) :
    (g.quantum m : Int) ∣ (g.quantum n : Int) :=
  two_pow_dvd_two_pow (quantumExp_mono g h)

/-- A magnitude is below `2^prec` spacings. -/
theorem lt_two_pow_quantumExp_add_prec (g : Grid) (n : Nat) : n < 2 ^ (g.quantumExp n + g.prec) := by
  refine Nat.lt_of_lt_of_le (Nat.lt_log2_self (n := n)) (two_pow_le_two_pow ?_)
  unfold Grid.quantumExp
  omega

/-- Any multiple of `2^e`, `e ≥ qmin`, of magnitude at most `2^(e+prec)` is on the grid. -/
theorem representable_of_two_pow_dvd {g : Grid} (hp : 1 ≤ g.prec) {e : Nat} {z : Int}
    (he : g.qmin ≤ e) (hd : ((2 ^ e : Nat) : Int) ∣ z) (hz : z.natAbs ≤ 2 ^ (e + g.prec)) :
    Representable g z := by
  unfold Representable Grid.quantum
  by_cases h0 : z.natAbs = 0
  · rw [Int.natAbs_eq_zero.1 h0]
    exact Int.dvd_zero _
  by_cases hlt : z.natAbs < 2 ^ (e + g.prec)
  · have hl := (Nat.log2_lt h0).2 hlt
    refine Int.dvd_trans (two_pow_dvd_two_pow ?_) hd
    unfold Grid.quantumExp
    omega
  · have heq : z.natAbs = 2 ^ (e + g.prec) := by omega
    rw [heq]
    refine Int.dvd_natAbs.1 ?_
    rw [heq]
    refine two_pow_dvd_two_pow ?_
    unfold Grid.quantumExp
    rw [Nat.log2_two_pow]
    omega

/-- Every power of two that is no finer than the smallest subnormal is on the grid. -/
theorem representable_two_pow {g : Grid} (hp : 1 ≤ g.prec) {e : Nat} (he : g.qmin ≤ e) :
    Representable g ((2 ^ e : Nat) : Int) :=
  representable_of_two_pow_dvd hp he (Int.dvd_refl _)
    (by rw [Int.natAbs_natCast]; exact two_pow_le_two_pow (by omega))

theorem representable_zero (g : Grid) : Representable g 0 := Int.dvd_zero _

theorem representable_neg {g : Grid} {x : Int} (h : Representable g x) : Representable g (-x) := by
  unfold Representable at h ⊢
  rw [Int.natAbs_neg]
  exact Int.dvd_neg.2 h

theorem representable_neg_iff {g : Grid} {x : Int} : Representable g (-x) ↔ Representable g x :=
  ⟨fun h => by have := representable_neg h; rwa [Int.neg_neg] at this, representable_neg⟩

/-- Every multiple of the spacing at `x`, of magnitude at most that of the next spacing multiple
beyond `x`, is on the grid. -/
theorem representable_of_quantum_dvd {g : Grid} (hp : 1 ≤ g.prec) {x z : Int}
    (hd : (g.quantum x.natAbs : Int) ∣ z) (hz : z.natAbs < x.natAbs + g.quantum x.natAbs) :
    Representable g z := by
  refine representable_of_two_pow_dvd (e := g.quantumExp x.natAbs) hp (Nat.le_max_left _ _) hd ?_
  have hx := lt_two_pow_quantumExp_add_prec g x.natAbs
  have hdn : (g.quantum x.natAbs) ∣ z.natAbs := Int.ofNat_dvd_left.1 hd
  have hdt : (g.quantum x.natAbs) ∣ 2 ^ (g.quantumExp x.natAbs + g.prec) :=
    Nat.pow_dvd_pow 2 (Nat.le_add_right _ _)
  refine Nat.le_of_not_lt fun hlt => ?_
  have hle := add_le_of_dvd_of_lt (Int.natCast_dvd_natCast.2 hdt)
    (Int.natCast_dvd_natCast.2 hdn) (by omega)
  omega

/-! ## Directed rounding -/

theorem roundDown_eq (g : Grid) (x : Int) : roundDown g x = x - x % (g.quantum x.natAbs : Int) :=
  floor_mul_eq _ _

theorem roundUp_eq_neg (g : Grid) (x : Int) : roundUp g x = -(roundDown g (-x)) := rfl

/-- **Rounding down never goes up.** -/
theorem roundDown_le (g : Grid) (x : Int) : roundDown g x ≤ x :=
  floor_mul_le (quantum_cast_pos g _) x

theorem lt_roundDown_add_quantum (g : Grid) (x : Int) : x < roundDown g x + g.quantum x.natAbs :=
  lt_floor_mul_add (quantum_cast_pos g _) x

/-- **Rounding up never goes down.** -/
theorem le_roundUp (g : Grid) (x : Int) : x ≤ roundUp g x := by
  have h := roundDown_le g (-x)
  rw [roundUp_eq_neg]
  omega

theorem roundUp_lt_add_quantum (g : Grid) (x : Int) : roundUp g x < x + g.quantum x.natAbs := by
  have h := lt_roundDown_add_quantum g (-x)
  rw [Int.natAbs_neg] at h
  rw [roundUp_eq_neg]
  omega

theorem quantum_dvd_roundDown (g : Grid) (x : Int) : (g.quantum x.natAbs : Int) ∣ roundDown g x :=
  Int.dvd_mul_left _ _

theorem quantum_dvd_roundUp (g : Grid) (x : Int) : (g.quantum x.natAbs : Int) ∣ roundUp g x := by
  have h := quantum_dvd_roundDown g (-x)
  rw [Int.natAbs_neg] at h
  exact Int.dvd_neg.2 h

/-- **The result of rounding down is on the grid.** -/
theorem roundDown_representable {g : Grid} (hp : 1 ≤ g.prec) (x : Int) :
    Representable g (roundDown g x) := by
  refine representable_of_quantum_dvd (x := x) hp (quantum_dvd_roundDown g x) ?_
  have h₁ := roundDown_le g x
  have h₂ := lt_roundDown_add_quantum g x
  by_cases h0 : 0 ≤ x
  · have := le_floor_mul_of_dvd (quantum_cast_pos g x.natAbs) (Int.dvd_zero _) h0
    have h₃ : 0 ≤ roundDown g x := this
    have := quantum_pos g x.natAbs
    omega
  · omega

/-- **The result of rounding up is on the grid.** -/
theorem roundUp_representable {g : Grid} (hp : 1 ≤ g.prec) (x : Int) :
    Representable g (roundUp g x) :=
  representable_neg (roundDown_representable hp (-x))

/-- **Rounding down is the best lower bound:** no value of the grid lies between. -/
theorem le_roundDown_of_representable {g : Grid} (hp : 1 ≤ g.prec) {x z : Int}
    (hz : Representable g z) (hzx : z ≤ x) : z ≤ roundDown g x := by
  by_cases hqe : g.quantumExp x.natAbs ≤ g.quantumExp z.natAbs
  · exact le_floor_mul_of_dvd (quantum_cast_pos g _)
      (Int.dvd_trans (two_pow_dvd_two_pow hqe) hz) hzx
  · -- `z` has a finer spacing, so a power of two separates it from `x`.
    have hx0 : x.natAbs ≠ 0 := fun h => by
      rw [h] at hqe
      exact hqe (quantumExp_mono g (Nat.zero_le _))
    have hlog : x.natAbs.log2 + 1 - g.prec > g.qmin := by
      unfold Grid.quantumExp at hqe
      omega
    have hexp : g.quantumExp x.natAbs ≤ x.natAbs.log2 := by
      unfold Grid.quantumExp
      omega
    have hlow : 2 ^ x.natAbs.log2 ≤ x.natAbs := Nat.log2_self_le hx0
    have hzlow : z.natAbs < 2 ^ x.natAbs.log2 := by
      refine Nat.lt_of_not_le fun hle => ?_
      have hz0 : z.natAbs ≠ 0 := by
        have := Nat.two_pow_pos x.natAbs.log2
        omega
      have := (Nat.le_log2 hz0).2 hle
      unfold Grid.quantumExp at hqe
      omega
    have hpos : 0 ≤ x := by omega
    have := le_floor_mul_of_dvd (quantum_cast_pos g x.natAbs) (two_pow_dvd_two_pow hexp)
      (show ((2 ^ x.natAbs.log2 : Nat) : Int) ≤ x by omega)
    have h : ((2 ^ x.natAbs.log2 : Nat) : Int) ≤ roundDown g x := this
    omega

/-- **Rounding up is the best upper bound:** no value of the grid lies between. -/
theorem roundUp_le_of_representable {g : Grid} (hp : 1 ≤ g.prec) {x z : Int}
    (hz : Representable g z) (hxz : x ≤ z) : roundUp g x ≤ z := by
  have h := le_roundDown_of_representable hp (x := -x) (representable_neg hz) (by omega)
  rw [roundUp_eq_neg]
  omega

/-- **Rounding down fixes the values of the grid.** -/
theorem roundDown_of_representable {g : Grid} {x : Int} (h : Representable g x) :
    roundDown g x = x := floor_mul_of_dvd h

/-- **Rounding up fixes the values of the grid.** -/
theorem roundUp_of_representable {g : Grid} {x : Int} (h : Representable g x) :
    roundUp g x = x := by
  rw [roundUp_eq_neg, roundDown_of_representable (representable_neg h), Int.neg_neg]

/-- **Rounding down is monotone.** -/
theorem roundDown_mono {g : Grid} (hp : 1 ≤ g.prec) {x y : Int} (h : x ≤ y) :
    roundDown g x ≤ roundDown g y :=
  le_roundDown_of_representable hp (roundDown_representable hp x) (Int.le_trans (roundDown_le g x) h)

/-- **Rounding up is monotone.** -/
theorem roundUp_mono {g : Grid} (hp : 1 ≤ g.prec) {x y : Int} (h : x ≤ y) :
    roundUp g x ≤ roundUp g y :=
  roundUp_le_of_representable hp (roundUp_representable hp y) (Int.le_trans h (le_roundUp g y))

/-- **Rounding down is idempotent.** -/
theorem roundDown_idem {g : Grid} (hp : 1 ≤ g.prec) (x : Int) :
    roundDown g (roundDown g x) = roundDown g x :=
  roundDown_of_representable (roundDown_representable hp x)

/-- **Rounding up is idempotent.** -/
theorem roundUp_idem {g : Grid} (hp : 1 ≤ g.prec) (x : Int) :
    roundUp g (roundUp g x) = roundUp g x :=
  roundUp_of_representable (roundUp_representable hp x)

/-- **Rounding down and up are mirror images.** -/
theorem roundDown_neg (g : Grid) (x : Int) : roundDown g (-x) = -(roundUp g x) := by
  rw [roundUp_eq_neg, Int.neg_neg]

/-- **Rounding up and down are mirror images.** -/
theorem roundUp_neg (g : Grid) (x : Int) : roundUp g (-x) = -(roundDown g x) := by
  rw [roundUp_eq_neg, Int.neg_neg]

theorem roundDown_zero (g : Grid) : roundDown g 0 = 0 :=
  roundDown_of_representable (representable_zero g)

theorem roundUp_zero (g : Grid) : roundUp g 0 = 0 :=
  roundUp_of_representable (representable_zero g)

/-- **The directed modes bracket:** `roundDown x ≤ x ≤ roundUp x`. -/
theorem directed_rounding_brackets (g : Grid) (x : Int) : roundDown g x ≤ x ∧ x ≤ roundUp g x :=
  ⟨roundDown_le g x, le_roundUp g x⟩

/-- Off the grid the two directed results are exactly one spacing apart. -/
theorem roundUp_eq_roundDown_add_quantum {g : Grid} {x : Int} (h : ¬ Representable g x) :
    roundUp g x = roundDown g x + g.quantum x.natAbs := by
  have hq := quantum_cast_pos g x.natAbs
  have hne : roundDown g x ≠ x := fun e => h (by
    have hd := quantum_dvd_roundDown g x
    rw [e] at hd
    exact hd)
  have h₁ := roundDown_le g x
  have h₂ := le_roundUp g x
  have h₃ := lt_roundDown_add_quantum g x
  have h₄ := roundUp_lt_add_quantum g x
  have h₅ := add_le_of_dvd_of_lt (quantum_dvd_roundDown g x) (quantum_dvd_roundUp g x) (by omega)
  have hd : (g.quantum x.natAbs : Int) ∣ roundDown g x + g.quantum x.natAbs :=
    Int.dvd_add (quantum_dvd_roundDown g x) (Int.dvd_refl _)
  by_cases hlt : roundDown g x + g.quantum x.natAbs < roundUp g x
  · have := add_le_of_dvd_of_lt hd (quantum_dvd_roundUp g x) hlt
    omega
  · omega

/-! ## Rounding towards zero -/

theorem roundZ_of_nonneg (g : Grid) {x : Int} (h : 0 ≤ x) : roundZ g x = roundDown g x := if_pos h

theorem roundZ_of_nonpos (g : Grid) {x : Int} (h : x ≤ 0) : roundZ g x = roundUp g x := by
  by_cases h0 : 0 ≤ x
  · have : x = 0 := by omega
    rw [this, roundZ_of_nonneg g (Int.le_refl 0), roundDown_zero, roundUp_zero]
  · exact if_neg h0

theorem roundZ_eq_roundDown_or_roundUp (g : Grid) (x : Int) :
    roundZ g x = roundDown g x ∨ roundZ g x = roundUp g x := by
  by_cases h : 0 ≤ x
  · exact .inl (roundZ_of_nonneg g h)
  · exact .inr (roundZ_of_nonpos g (by omega))

/-- **The result of rounding towards zero is on the grid.** -/
theorem roundZ_representable {g : Grid} (hp : 1 ≤ g.prec) (x : Int) :
    Representable g (roundZ g x) := by
  rcases roundZ_eq_roundDown_or_roundUp g x with h | h
  · rw [h]; exact roundDown_representable hp x
  · rw [h]; exact roundUp_representable hp x

/-- **Rounding towards zero fixes the values of the grid.** -/
theorem roundZ_of_representable {g : Grid} {x : Int} (h : Representable g x) : roundZ g x = x := by
  rcases roundZ_eq_roundDown_or_roundUp g x with e | e
  · rw [e]; exact roundDown_of_representable h
  · rw [e]; exact roundUp_of_representable h

/-- **Rounding towards zero is idempotent.** -/
theorem roundZ_idem {g : Grid} (hp : 1 ≤ g.prec) (x : Int) : roundZ g (roundZ g x) = roundZ g x :=
  roundZ_of_representable (roundZ_representable hp x)

/-- **Rounding towards zero is odd.** -/
theorem roundZ_neg (g : Grid) (x : Int) : roundZ g (-x) = -(roundZ g x) := by
  by_cases h : 0 ≤ x
  · rw [roundZ_of_nonneg g h, roundZ_of_nonpos g (by omega), roundUp_neg]
  · rw [roundZ_of_nonneg g (by omega), roundZ_of_nonpos g (by omega : x ≤ 0), roundDown_neg]

/-- **Rounding towards zero is monotone.** -/
theorem roundZ_mono {g : Grid} (hp : 1 ≤ g.prec) {x y : Int} (h : x ≤ y) :
    roundZ g x ≤ roundZ g y := by
  by_cases hx : 0 ≤ x
  · rw [roundZ_of_nonneg g hx, roundZ_of_nonneg g (by omega)]
    exact roundDown_mono hp h
  · rw [roundZ_of_nonpos g (by omega : x ≤ 0)]
    by_cases hy : 0 ≤ y
    · rw [roundZ_of_nonneg g hy]
      have h₁ := roundUp_mono hp (show x ≤ 0 by omega)
      have h₂ := roundDown_mono hp hy
      rw [roundUp_zero] at h₁
      rw [roundDown_zero] at h₂
      omega
    · rw [roundZ_of_nonpos g (by omega : y ≤ 0)]
      exact roundUp_mono hp h

/-- **Rounding towards zero never increases the magnitude.** -/
theorem roundZ_natAbs_le {g : Grid} (hp : 1 ≤ g.prec) (x : Int) : (roundZ g x).natAbs ≤ x.natAbs := by
  by_cases h : 0 ≤ x
  · have h₁ := roundDown_le g x
    have h₂ := roundDown_mono hp h
    rw [roundDown_zero] at h₂
    rw [roundZ_of_nonneg g h]
    omega
  · have h₁ := le_roundUp g x
    have h₂ := roundUp_mono hp (show x ≤ 0 by omega)
    rw [roundUp_zero] at h₂
    rw [roundZ_of_nonpos g (by omega)]
    omega

/-! ## Rounding to nearest, ties to even -/

/-- `roundNE` in terms of the two directed results: the lower one if it is nearer, the upper one if
that is nearer, and on a tie the one whose quotient is even. -/
theorem roundNE_cases (g : Grid) (x : Int) :
    (2 * (x - roundDown g x) ≤ g.quantum x.natAbs ∧ roundNE g x = roundDown g x) ∨
    (g.quantum x.natAbs ≤ 2 * (x - roundDown g x) ∧
      roundNE g x = roundDown g x + g.quantum x.natAbs) := by
  have hr : x % (g.quantum x.natAbs : Int) = x - roundDown g x := by
    rw [roundDown_eq]
    omega
  have hs : (x / (g.quantum x.natAbs : Int) + 1) * (g.quantum x.natAbs : Int)
      = roundDown g x + g.quantum x.natAbs := by
    rw [Int.add_mul, Int.one_mul]
    rfl
  have hd : x / (g.quantum x.natAbs : Int) * (g.quantum x.natAbs : Int) = roundDown g x := rfl
  unfold roundNE
  dsimp only
  rw [hr, hs, hd]
  by_cases h₁ : 2 * (x - roundDown g x) < (g.quantum x.natAbs : Int)
  · rw [if_pos h₁]
    exact .inl ⟨by omega, rfl⟩
  · rw [if_neg h₁]
    by_cases h₂ : (g.quantum x.natAbs : Int) < 2 * (x - roundDown g x)
    · rw [if_pos h₂]
      exact .inr ⟨by omega, rfl⟩
    · rw [if_neg h₂]
      by_cases h₃ : x / (g.quantum x.natAbs : Int) % 2 = 0
      · rw [if_pos h₃]
        exact .inl ⟨by omega, rfl⟩
      · rw [if_neg h₃]
        exact .inr ⟨by omega, rfl⟩

/-- **Half an ulp:** `2 * |roundNE x - x| ≤ quantum`. -/
theorem roundNE_half_ulp (g : Grid) (x : Int) :
    2 * (roundNE g x - x).natAbs ≤ g.quantum x.natAbs := by
  have h₁ := roundDown_le g x
  have h₂ := lt_roundDown_add_quantum g x
  rcases roundNE_cases g x with ⟨h, e⟩ | ⟨h, e⟩
  · rw [e]; omega
  · rw [e]; omega

/-- `roundNE` returns one of the two directed results. -/
theorem roundNE_eq_roundDown_or_roundUp (g : Grid) (x : Int) :
    roundNE g x = roundDown g x ∨ roundNE g x = roundUp g x := by
  rcases roundNE_cases g x with ⟨_, e⟩ | ⟨h, e⟩
  · exact .inl e
  · by_cases hx : Representable g x
    · have := roundDown_of_representable hx
      have := quantum_cast_pos g x.natAbs
      omega
    · exact .inr (by rw [e, roundUp_eq_roundDown_add_quantum hx])

/-- **The result of rounding to nearest is on the grid.** -/
theorem roundNE_representable {g : Grid} (hp : 1 ≤ g.prec) (x : Int) :
    Representable g (roundNE g x) := by
  rcases roundNE_eq_roundDown_or_roundUp g x with h | h
  · rw [h]; exact roundDown_representable hp x
  · rw [h]; exact roundUp_representable hp x

/-- **Rounding to nearest fixes the values of the grid.** -/
theorem roundNE_of_representable {g : Grid} {x : Int} (h : Representable g x) : roundNE g x = x := by
  rcases roundNE_eq_roundDown_or_roundUp g x with e | e
  · rw [e]; exact roundDown_of_representable h
  · rw [e]; exact roundUp_of_representable h

/-- **Rounding to nearest fixes exactly the values of the grid.** -/
theorem roundNE_eq_self_iff {g : Grid} (hp : 1 ≤ g.prec) {x : Int} :
    roundNE g x = x ↔ Representable g x :=
  ⟨fun h => by have := roundNE_representable hp x; rwa [h] at this, roundNE_of_representable⟩

/-- **Rounding to nearest is idempotent.** -/
theorem roundNE_idem {g : Grid} (hp : 1 ≤ g.prec) (x : Int) :
    roundNE g (roundNE g x) = roundNE g x :=
  roundNE_of_representable (roundNE_representable hp x)

theorem roundNE_zero (g : Grid) : roundNE g 0 = 0 := roundNE_of_representable (representable_zero g)

theorem roundDown_le_roundNE (g : Grid) (x : Int) : roundDown g x ≤ roundNE g x := by
  have h₁ := roundDown_le g x
  have h₂ := le_roundUp g x
  rcases roundNE_eq_roundDown_or_roundUp g x with e | e <;> omega

theorem roundNE_le_roundUp (g : Grid) (x : Int) : roundNE g x ≤ roundUp g x := by
  have h₁ := roundDown_le g x
  have h₂ := le_roundUp g x
  rcases roundNE_eq_roundDown_or_roundUp g x with e | e <;> omega

/-- **No value of the grid is nearer** to `x` than `roundNE x`. -/
theorem roundNE_nearest {g : Grid} (hp : 1 ≤ g.prec) {x z : Int} (hz : Representable g z) :
    (roundNE g x - x).natAbs ≤ (z - x).natAbs := by
  by_cases hx : Representable g x
  · rw [roundNE_of_representable hx, Int.sub_self]
    exact Nat.zero_le _
  · have hup := roundUp_eq_roundDown_add_quantum hx
    have hlow : z ≤ roundDown g x ∨ roundUp g x ≤ z := by
      by_cases h : z ≤ x
      · exact .inl (le_roundDown_of_representable hp hz h)
      · exact .inr (roundUp_le_of_representable hp hz (by omega))
    have h₁ := roundDown_le g x
    have h₂ := le_roundUp g x
    rcases roundNE_cases g x with ⟨h, e⟩ | ⟨h, e⟩ <;> rw [e] <;> omega

/-- A value of the grid strictly nearer than any other one is the result. -/
theorem roundNE_eq_of_strictly_nearest {g : Grid} (hp : 1 ≤ g.prec) {x z : Int}
    (hz : ∀ w, Representable g w → w ≠ z → (z - x).natAbs < (w - x).natAbs)
    (hzr : Representable g z) : roundNE g x = z := by
  refine Decidable.byContradiction fun hne => ?_
  have h₁ := hz _ (roundNE_representable hp x) hne
  have h₂ := roundNE_nearest hp (x := x) hzr
  omega

/-- **Rounding to nearest is monotone.** Only nearness is needed: were the results of `x < y`
exchanged, both would have to lie beyond the middle of the two results. -/
theorem roundNE_mono {g : Grid} (hp : 1 ≤ g.prec) {x y : Int} (h : x ≤ y) :
    roundNE g x ≤ roundNE g y := by
  by_cases he : x = y
  · rw [he]; exact Int.le_refl _
  · have h₁ := roundNE_nearest hp (x := x) (roundNE_representable hp y)
    have h₂ := roundNE_nearest hp (x := y) (roundNE_representable hp x)
    omega

/-- The contrapositive of monotonicity: results compared strictly compare the arguments. -/
theorem lt_of_roundNE_lt {g : Grid} (hp : 1 ≤ g.prec) {x y : Int} (h : roundNE g x < roundNE g y) :
    x < y := by
  refine Int.lt_of_not_ge fun hle => ?_
  have := roundNE_mono hp hle
  omega

/-- **Ties go to even:** when `x` is halfway between two neighbours, the result is an even multiple
of the spacing. -/
theorem roundNE_tie_even {g : Grid} {x : Int}
    (htie : 2 * (x - roundDown g x) = g.quantum x.natAbs) :
    2 * (g.quantum x.natAbs : Int) ∣ roundNE g x := by
  have hr : x % (g.quantum x.natAbs : Int) = x - roundDown g x := by
    rw [roundDown_eq]
    omega
  unfold roundNE
  dsimp only
  rw [hr, if_neg (by omega), if_neg (by omega)]
  by_cases h : x / (g.quantum x.natAbs : Int) % 2 = 0
  · rw [if_pos h]
    exact Int.mul_dvd_mul_right _ (Int.dvd_of_emod_eq_zero h)
  · rw [if_neg h]
    exact Int.mul_dvd_mul_right _ (Int.dvd_of_emod_eq_zero (by omega))

/-- **Rounding to nearest is odd.** -/
theorem roundNE_neg (g : Grid) (x : Int) : roundNE g (-x) = -(roundNE g x) := by
  by_cases hx : Representable g x
  · rw [roundNE_of_representable hx, roundNE_of_representable (representable_neg hx)]
  · have hup := roundUp_eq_roundDown_add_quantum hx
    have hdn := roundDown_neg g x
    have hq := quantum_cast_pos g x.natAbs
    have hc := roundNE_cases g (-x)
    rw [Int.natAbs_neg, hdn] at hc
    by_cases htie : 2 * (x - roundDown g x) = g.quantum x.natAbs
    · -- On a tie both results are even multiples, and neighbours are not both even.
      have h₁ := roundNE_tie_even htie
      have h₂ := roundNE_tie_even (g := g) (x := -x) (by rw [Int.natAbs_neg, hdn]; omega)
      rw [Int.natAbs_neg] at h₂
      have h₃ := Int.dvd_add h₁ h₂
      have h₄ : ∀ d : Int, 2 * (g.quantum x.natAbs : Int) ∣ d → d ≠ g.quantum x.natAbs ∧
          d ≠ -g.quantum x.natAbs := fun d hd => by
        refine ⟨fun e => ?_, fun e => ?_⟩
        · rw [e] at hd
          have := Int.le_of_dvd hq hd
          omega
        · rw [e, Int.dvd_neg] at hd
          have := Int.le_of_dvd hq hd
          omega
      have h₅ := h₄ _ h₃
      rcases roundNE_cases g x with ⟨_, e⟩ | ⟨_, e⟩ <;> rcases hc with ⟨_, e'⟩ | ⟨_, e'⟩ <;> omega
    · rcases roundNE_cases g x with ⟨_, e⟩ | ⟨_, e⟩ <;> rcases hc with ⟨_, e'⟩ | ⟨_, e'⟩ <;> omega

/-! ## Relative error -/

/-- The spacing at a normal magnitude is at most `2^(1-prec)` of it. -/
theorem two_pow_mul_quantum_le {g : Grid} (hp : 1 ≤ g.prec) {n : Nat}
    (hn : 2 ^ (g.qmin + g.prec - 1) ≤ n) : 2 ^ (g.prec - 1) * g.quantum n ≤ n := by
  have h0 : n ≠ 0 := by
    have := Nat.two_pow_pos (g.qmin + g.prec - 1)
    omega
  have hlog := (Nat.le_log2 h0).2 hn
  unfold Grid.quantum
  rw [← Nat.pow_add]
  refine Nat.le_trans (two_pow_le_two_pow ?_) (Nat.log2_self_le h0)
  unfold Grid.quantumExp
  omega

/-- **Relative error at most `2^-prec` in the normal range** (magnitudes from the smallest normal
number `2^(qmin+prec-1)` on), for rounding to nearest. -/
theorem roundNE_relative_error {g : Grid} (hp : 1 ≤ g.prec) {x : Int}
    (hx : 2 ^ (g.qmin + g.prec - 1) ≤ x.natAbs) :
    2 ^ g.prec * (roundNE g x - x).natAbs ≤ x.natAbs := by
  have h₁ := Nat.mul_le_mul_left (2 ^ (g.prec - 1)) (roundNE_half_ulp g x)
  have h₂ := two_pow_mul_quantum_le hp hx
  have h₃ : 2 ^ g.prec = 2 ^ (g.prec - 1) * 2 := by
    rw [← Nat.pow_succ]
    exact congrArg (2 ^ ·) (by omega)
  rw [h₃, Nat.mul_assoc]
  omega

/-- **Below the normal range the error is at most half the smallest subnormal.** -/
theorem roundNE_subnormal_error {g : Grid} (hp : 1 ≤ g.prec) {x : Int}
    (hx : x.natAbs < 2 ^ (g.qmin + g.prec)) :
    2 * (roundNE g x - x).natAbs ≤ 2 ^ g.qmin := by
  have h₁ := roundNE_half_ulp g x
  have h₂ : g.quantumExp x.natAbs = g.qmin := by
    unfold Grid.quantumExp
    by_cases h0 : x.natAbs = 0
    · rw [h0, Nat.log2_zero]
      omega
    · have := (Nat.log2_lt h0).2 hx
      omega
  unfold Grid.quantum at h₁
  rw [h₂] at h₁
  exact h₁

/-- **The error of a directed mode is below `2^(1-prec)` of the argument in the normal range.** -/
theorem roundDown_relative_error {g : Grid} (hp : 1 ≤ g.prec) {x : Int}
    (hx : 2 ^ (g.qmin + g.prec - 1) ≤ x.natAbs) :
    2 ^ (g.prec - 1) * (roundDown g x - x).natAbs < x.natAbs := by
  have h₁ := roundDown_le g x
  have h₂ := lt_roundDown_add_quantum g x
  have h₃ := two_pow_mul_quantum_le hp hx
  have h₄ := Nat.mul_lt_mul_of_pos_left (show (roundDown g x - x).natAbs < g.quantum x.natAbs by omega)
    (Nat.two_pow_pos (g.prec - 1))
  omega

/-- **The error of a directed mode is below `2^(1-prec)` of the argument in the normal range.** -/
theorem roundUp_relative_error {g : Grid} (hp : 1 ≤ g.prec) {x : Int}
    (hx : 2 ^ (g.qmin + g.prec - 1) ≤ x.natAbs) :
    2 ^ (g.prec - 1) * (roundUp g x - x).natAbs < x.natAbs := by
  have h := roundDown_relative_error hp (x := -x) (by rw [Int.natAbs_neg]; exact hx)
  rw [roundDown_neg, Int.natAbs_neg] at h
  rwa [show (roundUp g x - x).natAbs = (-roundUp g x - -x).natAbs by omega]

/-! ## Narrowing -/

/-- **Narrowing keeps a bracket:** if `lo ≤ y ≤ hi`, the ends may be rounded outwards to a wide
format, and all three to nearest in a narrow one: the order stays. -/
theorem narrowing_keeps_bracket {narrow : Grid} (wide : Grid) (hp : 1 ≤ narrow.prec) {lo y hi : Int}
    (hlo : lo ≤ y) (hhi : y ≤ hi) :
    roundNE narrow (roundDown wide lo) ≤ roundNE narrow y ∧
      roundNE narrow y ≤ roundNE narrow (roundUp wide hi) :=
  ⟨roundNE_mono hp (Int.le_trans (roundDown_le wide lo) hlo),
    roundNE_mono hp (Int.le_trans hhi (le_roundUp wide hi))⟩

/-- Rounding outwards first brackets rounding to nearest directly. -/
theorem roundNE_between_outward_roundings {narrow : Grid} (wide : Grid) (hp : 1 ≤ narrow.prec)
    (x : Int) :
    roundNE narrow (roundDown wide x) ≤ roundNE narrow x ∧
      roundNE narrow x ≤ roundNE narrow (roundUp wide x) :=
  narrowing_keeps_bracket wide hp (Int.le_refl x) (Int.le_refl x)

/-- A value of a coarser grid (fewer bits, a larger smallest subnormal) is one of the finer grid. -/
theorem representable_of_coarser {coarse fine : Grid} (hq : fine.qmin ≤ coarse.qmin)
    (hp : coarse.prec ≤ fine.prec) {x : Int} (h : Representable coarse x) : Representable fine x := by
  refine Int.dvd_trans (two_pow_dvd_two_pow ?_) h
  unfold Grid.quantumExp
  omega

/-- Rounding down twice, to a finer and then to a coarser grid, is rounding down once. -/
theorem roundDown_roundDown {coarse fine : Grid} (hc : 1 ≤ coarse.prec)
    (hq : fine.qmin ≤ coarse.qmin) (hp : coarse.prec ≤ fine.prec) (x : Int) :
    roundDown coarse (roundDown fine x) = roundDown coarse x := by
  have h₁ := roundDown_mono hc (roundDown_le fine x)
  have h₂ := le_roundDown_of_representable (Nat.le_trans hc hp)
    (representable_of_coarser hq hp (roundDown_representable hc x)) (roundDown_le coarse x)
  have h₃ := le_roundDown_of_representable hc (roundDown_representable hc x) h₂
  omega

/-- Rounding up twice, to a finer and then to a coarser grid, is rounding up once. -/
theorem roundUp_roundUp {coarse fine : Grid} (hc : 1 ≤ coarse.prec)
    (hq : fine.qmin ≤ coarse.qmin) (hp : coarse.prec ≤ fine.prec) (x : Int) :
    roundUp coarse (roundUp fine x) = roundUp coarse x := by
  have h := roundDown_roundDown hc hq hp (-x)
  rw [roundDown_neg, roundDown_neg, roundDown_neg] at h
  omega

/-! ## A named direction -/

/-- **Every rounding direction is monotone.** -/
theorem Mode.round_mono {g : Grid} (hp : 1 ≤ g.prec) (mode : Mode) {x y : Int} (h : x ≤ y) :
    mode.round g x ≤ mode.round g y := by
  cases mode
  · exact roundNE_mono hp h
  · exact roundZ_mono hp h
  · exact roundUp_mono hp h
  · exact roundDown_mono hp h

/-- **Every rounding direction fixes the values of the grid.** -/
theorem Mode.round_of_representable {g : Grid} (mode : Mode) {x : Int} (h : Representable g x) :
    mode.round g x = x := by
  cases mode
  · exact roundNE_of_representable h
  · exact roundZ_of_representable h
  · exact roundUp_of_representable h
  · exact roundDown_of_representable h

/-- **Every rounding direction lands on the grid.** -/
theorem Mode.round_representable {g : Grid} (hp : 1 ≤ g.prec) (mode : Mode) (x : Int) :
    Representable g (mode.round g x) := by
  cases mode
  · exact roundNE_representable hp x
  · exact roundZ_representable hp x
  · exact roundUp_representable hp x
  · exact roundDown_representable hp x

/-- **Every direction errs by less than one spacing.** -/
theorem Mode.round_error_lt (g : Grid) (mode : Mode) (x : Int) :
    (mode.round g x - x).natAbs < g.quantum x.natAbs := by
  have h₁ := roundDown_le g x
  have h₂ := lt_roundDown_add_quantum g x
  have h₃ := le_roundUp g x
  have h₄ := roundUp_lt_add_quantum g x
  cases mode
  · have h : roundNE g x = roundDown g x ∨ roundNE g x = roundUp g x :=
      roundNE_eq_roundDown_or_roundUp g x
    show (roundNE g x - x).natAbs < _
    omega
  · have h := roundZ_eq_roundDown_or_roundUp g x
    show (roundZ g x - x).natAbs < _
    omega
  · show (roundUp g x - x).natAbs < _
    omega
  · show (roundDown g x - x).natAbs < _
    omega

/-! ## The model that the decision theorems use -/

/-- What a decision needs to know of a rounding: it is monotone, its error is at most half the
spacing `u` at the magnitude of the argument, and that spacing grows with magnitude. -/
structure RoundModel (rn : Int → Int) (u : Nat → Nat) : Prop where
  mono : ∀ {x y : Int}, x ≤ y → rn x ≤ rn y
  nearest : ∀ y : Int, 2 * (rn y - y).natAbs ≤ u y.natAbs
  spacing_mono : ∀ {m n : Nat}, m ≤ n → u m ≤ u n

/-- **Rounding to nearest on any grid is a `RoundModel`**, with the grid's own spacing. -/
theorem roundModel_roundNE {g : Grid} (hp : 1 ≤ g.prec) : RoundModel (roundNE g) g.quantum where
  mono := roundNE_mono hp
  nearest := roundNE_half_ulp g
  spacing_mono := quantum_mono g

end CertHead
