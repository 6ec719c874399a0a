import CertHead.Decision.EndToEnd
import CertHead.Decision.Rescore

/-!
# The enclosed rescore encloses

For every accumulator that the stock model admits with a floor of `2^-91`. (The floor of the screen, `2^-90`,
would leave nothing for the radius' own rounding when the magnitudes vanish beside it.)
-/

namespace CertHead

open Enclosure

/-! ## The fold -/

private theorem le_two_pow_levels (n : Nat) : n ≤ 2 ^ levels n := by
  unfold levels
  split
  · rw [Nat.pow_zero]
    omega
  · have := Nat.lt_log2_self (n := n - 1)
    omega

private theorem levels_le {n : Nat} (h : n ≤ 2 ^ 16) : levels n ≤ 16 := by
  unfold levels
  split
  · omega
  · have := (Nat.log2_lt (n := n - 1) (k := 16) (by omega)).2 (by omega)
    omega

private theorem sum_of_zeros (n : Nat) : (List.replicate n (0 : Int)).sum = 0 ∧ absSum (List.replicate n (0 : Int)) = 0 := by
  induction n with
  | zero => exact ⟨rfl, rfl⟩
  | succ n ih =>
    rw [List.replicate_succ, List.sum_cons, absSum_cons, ih.1, ih.2]
    exact ⟨rfl, rfl⟩

/-- The FP64 fold of up to `2^16` integers is within `16·2^-53` of their sum, relative to the magnitudes. -/
theorem fold64_error {xs : List Int} (short : xs.length ≤ 2 ^ 16) :
    (2 ^ 53 - 16) * (fold64 xs - xs.sum).natAbs ≤ 16 * absSum xs := by
  have k16 := levels_le short
  have room := le_two_pow_levels xs.length
  have bound := foldHalves_bound (g := fp64.grid (2 * headScale)) (by decide) (by decide) (k := levels xs.length)
    (Nat.le_trans k16 (by decide)) (xs := xs ++ List.replicate (2 ^ levels xs.length - xs.length) 0)
    (by rw [List.length_append, List.length_replicate]; omega)
  rw [List.sum_append_int, absSum_append, (sum_of_zeros _).1, (sum_of_zeros _).2, Int.add_zero, Nat.add_zero] at bound
  have coarse := Nat.mul_le_mul_right (fold64 xs - xs.sum).natAbs (show 2 ^ 53 - 16 ≤ 2 ^ 53 - levels xs.length by omega)
  have scale := Nat.mul_le_mul_right (absSum xs) k16
  exact Nat.le_trans coarse (Nat.le_trans bound scale)

private theorem products_sum : ∀ w h : List Int, (productsOf w h).sum = Enclosure.dot w h ∧
    (absSum (productsOf w h) : Int) = absDot w h ∧ (absSum (productsOf w h) : Int) =
      ((productsOf w h).map fun p => (p.natAbs : Int)).sum ∧
    absSum ((productsOf w h).map fun p => (p.natAbs : Int)) = absSum (productsOf w h)
  | [], _ => ⟨rfl, rfl, rfl, rfl⟩
  | _ :: _, [] => ⟨rfl, rfl, rfl, rfl⟩
  | x :: w, y :: h => by
    obtain ⟨a, b, c, d⟩ := products_sum w h
    have list : productsOf (x :: w) (y :: h) = (x * y) :: productsOf w h := rfl
    rw [list, List.map_cons, List.sum_cons, List.sum_cons, absSum_cons, absSum_cons, Int.natCast_add, a, b, d, ← c, b]
    exact ⟨rfl, rfl, rfl, by rw [Int.natAbs_natCast]⟩

/-! ## One rounding -/

private theorem fp64_error (x : Int) :
    2 ^ 53 * (roundNE (fp64.grid (2 * headScale + 45)) x - x).natAbs ≤ x.natAbs := by
  have h : 2 ^ 53 * (roundNE (fp64.grid (2 * headScale + 45)) [x].sum - [x].sum).natAbs ≤ 1 * 1 * absSum [x] + 2 ^ 53 * 0 :=
    roundedSum_nearest_admits_without_floor (g := fp64.grid (2 * headScale + 45)) (by decide) (by decide) [x]
  rw [List.sum_cons, List.sum_nil, Int.add_zero, absSum_cons, absSum_nil] at h
  omega

/-! ## The radius -/

/-- The inequality that everything comes down to, on the scale `2^-343`. `A` is the exact mass and `a` its fold,
`G` and `Ga` are `γ` times these, `dy`, `dz`, `da` the distances of the accumulator and of the two folds from the
exact sums, `r₁` and `r` the radius after its first and second rounding. -/
private theorem radius_suffices {A G a Ga dy dz da Z M r₁ r e₁ e₂ : Int} (A_nonneg : 0 ≤ A) (G_nonneg : 0 ≤ G)
    (dz_nonneg : 0 ≤ dz) (da_nonneg : 0 ≤ da) (gamma_le_one : G ≤ 2 ^ 40 * A)
    (model : 2 ^ 40 * dy ≤ G + 2 ^ 40 * 2 ^ 207) (fold_z : (2 ^ 53 - 16) * dz ≤ 16 * A)
    (fold_a : (2 ^ 53 - 16) * da ≤ 16 * A) (center : Z ≤ A + dz) (mass : A - da ≤ a)
    (product : G - 2 ^ 40 * da ≤ Ga) (whole : M = 32 * Ga + a)
    (first : M - e₁ ≤ r₁) (first_small : 2 ^ 53 * e₁ ≤ M)
    (second : r₁ + 2 ^ 253 - e₂ ≤ r) (second_small : 2 ^ 53 * e₂ ≤ r₁ + 2 ^ 253) :
    2 ^ 98 * (dy + dz) + 2 ^ 45 * Z + r ≤ 2 ^ 53 * r := by
  have small_z : 15 * 2 ^ 45 * dz ≤ A := by omega
  have small_a : 15 * 2 ^ 45 * da ≤ A := by omega
  have enough : 480 * G + 13 * A ≤ 15 * M := by omega
  have after_first : (2 ^ 53 - 1) * M ≤ 2 ^ 53 * r₁ := by omega
  have after_second : (2 ^ 53 - 1) * (r₁ + 2 ^ 253) ≤ 2 ^ 53 * r := by omega
  omega

/-- What the folds satisfy: their distances from the exact sum and mass. -/
private theorem folds_are_close {w h : List Int} (columns : h.length ≤ 2 ^ 16) :
    (2 ^ 53 - 16) * (((foldsOf w h).1 - Enclosure.dot w h).natAbs : Int) ≤ 16 * absDot w h ∧
      (2 ^ 53 - 16) * (((foldsOf w h).2 - absDot w h).natAbs : Int) ≤ 16 * absDot w h := by
  obtain ⟨sum, mass, abs_sum, abs_mass⟩ := products_sum w h
  have short : (productsOf w h).length ≤ 2 ^ 16 := by
    unfold productsOf
    rw [List.length_zipWith]
    omega
  have z := fold64_error short
  have a := fold64_error (xs := (productsOf w h).map fun p => (p.natAbs : Int)) (by rw [List.length_map]; exact short)
  rw [sum] at z
  rw [← abs_sum, abs_mass, mass] at a
  unfold foldsOf
  dsimp only
  omega

/-- **The enclosed rescore encloses.** Every accumulator within `γ·Σ|w·h| + 2^-91` of the exact dot product lies in
the interval that the FP64 fold and its radius give, for up to `2^16` columns and `γ ≤ 1`. -/
theorem enclosed_rescore_encloses {gammaNum : Nat} {w h : List Nat} {y : Int} (columns : h.length ≤ 2 ^ 16)
    (gamma_le_one : gammaNum ≤ 2 ^ 40) (within : WithinGamma gammaNum (2 ^ 207) (integersOf w) (integersOf h) y) :
    (rescoreEnclosed gammaNum w h).Contains y := by
  have columns' : (integersOf h).length ≤ 2 ^ 16 := by
    unfold integersOf
    rw [List.length_map, List.length_map]
    exact columns
  unfold rescoreEnclosed Interval.Contains endsAround radiusOf
  dsimp only
  unfold WithinGamma at within
  obtain ⟨fold_z, fold_a⟩ := folds_are_close (w := integersOf w) columns'
  have sum_le := dot_le_absDot (integersOf w) (integersOf h)
  have mass_nonneg := absDot_nonneg (integersOf w) (integersOf h)
  generalize (foldsOf (integersOf w) (integersOf h)).1 = z at *
  generalize (foldsOf (integersOf w) (integersOf h)).2 = a at *
  generalize Enclosure.dot (integersOf w) (integersOf h) = S at *
  generalize absDot (integersOf w) (integersOf h) = A at *
  have gamma : (gammaNum : Int) ≤ 2 ^ 40 := by omega
  have gamma_nonneg : (0 : Int) ≤ gammaNum := by omega
  have gamma_mass := Int.mul_le_mul_of_nonneg_right gamma mass_nonneg
  have gamma_mass_nonneg := Int.mul_nonneg gamma_nonneg mass_nonneg
  have gamma_far := Int.mul_le_mul_of_nonneg_right gamma (show (0 : Int) ≤ ((a - A).natAbs : Int) by omega)
  have gamma_near := Int.mul_le_mul_of_nonneg_left (show A - ((a - A).natAbs : Int) ≤ a by omega) gamma_nonneg
  rw [Int.mul_sub] at gamma_near
  have a_nonneg : 0 ≤ a := by omega
  have gamma_a_nonneg := Int.mul_nonneg gamma_nonneg a_nonneg
  have whole : a * (32 * (gammaNum : Int) + 1) = 32 * (gammaNum * a) + a := by
    rw [Int.mul_add, Int.mul_one, Int.mul_left_comm, Int.mul_comm a]
  have first := fp64_error (a * (32 * (gammaNum : Int) + 1))
  rw [whole] at first ⊢
  generalize roundNE (fp64.grid (2 * headScale + 45)) (32 * (gammaNum * a) + a) = r₁ at *
  have second := fp64_error (r₁ + 2 ^ 253)
  generalize roundNE (fp64.grid (2 * headScale + 45)) (r₁ + 2 ^ 253) = r at *
  generalize (gammaNum : Int) * a = Ga at *
  generalize (gammaNum : Int) * A = G at *
  generalize (gammaNum : Int) * ((a - A).natAbs : Int) = far at *
  have e₁ : 2 ^ 53 * ((r₁ - (32 * Ga + a)).natAbs : Int) ≤ 32 * Ga + a := by omega
  have e₂ : 2 ^ 53 * ((r - (r₁ + 2 ^ 253)).natAbs : Int) ≤ r₁ + 2 ^ 253 := by omega
  have key := radius_suffices (A := A) (G := G) (a := a) (Ga := Ga) (dy := ((y - S).natAbs : Int))
    (dz := ((z - S).natAbs : Int)) (da := ((a - A).natAbs : Int)) (Z := (z.natAbs : Int)) (M := 32 * Ga + a)
    (r₁ := r₁) (r := r) mass_nonneg gamma_mass_nonneg (by omega) (by omega) gamma_mass within fold_z fold_a (by omega)
    (by omega) (by omega) rfl (by omega) e₁ (by omega) e₂
  have r_nonneg : 0 ≤ r := by omega
  have low := fp64_error (z * 2 ^ 45 - r)
  have high := fp64_error (z * 2 ^ 45 + r)
  have down := roundDown_le (fp32.grid (2 * headScale + 45)) (roundNE (fp64.grid (2 * headScale + 45)) (z * 2 ^ 45 - r))
  have up := le_roundUp (fp32.grid (2 * headScale + 45)) (roundNE (fp64.grid (2 * headScale + 45)) (z * 2 ^ 45 + r))
  generalize roundNE (fp64.grid (2 * headScale + 45)) (z * 2 ^ 45 - r) = l at *
  generalize roundNE (fp64.grid (2 * headScale + 45)) (z * 2 ^ 45 + r) = u at *
  clear within fold_z fold_a sum_le gamma_mass gamma_mass_nonneg gamma_far gamma_near whole first second e₁ e₂
  have near : ((y - z).natAbs : Int) ≤ ((y - S).natAbs : Int) + ((z - S).natAbs : Int) := by omega
  generalize ((y - S).natAbs : Int) = dy at *
  generalize ((z - S).natAbs : Int) = dz at *
  constructor
  · have : l ≤ y * 2 ^ 45 := by omega
    omega
  · have : y * 2 ^ 45 ≤ u := by omega
    omega

/-- **The screen's floor is too large for the enclosed rescore.** Two products `±2^-200` cancel; an accumulator at
the far end of `γ·Σ|w·h| + 2^-90` lies outside, because FP64 adds the radius' first part to `2^-90` without effect.
So a stock model must keep its underflow within `2^-91` where candidates are rescored by enclosure. -/
theorem full_floor_is_not_enclosed :
    WithinGamma (2 ^ 20) (floorTerm headScale) (integersOf [0x0D80, 0x0D80]) (integersOf [0x0D80, 0x8D80])
        (-(2 ^ 79 + 2 ^ 208)) ∧
      ¬ (rescoreEnclosed (2 ^ 20) [0x0D80, 0x0D80] [0x0D80, 0x8D80]).Contains (-(2 ^ 79 + 2 ^ 208)) := by
  unfold WithinGamma Interval.Contains
  decide +kernel

/-- **End to end in enclosed mode.** For every stock kernel whose accumulators stay within `γ·Σ|w·h| + 2^-91`
of the exact dot products (any order, any split), a token of the certified head is the first maximum of that
kernel's BF16 logits. -/
theorem enclosed_token_is_right_for_every_kernel_in_the_model {c : HeadConfig} {W : List (List Nat)} {h : List Nat}
    {y : Nat → Int} {k : Nat}
    (within : ∀ i, i < W.length → WithinGamma c.gammaNum (2 ^ 207) (integersOf (W.getD i [])) (integersOf h) (y i))
    (answer : (certifiedHeadEnclosed c W h).token? = some k) : IsFirstMax (fun i => toLogit (y i)) W.length k := by
  unfold certifiedHeadEnclosed at answer
  split at answer
  · rename_i gamma
    have columns : h.length ≤ 2 ^ 16 := by
      unfold headWith at answer
      split at answer
      · rename_i ok
        unfold headInRange at ok
        simp only [Bool.and_eq_true, decide_eq_true_eq] at ok
        exact ok.1.2
      · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])
    refine token_is_right_for_every_kernel_in_the_model (c := c)
      (r := .enclosed fun i => rescoreEnclosed c.gammaNum (W.getD i []) h) ?_ ?_ answer
    · intro i inside
      have narrow := within i inside
      have floor : (2 : Int) ^ 207 ≤ floorTerm headScale := by decide
      unfold WithinGamma at narrow ⊢
      omega
    · intro i mem
      exact enclosed_rescore_encloses columns gamma (within i (List.mem_range.1 mem))
  · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])

end CertHead
