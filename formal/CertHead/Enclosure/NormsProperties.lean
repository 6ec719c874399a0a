import CertHead.Enclosure.Norms
import CertHead.Sum.FdpaProperties

/-!
# Hölder, Cauchy–Schwarz, and what the roundings up guarantee

No square root occurs in a statement: a norm is represented by any integer whose square dominates
the sum of squares.
-/

namespace CertHead.Enclosure

/-! ## Integers -/

/-- A square is not negative. -/
theorem square_nonneg (x : Int) : 0 ≤ x * x := by
  cases Int.le_total 0 x with
  | inl h => exact Int.mul_nonneg h h
  | inr h =>
    have k := Int.mul_nonneg (show 0 ≤ -x by omega) (show 0 ≤ -x by omega)
    rw [Int.neg_mul_neg] at k
    exact k

/-- A magnitude has the square of the number. -/
theorem square_of_magnitude (x : Int) : (x.natAbs : Int) * x.natAbs = x * x := by
  rw [← Int.natCast_mul]
  exact Int.natAbs_mul_self

/-- Comparing squares compares magnitudes. -/
theorem magnitude_le_of_square_le {x b : Int} (hb : 0 ≤ b) (h : x * x ≤ b * b) :
    (x.natAbs : Int) ≤ b := by
  apply Int.not_lt.1
  intro k
  have hx := square_of_magnitude x
  have m : b * b < (x.natAbs : Int) * x.natAbs := by
    have h1 := Int.mul_le_mul_of_nonneg_left (Int.le_of_lt k) hb
    have h2 := Int.mul_lt_mul_of_pos_right k (show 0 < (x.natAbs : Int) by omega)
    omega
  omega

/-- Squaring keeps the order of nonnegative integers. -/
theorem square_le_square {a b : Int} (ha : 0 ≤ a) (h : a ≤ b) : a * a ≤ b * b :=
  Int.mul_le_mul h h ha (Int.le_trans ha h)

/-- A positive factor on both sides can be dropped. -/
theorem le_of_scaled_le {k a b : Int} (hk : 0 < k) (h : k * a ≤ k * b) : a ≤ b :=
  Int.le_of_mul_le_mul_left h hk

/-- `(ab)² = a²b²`. -/
theorem square_mul (a b : Int) : (a * b) * (a * b) = (a * a) * (b * b) := by ac_rfl

/-- The arithmetic and the geometric mean: `2xy ≤ P + Q` when `x² y² ≤ P Q`, here with
`m` for the product `xy`. -/
theorem twice_le_sum_of_square_le_product {m p q : Int} (hp : 0 ≤ p) (hq : 0 ≤ q)
    (h : m * m ≤ p * q) : 2 * m ≤ p + q := by
  have d := square_nonneg (p - q)
  have e : (2 * m) * (2 * m) ≤ (p + q) * (p + q) := by
    have e1 : (2 * m) * (2 * m) = 4 * (m * m) := by rw [square_mul]; omega
    have e2 : (p + q) * (p + q) = (p - q) * (p - q) + 4 * (p * q) := by
      rw [Int.add_mul, Int.mul_add, Int.mul_add, Int.sub_mul, Int.mul_sub, Int.mul_sub, Int.mul_comm q p]
      omega
    omega
  have := magnitude_le_of_square_le (by omega) e
  omega

/-! ## Sums over lists -/

/-- A sum of squares is not negative. -/
theorem sumSq_nonneg (xs : List Int) : 0 ≤ sumSq xs := by
  induction xs with
  | nil => exact Int.le_refl 0
  | cons x xs ih =>
    have := square_nonneg x
    simp only [sumSq]
    omega

/-- A sum of absolute products is not negative. -/
theorem absDot_nonneg : ∀ xs ys : List Int, 0 ≤ absDot xs ys
  | [], _ => Int.le_refl 0
  | _ :: _, [] => Int.le_refl 0
  | x :: xs, y :: ys => by
    have := absDot_nonneg xs ys
    simp only [absDot]
    omega

/-- The magnitude of a dot product is at most the sum of the absolute products. -/
theorem dot_le_absDot : ∀ xs ys : List Int, ((dot xs ys).natAbs : Int) ≤ absDot xs ys
  | [], _ => Int.le_refl 0
  | _ :: _, [] => Int.le_refl 0
  | x :: xs, y :: ys => by
    have := dot_le_absDot xs ys
    simp only [absDot, dot]
    omega

/-- The absolute products are the products of the magnitudes. -/
theorem absDot_eq_dot_of_magnitudes : ∀ xs ys : List Int,
    absDot xs ys = dot (xs.map fun x => (x.natAbs : Int)) (ys.map fun y => (y.natAbs : Int))
  | [], _ => rfl
  | _ :: _, [] => rfl
  | x :: xs, y :: ys => by
    simp only [absDot, List.map_cons, dot, absDot_eq_dot_of_magnitudes xs ys, Int.natAbs_mul,
      Int.natCast_mul]

/-- Taking magnitudes does not change the sum of squares. -/
theorem sumSq_of_magnitudes (xs : List Int) : sumSq (xs.map fun x => (x.natAbs : Int)) = sumSq xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp only [List.map_cons, sumSq, ih, square_of_magnitude]

/-- No element exceeds the largest magnitude. -/
theorem magnitude_le_maxAbs {x : Int} : ∀ {xs : List Int}, x ∈ xs → x.natAbs ≤ maxAbs xs
  | y :: ys, h => by
    cases List.mem_cons.1 h with
    | inl e => subst e; simp only [maxAbs]; omega
    | inr m => have := magnitude_le_maxAbs m; simp only [maxAbs]; omega

/-- The largest magnitude is at most any bound on all of them. -/
theorem maxAbs_le {b : Nat} : ∀ {xs : List Int}, (∀ x, x ∈ xs → x.natAbs ≤ b) → maxAbs xs ≤ b
  | [], _ => Nat.zero_le b
  | y :: ys, h => by
    have h1 := h y List.mem_cons_self
    have h2 := maxAbs_le (b := b) (xs := ys) (fun x m => h x (List.mem_cons_of_mem y m))
    simp only [maxAbs]
    omega

/-- If every `|x_k|` is at most `b`, then `Σ x² ≤ length · b²`. -/
theorem sumSq_le_of_bounded {b : Int} : ∀ {xs : List Int}, (∀ x, x ∈ xs → (x.natAbs : Int) ≤ b) →
    sumSq xs ≤ (xs.length : Int) * (b * b)
  | [], _ => by simp only [sumSq, List.length_nil]; omega
  | x :: xs, h => by
    have ih := sumSq_le_of_bounded (b := b) (xs := xs) (fun y m => h y (List.mem_cons_of_mem x m))
    have hx := h x List.mem_cons_self
    have s : (x.natAbs : Int) * x.natAbs ≤ b * b := square_le_square (by omega) hx
    rw [square_of_magnitude] at s
    simp only [sumSq, List.length_cons, Int.natCast_add, Int.add_mul]
    omega

/-! ## Hölder -/

/-- **Hölder**: `Σ |x_k y_k| ≤ (max |x|) · Σ |y_k|`. -/
theorem absDot_le_max_times_absSum : ∀ xs ys : List Int,
    absDot xs ys ≤ (maxAbs xs : Int) * (absSum ys : Int)
  | [], ys => by
    simp only [absDot, maxAbs]
    exact Int.mul_nonneg (Int.natCast_nonneg 0) (Int.natCast_nonneg _)
  | x :: xs, [] => by
    simp only [absDot]
    exact Int.mul_nonneg (Int.natCast_nonneg _) (Int.natCast_nonneg _)
  | x :: xs, y :: ys => by
    have ih := absDot_le_max_times_absSum xs ys
    have hx : (x.natAbs : Int) ≤ ((max x.natAbs (maxAbs xs) : Nat) : Int) := by omega
    have hm : (maxAbs xs : Int) ≤ ((max x.natAbs (maxAbs xs) : Nat) : Int) := by omega
    have h1 := Int.mul_le_mul_of_nonneg_right hx (show 0 ≤ (y.natAbs : Int) by omega)
    have h2 := Int.mul_le_mul_of_nonneg_right hm (show 0 ≤ (absSum ys : Int) by omega)
    simp only [absDot, maxAbs, absSum_cons, Int.natAbs_mul, Int.natCast_mul, Int.natCast_add, Int.mul_add]
    omega

/-- **Hölder** for the dot product itself: `|Σ x_k y_k| ≤ (max |x|) · Σ |y_k|`. -/
theorem dot_le_max_times_absSum (xs ys : List Int) :
    ((dot xs ys).natAbs : Int) ≤ (maxAbs xs : Int) * (absSum ys : Int) :=
  Int.le_trans (dot_le_absDot xs ys) (absDot_le_max_times_absSum xs ys)

/-- The dot product is the sum of the list of products, as summation trees have it. -/
theorem dot_eq_sum_of_products : ∀ xs ys : List Int, dot xs ys = (List.zipWith (· * ·) xs ys).sum
  | [], _ => by rw [List.zipWith_nil_left, List.sum_nil]; rfl
  | _ :: _, [] => by rw [List.zipWith_nil_right, List.sum_nil]; rfl
  | x :: xs, y :: ys => by
    rw [List.zipWith_cons_cons, List.sum_cons, ← dot_eq_sum_of_products xs ys]; rfl

/-- And `absDot` is the sum of their magnitudes. -/
theorem absDot_eq_absSum_of_products : ∀ xs ys : List Int,
    absDot xs ys = (absSum (List.zipWith (· * ·) xs ys) : Int)
  | [], _ => by rw [List.zipWith_nil_left, absSum_nil]; rfl
  | _ :: _, [] => by rw [List.zipWith_nil_right, absSum_nil]; rfl
  | x :: xs, y :: ys => by
    rw [List.zipWith_cons_cons, absSum_cons, Int.natCast_add, ← absDot_eq_absSum_of_products xs ys]; rfl

/-! ## Cauchy–Schwarz -/

/-- **Cauchy–Schwarz**: `(Σ x_k y_k)² ≤ (Σ x_k²)(Σ y_k²)`. -/
theorem square_of_dot_le : ∀ xs ys : List Int, dot xs ys * dot xs ys ≤ sumSq xs * sumSq ys
  | [], ys => by simp only [dot, sumSq]; omega
  | x :: xs, [] => by simp only [dot, sumSq]; omega
  | x :: xs, y :: ys => by
    have ih := square_of_dot_le xs ys
    have hP := sumSq_nonneg xs
    have hQ := sumSq_nonneg ys
    simp only [dot, sumSq]
    generalize dot xs ys = d at *
    generalize sumSq xs = p at *
    generalize sumSq ys = q at *
    have xx := square_nonneg x
    have yy := square_nonneg y
    have cross : 2 * (x * y * d) ≤ x * x * q + y * y * p := by
      apply twice_le_sum_of_square_le_product (Int.mul_nonneg xx hQ) (Int.mul_nonneg yy hP)
      have k := Int.mul_le_mul_of_nonneg_left ih (Int.mul_nonneg xx yy)
      have e1 : x * y * d * (x * y * d) = x * x * (y * y) * (d * d) := by ac_rfl
      have e2 : x * x * q * (y * y * p) = x * x * (y * y) * (p * q) := by ac_rfl
      omega
    have e1 : (x * y + d) * (x * y + d) = x * x * (y * y) + 2 * (x * y * d) + d * d := by
      rw [Int.add_mul, Int.mul_add, Int.mul_add, square_mul, Int.mul_comm d (x * y)]
      omega
    have e2 : (x * x + p) * (y * y + q) = x * x * (y * y) + x * x * q + (y * y * p + p * q) := by
      rw [Int.add_mul, Int.mul_add, Int.mul_add, Int.mul_comm p (y * y)]
    omega

/-- **Cauchy–Schwarz with upper bounds of the norms**: if the squares of `a` and `b` dominate the
sums of squares, then `|Σ x_k y_k| ≤ a · b`. -/
theorem dot_le_of_norm_bounds {xs ys : List Int} {a b : Int} (ha : 0 ≤ a) (hb : 0 ≤ b)
    (hx : sumSq xs ≤ a * a) (hy : sumSq ys ≤ b * b) : ((dot xs ys).natAbs : Int) ≤ a * b := by
  apply magnitude_le_of_square_le (Int.mul_nonneg ha hb)
  rw [square_mul]
  exact Int.le_trans (square_of_dot_le xs ys)
    (Int.mul_le_mul hx hy (sumSq_nonneg ys) (square_nonneg a))

/-- The same for the sum of absolute products. -/
theorem absDot_le_of_norm_bounds {xs ys : List Int} {a b : Int} (ha : 0 ≤ a) (hb : 0 ≤ b)
    (hx : sumSq xs ≤ a * a) (hy : sumSq ys ≤ b * b) : absDot xs ys ≤ a * b := by
  rw [absDot_eq_dot_of_magnitudes]
  rw [← sumSq_of_magnitudes] at hx hy
  have := dot_le_of_norm_bounds ha hb hx hy
  omega

/-! ## Column groups -/

/-- A dot product is the sum over a cut at any place. -/
theorem dot_eq_take_add_drop : ∀ (n : Nat) (xs ys : List Int),
    dot xs ys = dot (xs.take n) (ys.take n) + dot (xs.drop n) (ys.drop n)
  | 0, xs, ys => by simp only [List.take_zero, List.drop_zero, dot, Int.zero_add]
  | _ + 1, [], ys => by simp only [List.take_nil, List.drop_nil, dot, Int.zero_add]
  | _ + 1, _ :: _, [] => by simp only [List.take_nil, List.drop_nil, List.take_succ_cons, dot,
      List.drop_succ_cons]; cases (List.drop _ _ : List Int) <;> rfl
  | n + 1, x :: xs, y :: ys => by
    have := dot_eq_take_add_drop n xs ys
    simp only [List.take_succ_cons, List.drop_succ_cons, dot]
    omega

/-- Cutting both rows into blocks loses nothing of their dot product. -/
theorem dot_eq_sum_of_blocksUpTo {size : Nat} (hs : 0 < size) : ∀ (fuel : Nat) (xs ys : List Int),
    xs.length = ys.length → xs.length ≤ fuel →
    dot xs ys = (List.zipWith dot (blocksUpTo size fuel xs) (blocksUpTo size fuel ys)).sum
  | 0, [], [], _, _ => by rw [blocksUpTo, List.zipWith_nil_left, List.sum_nil]; rfl
  | _ + 1, [], [], _, _ => by rw [blocksUpTo, List.zipWith_nil_left, List.sum_nil]; rfl
  | fuel + 1, x :: xs, y :: ys, h, hf => by
    have ih := dot_eq_sum_of_blocksUpTo hs fuel ((x :: xs).drop size) ((y :: ys).drop size)
      (by rw [List.length_drop, List.length_drop, h])
      (by rw [List.length_drop]; omega)
    rw [blocksUpTo, blocksUpTo, List.zipWith_cons_cons, List.sum_cons, ← ih]
    exact dot_eq_take_add_drop size (x :: xs) (y :: ys)

/-- **A dot product is the sum over the column groups.** -/
theorem dot_eq_sum_of_groups {size : Nat} (hs : 0 < size) {xs ys : List Int}
    (h : xs.length = ys.length) :
    dot xs ys = (List.zipWith dot (groups size xs) (groups size ys)).sum := by
  unfold groups blocksOf
  rw [← h]
  exact dot_eq_sum_of_blocksUpTo hs _ xs ys h (Nat.le_refl _)

/-! ## Rounding up -/

/-- `⌈n/d⌉ · d` is at least `n`. -/
theorem le_ceilDiv_mul (n : Nat) {d : Nat} (hd : 0 < d) : n ≤ ceilDiv n d * d := by
  have : n + (d - 1) < (n + (d - 1)) / d * d + d := Nat.lt_div_mul_add hd
  unfold ceilDiv
  omega

/-- `⌈n/d⌉` is the smallest such multiple. -/
theorem ceilDiv_le {n d m : Nat} (hd : 0 < d) (h : n ≤ m * d) : ceilDiv n d ≤ m := by
  apply Nat.le_of_lt_succ
  apply (Nat.div_lt_iff_lt_mul hd).2
  rw [Nat.succ_mul]
  omega

/-- `⌈n/d⌉ ≤ m` says exactly `n ≤ m·d`. -/
theorem ceilDiv_le_iff {n d m : Nat} (hd : 0 < d) : ceilDiv n d ≤ m ↔ n ≤ m * d :=
  ⟨fun h => Nat.le_trans (le_ceilDiv_mul n hd) (Nat.mul_le_mul_right d h), ceilDiv_le hd⟩

theorem floorSqrtFrom_spec : ∀ (fuel n : Nat), n ≤ fuel →
    floorSqrtFrom fuel n * floorSqrtFrom fuel n ≤ n ∧
      n < (floorSqrtFrom fuel n + 1) * (floorSqrtFrom fuel n + 1)
  | 0, n, h => by
    have : n = 0 := by omega
    subst this
    exact ⟨Nat.le_refl 0, by decide⟩
  | fuel + 1, n, h => by
    unfold floorSqrtFrom
    by_cases hn : n = 0
    · rw [if_pos hn, hn]
      exact ⟨Nat.le_refl 0, by decide⟩
    · rw [if_neg hn]
      have ih := floorSqrtFrom_spec fuel (n / 4) (by omega)
      generalize floorSqrtFrom fuel (n / 4) = r at ih
      have e0 : 2 * r * (2 * r) = 4 * (r * r) := by
        rw [Nat.mul_mul_mul_comm]
      have e1 : (r + 1) * (r + 1) = r * r + 2 * r + 1 := by
        rw [Nat.add_mul, Nat.mul_add]; omega
      have e2 : (2 * r + 1) * (2 * r + 1) = 4 * (r * r) + 4 * r + 1 := by
        rw [Nat.add_mul, Nat.mul_add, e0]; omega
      have e3 : (2 * r + 1 + 1) * (2 * r + 1 + 1) = 4 * (r * r) + 8 * r + 4 := by
        rw [show 2 * r + 1 + 1 = 2 * (r + 1) by omega, Nat.mul_mul_mul_comm, e1]; omega
      show (if (2 * r + 1) * (2 * r + 1) ≤ n then 2 * r + 1 else 2 * r) * _ ≤ n ∧ _
      by_cases c : (2 * r + 1) * (2 * r + 1) ≤ n
      · rw [if_pos c]; exact ⟨c, by omega⟩
      · rw [if_neg c]; exact ⟨by omega, by omega⟩

/-- `floorSqrt n` is the integer square root. -/
theorem floorSqrt_spec (n : Nat) :
    floorSqrt n * floorSqrt n ≤ n ∧ n < (floorSqrt n + 1) * (floorSqrt n + 1) :=
  floorSqrtFrom_spec n n (Nat.le_refl n)

/-- The square of `ceilSqrt n` is at least `n`. -/
theorem le_ceilSqrt_square (n : Nat) : n ≤ ceilSqrt n * ceilSqrt n := by
  have s := floorSqrt_spec n
  unfold ceilSqrt
  by_cases c : n ≤ floorSqrt n * floorSqrt n
  · simp only [if_pos c]; exact c
  · simp only [if_neg c]; exact Nat.le_of_lt s.2

/-- `ceilSqrt n` is the smallest number whose square is at least `n`. -/
theorem ceilSqrt_le {n r : Nat} (h : n ≤ r * r) : ceilSqrt n ≤ r := by
  have s := floorSqrt_spec n
  apply Nat.not_lt.1
  intro k
  unfold ceilSqrt at k
  by_cases c : n ≤ floorSqrt n * floorSqrt n
  · simp only [if_pos c] at k
    have m := Nat.mul_lt_mul_of_lt_of_lt k k
    omega
  · simp only [if_neg c] at k
    have m := Nat.mul_le_mul (show r ≤ floorSqrt n by omega) (show r ≤ floorSqrt n by omega)
    omega

/-- `⌈√n⌉ ≤ r` says exactly `n ≤ r²`. -/
theorem ceilSqrt_le_iff {n r : Nat} : ceilSqrt n ≤ r ↔ n ≤ r * r :=
  ⟨fun h => Nat.le_trans (le_ceilSqrt_square n) (Nat.mul_le_mul h h), ceilSqrt_le⟩

/-- The rounded-up norm is an upper bound of the norm: `Σ x² ≤ ⌈√(Σ x²)⌉²`. -/
theorem sumSq_le_square_of_ceilSqrt (xs : List Int) :
    sumSq xs ≤ (ceilSqrt (sumSq xs).toNat : Int) * ceilSqrt (sumSq xs).toNat := by
  have h := le_ceilSqrt_square (sumSq xs).toNat
  have e := Int.toNat_of_nonneg (sumSq_nonneg xs)
  rw [← Int.natCast_mul]
  omega

/-! ## Rounding to nearest -/

/-- The nearest integer is within half: `2·|n − d·⌊n/d⌉| ≤ d`. -/
theorem nearestEven_within_half (n : Int) {d : Int} (hd : 0 < d) :
    2 * ((n - d * nearestEven n d).natAbs : Int) ≤ d := by
  have h1 := Int.emod_nonneg (2 * n + d) (show 2 * d ≠ 0 by omega)
  have h2 := Int.emod_lt_of_pos (2 * n + d) (show 0 < 2 * d by omega)
  have h3 := Int.emod_add_mul_ediv (2 * n + d) (2 * d)
  rw [Int.mul_assoc] at h3
  unfold nearestEven
  generalize (2 * n + d) / (2 * d) = q at *
  generalize (2 * n + d) % (2 * d) = m at *
  by_cases c : m = 0 ∧ q % 2 = 1
  · simp only [if_pos c, Int.mul_sub, Int.mul_one]; omega
  · simp only [if_neg c]; omega

/-- A tie goes to the even neighbour. -/
theorem nearestEven_tie_is_even (n : Int) {d : Int} (hd : 0 < d)
    (tie : 2 * ((n - d * nearestEven n d).natAbs : Int) = d) : nearestEven n d % 2 = 0 := by
  have h1 := Int.emod_nonneg (2 * n + d) (show 2 * d ≠ 0 by omega)
  have h2 := Int.emod_lt_of_pos (2 * n + d) (show 0 < 2 * d by omega)
  have h3 := Int.emod_add_mul_ediv (2 * n + d) (2 * d)
  rw [Int.mul_assoc] at h3
  unfold nearestEven at tie ⊢
  generalize (2 * n + d) / (2 * d) = q at *
  generalize (2 * n + d) % (2 * d) = m at *
  by_cases c : m = 0 ∧ q % 2 = 1
  · simp only [if_pos c]; omega
  · simp only [if_neg c] at tie ⊢
    omega

/-- A quotient bounded by an integer rounds to at most that integer. -/
theorem nearestEven_bounded {n d : Int} {b : Int} (hd : 0 < d) (hn : (n.natAbs : Int) ≤ b * d) :
    ((nearestEven n d).natAbs : Int) ≤ b := by
  have h := nearestEven_within_half n hd
  generalize nearestEven n d = q at *
  apply Int.not_lt.1
  intro k
  have m : (b + 1) * d ≤ (q.natAbs : Int) * d :=
    Int.mul_le_mul_of_nonneg_right (by omega) (by omega)
  have e : (q.natAbs : Int) * d = ((d * q).natAbs : Int) := by
    rw [Int.natAbs_mul, Int.natCast_mul, Int.natAbs_of_nonneg (show 0 ≤ d by omega), Int.mul_comm]
  rw [Int.add_mul, Int.one_mul] at m
  omega

/-! ## Remainders -/

/-- Remainders of two lists of one length have that length. -/
theorem length_remainders (d : Int) : ∀ xs ys : List Int, xs.length = ys.length →
    (remainders d xs ys).length = xs.length
  | [], _, _ => rfl
  | _ :: _, [], h => by simp only [List.length_cons, List.length_nil] at h; omega
  | x :: xs, y :: ys, h => by
    simp only [List.length_cons] at h
    simp only [remainders, List.length_cons, length_remainders d xs ys (by omega)]

/-- What was subtracted is the difference: `d · Σ y z = Σ x z - Σ (x - d y) z`, here as squares, since
`d·y = x - e`: the norm of `d · y` is at most the sum of the two norms. -/
theorem norm_of_codes_le {d a b : Int} (ha : 0 ≤ a) (hb : 0 ≤ b) {xs ys : List Int}
    (same : xs.length = ys.length) (hx : sumSq xs ≤ a * a) (he : sumSq (remainders d xs ys) ≤ b * b) :
    d * d * sumSq ys ≤ (a + b) * (a + b) := by
  have expand : ∀ xs ys : List Int, xs.length = ys.length → d * d * sumSq ys =
      sumSq xs - 2 * dot xs (remainders d xs ys) + sumSq (remainders d xs ys) := by
    intro xs
    induction xs with
    | nil =>
      intro ys h
      rw [List.eq_nil_of_length_eq_zero (show ys.length = 0 by simp only [List.length_nil] at h; omega)]
      simp only [sumSq, remainders, dot]
      omega
    | cons x xs ih =>
      intro ys h
      cases ys with
      | nil => simp only [List.length_nil, List.length_cons] at h; omega
      | cons y ys =>
        have k := ih ys (by simp only [List.length_cons] at h; omega)
        have e : d * d * (y * y) = x * x - 2 * (x * (x - d * y)) + (x - d * y) * (x - d * y) := by
          have e1 : d * y * (d * y) = d * d * (y * y) := by ac_rfl
          simp only [Int.sub_mul, Int.mul_sub, e1, Int.mul_comm (d * y) x]
          omega
        simp only [sumSq, remainders, dot]
        rw [Int.mul_add, e, k, Int.mul_add]
        omega
  have c := dot_le_of_norm_bounds ha hb hx he
  have e := expand xs ys same
  have f : (a + b) * (a + b) = a * a + 2 * (a * b) + b * b := by
    rw [Int.add_mul, Int.mul_add, Int.mul_add, Int.mul_comm b a]
    omega
  omega

/-- Splitting both factors: with `w = s·q + e` and `h = u·t + r`,
`Σ w h = s·u·Σ q t + u·Σ e t + Σ w r`. -/
theorem dot_split (s u : Int) : ∀ w q h t : List Int, w.length = q.length → h.length = t.length →
    w.length = h.length →
    dot w h = s * u * dot q t + u * dot (remainders s w q) t + dot w (remainders u h t)
  | [], [], [], [], _, _, _ => by simp only [dot, remainders, Int.mul_zero, Int.zero_add]
  | w :: ws, q :: qs, h :: hs, t :: ts, h1, h2, h3 => by
    simp only [List.length_cons] at h1 h2 h3
    have ih := dot_split s u ws qs hs ts (by omega) (by omega) (by omega)
    simp only [dot, remainders]
    rw [ih]
    have e : w * h = s * u * (q * t) + u * ((w - s * q) * t) + w * (h - u * t) := by
      have e1 : u * (s * q * t) = s * u * (q * t) := by ac_rfl
      have e2 : u * (w * t) = w * (u * t) := by ac_rfl
      rw [Int.sub_mul, Int.mul_sub, Int.mul_sub, e1, e2]
      omega
    rw [Int.mul_add, Int.mul_add, e]
    omega

/-- The absolute products split likewise: `Σ |w h| ≤ u·Σ |w t| + Σ |w r|`. -/
theorem absDot_split {u : Int} (hu : 0 ≤ u) : ∀ w h t : List Int, h.length = t.length →
    absDot w h ≤ u * absDot w t + absDot w (remainders u h t)
  | [], _, _, _ => by simp only [absDot, Int.mul_zero]; omega
  | _ :: _, [], [], _ => by simp only [absDot, remainders, Int.mul_zero]; omega
  | w :: ws, h :: hs, t :: ts, h2 => by
    simp only [List.length_cons] at h2
    have ih := absDot_split hu ws hs ts (by omega)
    have e : w * h = u * (w * t) + w * (h - u * t) := by
      have e2 : u * (w * t) = w * (u * t) := by ac_rfl
      rw [Int.mul_sub, e2]
      omega
    have m : ((u * (w * t)).natAbs : Int) = u * ((w * t).natAbs : Int) := by
      rw [Int.natAbs_mul, Int.natCast_mul, Int.natAbs_of_nonneg hu]
    simp only [absDot, remainders, Int.mul_add]
    omega

end CertHead.Enclosure
