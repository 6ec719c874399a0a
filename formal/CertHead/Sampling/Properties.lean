import CertHead.Sampling.Code
import CertHead.Decision.Interval

/-!
# Sampled tokens can be certified

The guards are sound, exclude each other and always decide on points; the residual is enclosed; a certified
draw is the draw; and acceptance followed by a residual draw has exactly the target's law.
-/

namespace CertHead

/-! ## Races -/

/-- **Races with fixed noise.** Adding known noise to the rounded logits moves every end by the same amount,
so the interval condition certifies the race's winner. -/
theorem race_with_fixed_noise {P : Nat → Prop} {low high f noise : Nat → Int} {k : Nat} (kept : P k)
    (inside : ∀ i, P i → low i ≤ f i ∧ f i ≤ high i)
    (earlier : ∀ j, P j → j < k → high j + noise j < low k + noise k)
    (later : ∀ j, P j → k < j → high j + noise j ≤ low k + noise k) :
    IsFirstMaxAmong P (fun i => f i + noise i) k := by
  refine interval_condition (low := fun i => low i + noise i) (high := fun i => high i + noise i) kept ?_
    earlier later
  intro i pi
  have := inside i pi
  constructor
  · show low i + noise i ≤ f i + noise i
    omega
  · show f i + noise i ≤ high i + noise i
    omega

/-! ## Acceptance and rejection -/

/-- **A certified acceptance is an acceptance** in exact arithmetic. -/
theorem certified_acceptance_is_sound {u steps p q : Int} {pv qv : Interval} (u_nonneg : 0 ≤ u) (steps_nonneg : 0 ≤ steps)
    (target : pv.Contains p) (draft : qv.Contains q) (verdict : guardVerdict u steps pv qv = .accept) :
    accepts u steps p q := by
  unfold guardVerdict at verdict
  split at verdict
  · rename_i h
    have a := Int.mul_le_mul_of_nonneg_left draft.2 u_nonneg
    have b := Int.mul_le_mul_of_nonneg_right target.1 steps_nonneg
    unfold accepts
    omega
  · split at verdict <;> exact absurd verdict (by decide)

/-- **A certified rejection is a rejection** in exact arithmetic. -/
theorem certified_rejection_is_sound {u steps p q : Int} {pv qv : Interval} (u_nonneg : 0 ≤ u) (steps_nonneg : 0 ≤ steps)
    (target : pv.Contains p) (draft : qv.Contains q) (verdict : guardVerdict u steps pv qv = .reject) :
    ¬ accepts u steps p q := by
  unfold guardVerdict at verdict
  split at verdict
  · exact absurd verdict (by decide)
  · split at verdict
    · rename_i h
      have a := Int.mul_le_mul_of_nonneg_left draft.1 u_nonneg
      have b := Int.mul_le_mul_of_nonneg_right target.2 steps_nonneg
      unfold accepts
      omega
    · exact absurd verdict (by decide)

/-- **The guards exclude each other**, whatever order they are tried in. -/
theorem guards_are_exclusive {u steps p q : Int} {pv qv : Interval} (u_nonneg : 0 ≤ u) (steps_nonneg : 0 ≤ steps)
    (target : pv.Contains p) (draft : qv.Contains q) :
    ¬ (u * qv.hi < pv.lo * steps ∧ pv.hi * steps ≤ u * qv.lo) := by
  intro ⟨accept, reject⟩
  have a := Int.mul_le_mul_of_nonneg_left (Int.le_trans draft.1 draft.2) u_nonneg
  have b := Int.mul_le_mul_of_nonneg_right (Int.le_trans target.1 target.2) steps_nonneg
  omega

/-- **Exactly known probabilities always decide**, and decide as exact arithmetic does. -/
theorem points_decide_acceptance (u steps p q : Int) :
    guardVerdict u steps (.point p) (.point q) = if u * q < p * steps then .accept else .reject := by
  unfold guardVerdict Interval.point
  dsimp only
  split
  · rfl
  · rw [if_pos (by omega)]

/-! ## Residuals -/

/-- **Residual intervals enclose the residual.** -/
theorem residual_is_enclosed {p q : Int} {pv qv : Interval} (target : pv.Contains p) (draft : qv.Contains q) :
    (residualInterval pv qv).Contains (residual p q) := by
  obtain ⟨pl, ph⟩ := target
  obtain ⟨ql, qh⟩ := draft
  unfold residualInterval residual Interval.Contains
  dsimp only
  omega

/-- Enclosed weights have enclosed cumulative sums. -/
theorem cumulative_grows_with_weights {low high : Nat → Int} {n : Nat} (le : ∀ i, i < n → low i ≤ high i) :
    cumulative low n ≤ cumulative high n := by
  induction n with
  | zero => exact Int.le_refl _
  | succ n ih =>
    have := ih (fun i h => le i (Nat.lt_succ_of_lt h))
    have := le n (Nat.lt_succ_self n)
    unfold cumulative
    omega

/-- **A certified draw is the draw**: it holds for every choice of weights inside the enclosures. -/
theorem certified_draw_is_sound {weight : Nat → Interval} {w : Nat → Int} {n k : Nat} {u steps : Int}
    (u_nonneg : 0 ≤ u) (steps_nonneg : 0 ≤ steps) (encloses : ∀ i, i < n → (weight i).Contains (w i))
    (certified : drawCertified weight n u steps k = true) : Drawn w n u steps k := by
  unfold drawCertified at certified
  rw [Bool.and_eq_true, Bool.and_eq_true, decide_eq_true_iff, decide_eq_true_iff, decide_eq_true_iff] at certified
  obtain ⟨⟨inside, left⟩, right⟩ := certified
  have lowAll := cumulative_grows_with_weights (fun i h => (encloses i h).1)
  have highAll := cumulative_grows_with_weights (fun i h => (encloses i h).2)
  have highK := cumulative_grows_with_weights (n := k) (fun i h => (encloses i (by omega)).2)
  have lowK := cumulative_grows_with_weights (n := k + 1) (fun i h => (encloses i (by omega)).1)
  have a := Int.mul_le_mul_of_nonneg_right highK steps_nonneg
  have b := Int.mul_le_mul_of_nonneg_left lowAll u_nonneg
  have c := Int.mul_le_mul_of_nonneg_left highAll u_nonneg
  have d := Int.mul_le_mul_of_nonneg_right lowK steps_nonneg
  exact ⟨inside, by omega, by omega⟩

/-- Cumulative sums of nonnegative weights ascend. -/
theorem cumulative_ascends {w : Nat → Int} (nonneg : ∀ i, 0 ≤ w i) {a b : Nat} (le : a ≤ b) :
    cumulative w a ≤ cumulative w b := by
  induction b with
  | zero =>
    have : a = 0 := by omega
    rw [this]
    exact Int.le_refl _
  | succ b ih =>
    by_cases e : a = b + 1
    · rw [e]
      exact Int.le_refl _
    · have := ih (by omega)
      have := nonneg b
      show cumulative w a ≤ cumulative w b + w b
      omega

/-- **A uniform number draws at most one row**. -/
theorem draw_is_unique {w : Nat → Int} {n a b : Nat} {u steps : Int} (nonneg : ∀ i, 0 ≤ w i)
    (steps_nonneg : 0 ≤ steps) (ha : Drawn w n u steps a) (hb : Drawn w n u steps b) : a = b := by
  obtain ⟨_, a1, a2⟩ := ha
  obtain ⟨_, b1, b2⟩ := hb
  rcases Nat.lt_trichotomy a b with h | h | h
  · have := Int.mul_le_mul_of_nonneg_right (cumulative_ascends nonneg (a := a + 1) (b := b) h) steps_nonneg
    omega
  · exact h
  · have := Int.mul_le_mul_of_nonneg_right (cumulative_ascends nonneg (a := b + 1) (b := a) h) steps_nonneg
    omega

/-! ## The law of speculative acceptance -/

/-- The mass that is accepted at a token: `q · min(1, p/q)`. -/
def acceptedMass (p q : Nat → Int) (i : Nat) : Int := min (p i) (q i)

/-- What is not accepted equals the residual's total: both are one minus the overlap. -/
theorem rejected_mass_is_residual_mass (p q : Nat → Int) (n : Nat) :
    cumulative p n - cumulative (acceptedMass p q) n = cumulative (fun i => residual (p i) (q i)) n := by
  induction n with
  | zero => rfl
  | succ n ih =>
    have step : p n - min (p n) (q n) = max (p n - q n) 0 := by omega
    unfold cumulative
    show cumulative p n + p n - (cumulative (acceptedMass p q) n + min (p n) (q n)) =
      cumulative (fun i => residual (p i) (q i)) n + max (p n - q n) 0
    omega

/-- **The law of speculative acceptance.** Draft `q` and target `p` have the same total. Accepting, and on
rejection drawing from the residual, gives token `i` exactly the target's mass `p i`: written without division,
`accepted · R + rejected · residual i = p i · R`, where `R` is the residual's total. -/
theorem speculative_acceptance_has_the_targets_law (p q : Nat → Int) (n i : Nat)
    (same_total : cumulative q n = cumulative p n) :
    acceptedMass p q i * cumulative (fun j => residual (p j) (q j)) n +
        (cumulative q n - cumulative (acceptedMass p q) n) * residual (p i) (q i) =
      p i * cumulative (fun j => residual (p j) (q j)) n := by
  rw [same_total, rejected_mass_is_residual_mass]
  have split : p i = acceptedMass p q i + residual (p i) (q i) := by
    unfold acceptedMass residual
    omega
  rw [split, Int.add_mul, ← split]
  rw [Int.mul_comm (residual (p i) (q i))]

end CertHead
