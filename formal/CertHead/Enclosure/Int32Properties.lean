import CertHead.Enclosure.NormsProperties
import CertHead.Enclosure.Int32

/-!
# The int8 dot products are exact in int32

Under the size bounds no partial sum leaves the range, and even if one did, the final sum would
come out right in any order; one more than the bound, and it does not.
-/

namespace CertHead.Enclosure

/-- What fits is kept. -/
theorem wrap32_of_fits {n : Int} (h : FitsInt32 n) : wrap32 n = n := by
  unfold FitsInt32 at h
  unfold wrap32
  omega

/-- What comes out of a register fits. -/
theorem wrap32_fits (n : Int) : FitsInt32 (wrap32 n) := by
  unfold FitsInt32 wrap32
  omega

/-- **Exactly the values that fit are kept.** -/
theorem wrap32_eq_iff (n : Int) : wrap32 n = n ↔ FitsInt32 n :=
  ⟨fun h => h ▸ wrap32_fits n, wrap32_of_fits⟩

/-- Wrapping early changes nothing of a wrapped sum. -/
theorem wrap32_add_wrap32 (m n : Int) : wrap32 (wrap32 m + wrap32 n) = wrap32 (m + n) := by
  unfold wrap32
  omega

theorem wrap32_add_left (m n : Int) : wrap32 (wrap32 m + n) = wrap32 (m + n) := by
  unfold wrap32
  omega

/-- The int32 dot product is the exact one, wrapped once. -/
theorem dot32From_eq : ∀ (acc : Int) (xs ys : List Int), FitsInt32 acc →
    dot32From acc xs ys = wrap32 (acc + dot xs ys)
  | acc, [], _, h => by simp only [dot32From, dot, Int.add_zero, wrap32_of_fits h]
  | acc, _ :: _, [], h => by simp only [dot32From, dot, Int.add_zero, wrap32_of_fits h]
  | acc, x :: xs, y :: ys, h => by
    simp only [dot32From, dot]
    rw [dot32From_eq _ xs ys (wrap32_fits _)]
    unfold wrap32
    omega

/-- The int32 dot product is the exact one, modulo `2^32`. -/
theorem dot32_eq (xs ys : List Int) : dot32 xs ys = wrap32 (dot xs ys) := by
  unfold dot32
  rw [dot32From_eq 0 xs ys ⟨by omega, by omega⟩, Int.zero_add]

/-- **An int32 dot product is exact when its result fits**, whatever the partial sums did. -/
theorem dot32_exact_of_result_fits {xs ys : List Int} (h : FitsInt32 (dot xs ys)) :
    dot32 xs ys = dot xs ys := by
  rw [dot32_eq, wrap32_of_fits h]

/-- **Any order of int32 additions gives the same**: the exact sum, wrapped. -/
theorem wrapped_sum_is_order_independent : ∀ t : WrapTree, t.wrapped = wrap32 t.exact
  | .term _ => rfl
  | .add l r => by
    simp only [WrapTree.wrapped, WrapTree.exact, wrapped_sum_is_order_independent l,
      wrapped_sum_is_order_independent r, wrap32_add_wrap32]

/-- Hence any order is exact when the sum fits. -/
theorem wrapped_sum_exact_in_any_order {t : WrapTree} (h : FitsInt32 t.exact) :
    t.wrapped = t.exact := by
  rw [wrapped_sum_is_order_independent, wrap32_of_fits h]

/-- A dot product of bounded factors is bounded: `|Σ x y| ≤ b · c · length`. -/
theorem dot_bounded {b c : Int} (hb : 0 ≤ b) (hc : 0 ≤ c) : ∀ {xs ys : List Int},
    (∀ x, x ∈ xs → (x.natAbs : Int) ≤ b) → (∀ y, y ∈ ys → (y.natAbs : Int) ≤ c) →
    ((dot xs ys).natAbs : Int) ≤ b * c * xs.length
  | [], _, _, _ => by simp only [dot, List.length_nil]; omega
  | x :: xs, [], _, _ => by
    have := Int.mul_nonneg (Int.mul_nonneg hb hc) (Int.natCast_nonneg (x :: xs).length)
    simp only [dot]
    omega
  | x :: xs, y :: ys, hx, hy => by
    have ih := dot_bounded hb hc (xs := xs) (ys := ys)
      (fun z m => hx z (List.mem_cons_of_mem x m)) (fun z m => hy z (List.mem_cons_of_mem y m))
    have h1 := hx x List.mem_cons_self
    have h2 := hy y List.mem_cons_self
    have h3 : ((x * y).natAbs : Int) ≤ b * c := by
      rw [Int.natAbs_mul, Int.natCast_mul]
      exact Int.mul_le_mul h1 h2 (by omega) hb
    simp only [dot, List.length_cons, Int.natCast_add, Int.mul_add]
    omega

/-- A dot product of int8 codes (`|q| ≤ 127`) with int8 limbs (`|b| ≤ 128`) fits int32 up to
132104 columns. -/
theorem int8_dot_fits_int32 {q b : List Int} (hq : ∀ x, x ∈ q → (x.natAbs : Int) ≤ 127)
    (hb : ∀ y, y ∈ b → (y.natAbs : Int) ≤ 128) (hK : q.length ≤ 132104) : FitsInt32 (dot q b) := by
  have h := dot_bounded (by omega) (by omega) hq hb
  unfold FitsInt32
  omega

/-- **Every partial sum fits**: after any number of columns the accumulator is in range. -/
theorem every_partial_sum_fits_int32 {q b : List Int} (hq : ∀ x, x ∈ q → (x.natAbs : Int) ≤ 127)
    (hb : ∀ y, y ∈ b → (y.natAbs : Int) ≤ 128) (hK : q.length ≤ 132104) (n : Nat) :
    FitsInt32 (dot (q.take n) (b.take n)) := by
  apply int8_dot_fits_int32 (fun x m => hq x (List.mem_of_mem_take m))
    (fun y m => hb y (List.mem_of_mem_take m))
  rw [List.length_take]
  omega

/-- **The int8 dot product is exact in int32** up to 132104 columns, twice what is allowed. -/
theorem int8_dot_exact_in_int32 {q b : List Int} (hq : ∀ x, x ∈ q → (x.natAbs : Int) ≤ 127)
    (hb : ∀ y, y ∈ b → (y.natAbs : Int) ≤ 128) (hK : q.length ≤ 132104) : dot32 q b = dot q b :=
  dot32_exact_of_result_fits (int8_dot_fits_int32 hq hb hK)

/-- The specification's bound: up to `2^16` columns the high limbs (`|a| ≤ 64`) stay within
`127·64·2^16` and the low limbs within `127·128·2^16`, both below `2^31`. -/
theorem dot_magnitudes_up_to_65536_columns {q a b : List Int}
    (hq : ∀ x, x ∈ q → (x.natAbs : Int) ≤ 127) (ha : ∀ x, x ∈ a → (x.natAbs : Int) ≤ 64)
    (hb : ∀ y, y ∈ b → (y.natAbs : Int) ≤ 128) (hK : q.length ≤ 2 ^ 16) :
    ((dot q a).natAbs : Int) ≤ 127 * 64 * 2 ^ 16 ∧ ((dot q b).natAbs : Int) ≤ 127 * 128 * 2 ^ 16 ∧
      (127 * 64 * 2 ^ 16 : Int) < 2 ^ 31 ∧ (127 * 128 * 2 ^ 16 : Int) < 2 ^ 31 := by
  have h1 := dot_bounded (by omega) (by omega) hq ha
  have h2 := dot_bounded (by omega) (by omega) hq hb
  exact ⟨by omega, by omega, by omega, by omega⟩

/-- A dot product of constant lists. -/
theorem dot_replicate (x y : Int) : ∀ n : Nat,
    dot (List.replicate n x) (List.replicate n y) = (n : Int) * (x * y)
  | 0 => by simp only [List.replicate_zero, dot]; omega
  | n + 1 => by
    simp only [List.replicate_succ, dot, dot_replicate x y n, Int.natCast_add, Int.add_mul]
    omega

/-- **One column more, and it is wrong**: at 132105 columns of `-127` times `-128` the register holds
`-2147468416`, not the sum `2147498880`. -/
theorem one_column_more_overflows :
    dot32 (List.replicate 132105 (-127)) (List.replicate 132105 (-128)) = -2147468416 ∧
      dot (List.replicate 132105 (-127)) (List.replicate 132105 (-128)) = 2147498880 := by
  have e : dot (List.replicate 132105 (-127)) (List.replicate 132105 (-128)) = 2147498880 := by
    rw [dot_replicate]
    decide
  refine ⟨?_, e⟩
  rw [dot32_eq, e]
  decide

/-- Hence the bound off by one is refuted. -/
theorem int8_dot_bound_is_sharp : ¬ ∀ q b : List Int, (∀ x, x ∈ q → (x.natAbs : Int) ≤ 127) →
    (∀ y, y ∈ b → (y.natAbs : Int) ≤ 128) → q.length ≤ 132105 → dot32 q b = dot q b := by
  intro h
  have k := h (List.replicate 132105 (-127)) (List.replicate 132105 (-128))
    (fun x m => by rw [List.eq_of_mem_replicate m]; decide)
    (fun y m => by rw [List.eq_of_mem_replicate m]; decide)
    (by rw [List.length_replicate]; exact Nat.le_refl _)
  rw [one_column_more_overflows.1, one_column_more_overflows.2] at k
  exact absurd k (by decide)

/-- The range itself is sharp: `2^31` is not kept. -/
theorem two_pow_31_wraps : wrap32 (2 ^ 31) = -(2 ^ 31) := by decide

/-- Codes from 0 to 127 against nonnegative codes: `0 ≤ Σ E·H ≤ 127·ΣH`. -/
theorem dot_of_codes_bounded : ∀ {E H : List Int}, (∀ x, x ∈ E → 0 ≤ x ∧ x ≤ 127) →
    (∀ y, y ∈ H → 0 ≤ y) → 0 ≤ dot E H ∧ dot E H ≤ 127 * H.sum
  | [], [], _, _ => by simp only [dot, List.sum_nil]; omega
  | [], y :: ys, hE, hH => by
    have h1 := hH y List.mem_cons_self
    have h2 := dot_of_codes_bounded (E := []) hE (fun z m => hH z (List.mem_cons_of_mem y m))
    simp only [dot, List.sum_cons] at h2 ⊢
    omega
  | _ :: _, [], _, _ => by simp only [dot, List.sum_nil]; omega
  | x :: xs, y :: ys, hE, hH => by
    have h1 := hE x List.mem_cons_self
    have h2 := hH y List.mem_cons_self
    have h3 := dot_of_codes_bounded (fun z m => hE z (List.mem_cons_of_mem x m))
      (fun z m => hH z (List.mem_cons_of_mem y m))
    have h4 := Int.mul_nonneg h1.1 h2
    have h5 := Int.mul_le_mul_of_nonneg_right h1.2 h2
    simp only [dot, List.sum_cons, Int.mul_add]
    omega

end CertHead.Enclosure
