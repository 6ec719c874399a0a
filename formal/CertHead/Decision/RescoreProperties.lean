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
  have h := roundedSum_nearest_admits_without_floor (g := fp64.grid (2 * headScale + 45)) (by decide) (by decide) [x]
  unfold NodeError.Admits roundedSum Mode.round at h
  rw [List.sum_cons, List.sum_nil, Int.add_zero, absSum_cons, absSum_nil] at h
  have e : (2 : Nat) ^ (fp64.grid (2 * headScale + 45)).prec = 2 ^ 53 := rfl
  rw [e] at h
  omega

/-! ## The radius -/

/-- The inequality that everything comes down to, with all numbers on the scale `2^-343`. -/
private theorem radius_suffices {A S y z a Ga G r₁ r : Int} (A_nonneg : 0 ≤ A) (G_nonneg : 0 ≤ G)
    (model : 2 ^ 40 * (y - S).natAbs ≤ G + 2 ^ 40 * 2 ^ 207)
    (fold_z : (2 ^ 53 - 16) * ((z - S).natAbs : Int) ≤ 16 * A)
    (fold_a : (2 ^ 53 - 16) * ((a - A).natAbs : Int) ≤ 16 * A)
    (product : G - 2 ^ 40 * ((a - A).natAbs : Int) ≤ Ga)
    (product_le : Ga ≤ 2 ^ 40 * a)
    (first : 2 ^ 53 * ((r₁ - (32 * Ga + a)).natAbs : Int) ≤ ((32 * Ga + a).natAbs : Int))
    (second : 2 ^ 53 * ((r - (r₁ + 2 ^ 253)).natAbs : Int) ≤ ((r₁ + 2 ^ 253).natAbs : Int)) :
    2 ^ 53 * (2 ^ 45 * ((y - z).natAbs : Int)) + (2 ^ 45 * (z.natAbs : Int) + r) + 2 ^ 45 * ((z - S).natAbs : Int) ≤ 2 ^ 53 * r := by
  sorry

end CertHead
