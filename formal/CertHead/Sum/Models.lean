import CertHead.Sum.FdpaProperties
/-!
# The error models of the stock accumulator

What `pyref.models` states as numbers: `any_order` (γ = n·u/(1 - n·u), n = 2K, u = 2^-23) and the
Hopper chain (γ = (1+p)^⌈K/16⌉ - 1, p = 17·2^-25 + 2^-23), each derived for machines that are
defined here and not assumed; and what the fused adder does *not* have: monotonicity.
-/

namespace CertHead

/-! ## Rounded additions are nodes -/

/-- Rounding in any direction moves a value by at most one spacing. -/
theorem Mode.round_error (mode : Mode) (g : Grid) (x : Int) :
    (mode.round g x - x).natAbs ≤ g.quantum x.natAbs := by
  have h1 := roundDown_le g x
  have h2 := lt_roundDown_add_quantum g x
  have h3 := le_roundUp g x
  have h4 := roundUp_lt_add_quantum g x
  have h5 := roundNE_half_ulp g x
  cases mode <;> unfold Mode.round
  · simp only; omega
  · simp only
    rcases roundZ_eq_roundDown_or_roundUp g x with h | h <;> rw [h] <;> omega
  · simp only; omega
  · simp only; omega

/-- A sum rounded once, in a named direction. -/
def roundedSum (mode : Mode) (g : Grid) (xs : List Int) : Int := mode.round g xs.sum

/-- An addition rounded once, in a named direction. -/
def roundedAdd (mode : Mode) (g : Grid) (x y : Int) : Int := mode.round g (x + y)

/-- The node error of one rounding in any direction: `u = 2^(1-prec)`, 2^-23 for FP32. -/
def anyDirection (g : Grid) : NodeError := ⟨1, 2 ^ (g.prec - 1), 2 ^ g.qmin⟩

/-- The node error of one rounding to nearest: `u = 2^-prec`, 2^-24 for FP32. -/
def nearest (g : Grid) : NodeError := ⟨1, 2 ^ g.prec, 2 ^ g.qmin⟩

/-- **An exact sum of any number of values, rounded once in any direction, is a node** with
`u = 2^(1-prec)`. -/
theorem roundedSum_admits {g : Grid} (hp : 1 ≤ g.prec) (mode : Mode) (xs : List Int) :
    (anyDirection g).Admits 1 xs (roundedSum mode g xs) := by
  have h1 := Nat.mul_le_mul_left (2 ^ (g.prec - 1)) (mode.round_error g xs.sum)
  have h2 := quantum_relative_or_subnormal hp xs.sum.natAbs
  have h3 := natAbs_sum_le_absSum xs
  unfold NodeError.Admits anyDirection roundedSum
  simp only [Nat.one_mul]
  omega

/-- **An exact sum rounded once to nearest is a node** with `u = 2^-prec`. -/
theorem roundedSum_nearest_admits {g : Grid} (hp : 1 ≤ g.prec) (xs : List Int) :
    (nearest g).Admits 1 xs (roundedSum .nearestEven g xs) := by
  have h1 := Nat.mul_le_mul_left (2 ^ (g.prec - 1)) (roundNE_half_ulp g xs.sum)
  have h2 := quantum_relative_or_subnormal hp xs.sum.natAbs
  have h3 := natAbs_sum_le_absSum xs
  have h4 : 2 ^ g.prec = 2 ^ (g.prec - 1) * 2 := by
    rw [← Nat.pow_succ]
    exact congrArg (2 ^ ·) (by omega)
  unfold NodeError.Admits nearest roundedSum Mode.round
  simp only [Nat.one_mul]
  rw [h4, Nat.mul_assoc, Nat.mul_assoc]
  have h5 : 2 ^ (g.prec - 1) * (2 * 2 ^ g.qmin)
      = 2 ^ (g.prec - 1) * 2 ^ g.qmin + 2 ^ (g.prec - 1) * 2 ^ g.qmin := by
    rw [Nat.two_mul, Nat.mul_add]
  omega

theorem sum_pair (x y : Int) : [x, y].sum = x + y := by
  rw [List.sum_cons, List.sum_cons, List.sum_nil, Int.add_zero]

/-- Rounded two-term additions, in any direction, make the shapes of `TreeProperties` obey. -/
theorem roundedAdd_within {g : Grid} (hp : 1 ≤ g.prec) (mode : Mode) :
    SumTree.AddWithin (anyDirection g) (roundedAdd mode g) := fun x y => by
  have h := roundedSum_admits hp mode [x, y]
  unfold roundedSum at h
  rw [sum_pair] at h
  exact h

/-- The same for rounding to nearest with the halved unit. -/
theorem roundedAdd_nearest_within {g : Grid} (hp : 1 ≤ g.prec) :
    SumTree.AddWithin (nearest g) (roundedAdd .nearestEven g) := fun x y => by
  have h := roundedSum_nearest_admits hp [x, y]
  unfold roundedSum at h
  rw [sum_pair] at h
  exact h

/-- Where the scale is no finer than the smallest subnormal, every integer below `2^prec` is on the
grid, so a rounded sum has a relative error only. FP64 on the scale of BF16 products is such. -/
theorem roundedSum_nearest_admits_without_floor {g : Grid} (hp : 1 ≤ g.prec) (hq : g.qmin = 0)
    (xs : List Int) : (⟨1, 2 ^ g.prec, 0⟩ : NodeError).Admits 1 xs (roundedSum .nearestEven g xs) := by
  have h3 := natAbs_sum_le_absSum xs
  unfold NodeError.Admits roundedSum Mode.round
  simp only [Nat.one_mul, Nat.mul_zero, Nat.add_zero]
  by_cases hn : 2 ^ (g.qmin + g.prec - 1) ≤ xs.sum.natAbs
  · exact Nat.le_trans (roundNE_relative_error hp hn) h3
  · have h1 := roundNE_subnormal_error hp (x := xs.sum)
      (Nat.lt_of_lt_of_le (Nat.lt_of_not_le hn) (two_pow_le_two_pow (by omega)))
    rw [hq, Nat.pow_zero] at h1
    have h2 : (roundNE g xs.sum - xs.sum).natAbs = 0 := by omega
    rw [h2, Nat.mul_zero]
    exact Nat.zero_le _

theorem roundedAdd_nearest_within_without_floor {g : Grid} (hp : 1 ≤ g.prec) (hq : g.qmin = 0) :
    SumTree.AddWithin ⟨1, 2 ^ g.prec, 0⟩ (roundedAdd .nearestEven g) := fun x y => by
  have h := roundedSum_nearest_admits_without_floor hp hq [x, y]
  unfold roundedSum at h
  rw [sum_pair] at h
  exact h

/-- **The `fold` of the specification's enclosed rescore**: halving `2^k` integers with additions
rounded to nearest is within `k·u/(1 - k·u)` of the exact sum, `u = 2^-prec`. -/
theorem foldHalves_bound {g : Grid} (hp : 1 ≤ g.prec) (hq : g.qmin = 0) {k : Nat}
    (hk : k ≤ 2 ^ g.prec) {xs : List Int} (hlen : xs.length = 2 ^ k) :
    (2 ^ g.prec - k) * (foldHalves (roundedAdd .nearestEven g) k xs - xs.sum).natAbs
      ≤ k * absSum xs := by
  have hob := SumTree.halving_obeys (roundedAdd_nearest_within_without_floor hp hq) k (xs.map .leaf)
    (SumTree.obeysList_map_leaf _ xs)
  have hd := SumTree.halving_depth (roundedAdd .nearestEven g) k (xs.map .leaf)
  have hl := SumTree.halving_leaves (roundedAdd .nearestEven g) k (xs.map .leaf)
    (by rw [List.length_map]; exact hlen)
  have hv := SumTree.halving_value (roundedAdd .nearestEven g) k (xs.map .leaf)
  rw [SumTree.depthList_map_leaf, Nat.zero_add] at hd
  rw [SumTree.leavesList_map_leaf] at hl
  rw [SumTree.map_value_map_leaf] at hv
  have h := SumTree.sum_closed_gamma_bound (Nat.two_pow_pos _) hob hd
    (by simp only [Nat.mul_one]; exact hk)
  rw [SumTree.error, hv, hl.1, hl.2] at h
  simp only [Nat.mul_one, Nat.mul_zero, Nat.add_zero] at h
  exact h

/-! ## The usual shapes, rounded -/

/-- **Sequential**: `n` additions in turn, each rounded in any direction, `u = 2^(1-prec)`:
`|s - Σx| ≤ ((1+u)^n - 1)·Σ|x| + (1+u)^n·n·2^qmin`. -/
theorem sequential_sum_bound {g : Grid} (hp : 1 ≤ g.prec) (mode : Mode) (xs : List Int) :
    (2 ^ (g.prec - 1)) ^ xs.length * (xs.foldl (roundedAdd mode g) 0 - xs.sum).natAbs
      ≤ ((2 ^ (g.prec - 1) + 1) ^ xs.length - (2 ^ (g.prec - 1)) ^ xs.length) * absSum xs
        + (2 ^ (g.prec - 1) + 1) ^ xs.length * (xs.length * 2 ^ g.qmin) := by
  have h := SumTree.sum_gamma_bound (Nat.two_pow_pos _)
    (SumTree.sequentialTerms_obeys (roundedAdd_within hp mode) 0 xs)
    (SumTree.sequentialTerms_depth (roundedAdd mode g) 0 xs)
  have hn : (SumTree.sequentialTerms (roundedAdd mode g) 0 xs).nodeCount = xs.length := by
    rw [SumTree.sequentialTerms, SumTree.sequential_nodeCount, SumTree.nodeCount,
      SumTree.nodeCountList_map_leaf, List.length_map]
    omega
  rw [SumTree.error, SumTree.sequentialTerms_value, SumTree.sequentialTerms_leaves, hn,
    List.sum_cons, Int.zero_add, absSum_cons, Int.natAbs_zero, Nat.zero_add] at h
  exact h

/-- **Pairwise**: `n ≤ 2^k` terms, additions rounded to nearest on a grid without a floor:
`|s - Σx| ≤ ((1+u)^k - 1)·Σ|x|`, `u = 2^-prec`. -/
theorem pairwise_sum_bound {g : Grid} (hp : 1 ≤ g.prec) (hq : g.qmin = 0) {k : Nat} {xs : List Int}
    (h0 : 0 < xs.length) (hk : xs.length ≤ 2 ^ k) :
    (2 ^ g.prec) ^ k
        * ((SumTree.pairwise (roundedAdd .nearestEven g) k (xs.map .leaf)).value - xs.sum).natAbs
      ≤ ((2 ^ g.prec + 1) ^ k - (2 ^ g.prec) ^ k) * absSum xs := by
  have hd := SumTree.pairwise_depth (roundedAdd .nearestEven g) k (xs.map .leaf)
  have hl := SumTree.pairwise_leaves (roundedAdd .nearestEven g) k (xs.map .leaf)
    (by rw [List.length_map]; exact h0) (by rw [List.length_map]; exact hk)
  rw [SumTree.depthList_map_leaf, Nat.zero_add] at hd
  rw [SumTree.leavesList_map_leaf] at hl
  have h := SumTree.sum_gamma_bound (Nat.two_pow_pos _)
    (SumTree.pairwise_obeys (roundedAdd_nearest_within_without_floor hp hq) k _
      (SumTree.obeysList_map_leaf _ xs)) hd
  rw [SumTree.error, hl] at h
  simp only [Nat.mul_zero, Nat.add_zero] at h
  exact h

/-- **Blocked, and split-K with partial results in the same format**: blocks of at most `b` terms,
`n = b + number of blocks`, each addition rounded in any direction: the γ bound with depth `n`. -/
theorem blocked_sum_bound {g : Grid} (hp : 1 ≤ g.prec) (mode : Mode) {blocks : List (List Int)}
    {b n : Nat} (hb : ∀ xs ∈ blocks, xs.length ≤ b) (hn : n = b + blocks.length) :
    (2 ^ (g.prec - 1)) ^ n
        * ((SumTree.blocked (roundedAdd mode g) blocks).value - blocks.flatten.sum).natAbs
      ≤ ((2 ^ (g.prec - 1) + 1) ^ n - (2 ^ (g.prec - 1)) ^ n) * absSum blocks.flatten
        + (2 ^ (g.prec - 1) + 1) ^ n
          * ((SumTree.blocked (roundedAdd mode g) blocks).nodeCount * 2 ^ g.qmin) := by
  have hl := SumTree.blocked_leaves (roundedAdd mode g) blocks
  have h := SumTree.sum_gamma_bound (Nat.two_pow_pos _)
    (SumTree.blocked_obeys (roundedAdd_within hp mode) blocks)
    (n := n) (by rw [hn]; exact SumTree.blocked_depth _ hb)
  rw [SumTree.error, hl.1, hl.2] at h
  exact h

/-! ## The any-order model -/

/-- **`any_order`**: FP32 partial results in any order and any split, any rounding direction, any
fused adders of at most as many unit errors as addends, and two more roundings on a path. For
`K ≤ 2^16` terms `|returned - exact| ≤ γ·A + (1+γ)·N·floor`, `γ = 2Ku/(1 - 2Ku)`, `u = 2^-23`. -/
theorem any_order_bound {floor : Nat} {t : SumTree} (hob : t.Obeys ⟨1, 2 ^ 23, floor⟩)
    (hany : t.AnyOrder) (hunary : t.unaryDepth ≤ 2) {K : Nat} (hK : t.leaves.length ≤ K)
    (hrange : K ≤ 2 ^ 16) :
    (2 ^ 23 - 2 * K) * t.error ≤ 2 * K * absSum t.leaves + 2 ^ 23 * (t.nodeCount * floor) := by
  have h := SumTree.sum_any_order_bound (e := ⟨1, 2 ^ 23, floor⟩) (Nat.two_pow_pos 23) hob hany
    hunary hK (by simp only [Nat.mul_one]; omega)
  simp only [Nat.mul_one] at h
  exact h

/-! ## BF16 products -/

/-- A BF16 value with an exponent of at most `r`, in the form `sig · 2^(exp - 7)`. -/
structure Operand.Bf16 (r : Int) (a : Operand) : Prop where
  sig_lt : a.sig.natAbs < 2 ^ 8
  exp_ge : -126 ≤ a.exp
  exp_le : a.exp ≤ r
  normal_or_lowest : 2 ^ 7 ≤ a.sig.natAbs ∨ a.exp = -126

/-- **Every finite BF16 pattern decodes to a BF16 value**, with the exponent of its field. -/
theorem decodeBf16_bf16 {bits : Nat} {a : Operand} (h : decodeBf16 bits = some a) :
    a.Bf16 ((max (bits / 128 % 256) 1 : Nat) - 127) := by
  unfold decodeBf16 at h
  have hm : bits % 128 < 128 := Nat.mod_lt _ (by omega)
  by_cases h255 : bits / 128 % 256 = 255
  · simp only [if_pos h255] at h
    exact nomatch h
  · simp only [if_neg h255, Option.some.injEq] at h
    subst h
    by_cases h0 : bits / 128 % 256 = 0
    · refine ⟨?_, ?_, Int.le_refl _, .inr ?_⟩
      · simp only [if_pos h0]; split <;> omega
      · simp only; omega
      · simp only; omega
    · refine ⟨?_, ?_, Int.le_refl _, .inl ?_⟩
      · simp only [if_neg h0]; split <;> omega
      · simp only; omega
      · simp only [if_neg h0]; split <;> omega

/-- Finite BF16 patterns below `2^16` in magnitude: the exponent field is at most 142. -/
theorem decodeBf16_below_two_pow_16 {bits : Nat} (h : bits / 128 % 256 ≤ 142) :
    ∃ a, decodeBf16 bits = some a ∧ a.Bf16 15 := by
  have h255 : ¬ bits / 128 % 256 = 255 := by omega
  have hs : ∃ a, decodeBf16 bits = some a := by
    unfold decodeBf16
    simp only [if_neg h255, Option.some.injEq, exists_eq']
  obtain ⟨a, ha⟩ := hs
  have hb := decodeBf16_bf16 ha
  exact ⟨a, ha, hb.sig_lt, hb.exp_ge, by have := hb.exp_le; omega, hb.normal_or_lowest⟩

namespace Fdpa

/-- A zero takes part in the largest exponent at most as the smallest normal number does. -/
def ZeroIsSmall (zeroExp : Option Int) : Prop := ∀ z, zeroExp = some z → z ≤ -126

theorem zeroIsSmall_none : ZeroIsSmall none := fun _ h => nomatch h

theorem zeroIsSmall_some {z : Int} (h : z ≤ -126) : ZeroIsSmall (some z) := fun _ e =>
  Option.some.inj e ▸ h

theorem two_pow_zeroTermExp_le {m : Fdpa} (hz : ZeroIsSmall m.zeroExp) :
    2 ^ m.zeroTermExp ≤ 2 ^ (m.scale - 126) := by
  refine two_pow_le_two_pow ?_
  unfold zeroTermExp
  cases h : m.zeroExp with
  | none =>
    simp only
    omega
  | some z =>
    have := hz z h
    simp only
    omega

theorem product_value {m : Fdpa} (hm : m.inputPrec = 8) (a b : Operand) :
    (m.product a b).value = a.sig * b.sig * 2 ^ (m.scale + a.exp + b.exp - 14).toNat := by
  have he : (m.scale + a.exp + b.exp - 2 * ((m.inputPrec : Int) - 1)) = m.scale + a.exp + b.exp - 14 := by
    omega
  unfold product
  rw [he]

theorem natAbs_product_value {m : Fdpa} (hm : m.inputPrec = 8) (a b : Operand) :
    (m.product a b).value.natAbs
      = a.sig.natAbs * b.sig.natAbs * 2 ^ (m.scale + a.exp + b.exp - 14).toNat := by
  rw [product_value hm, Int.natAbs_mul, Int.natAbs_mul, natAbs_two_pow]

theorem product_exp_of_nonzero {m : Fdpa} {a b : Operand} (h : a.sig * b.sig ≠ 0) :
    (m.product a b).exp = (m.scale + a.exp + b.exp).toNat := if_neg h

theorem product_exp_of_zero {m : Fdpa} {a b : Operand} (h : a.sig * b.sig = 0) :
    (m.product a b).exp = m.zeroTermExp := if_pos h

/-- **The exponent of a product is at most that of its magnitude**, except where an operand is
subnormal or zero; then it is at most `r - 126`. -/
theorem product_covered {m : Fdpa} (hm : m.inputPrec = 8) (hB : 266 ≤ m.scale)
    (hz : ZeroIsSmall m.zeroExp) {r : Int} (hr : 0 ≤ r) {a b : Operand} (ha : a.Bf16 r)
    (hb : b.Bf16 r) :
    2 ^ (m.product a b).exp ≤ (m.product a b).value.natAbs + 2 ^ (m.scale - 126 + r).toNat := by
  by_cases h : a.sig * b.sig = 0
  · have h1 := two_pow_zeroTermExp_le hz
    have h2 : 2 ^ (m.scale - 126) ≤ 2 ^ (m.scale - 126 + r).toNat := two_pow_le_two_pow (by omega)
    rw [product_exp_of_zero h]
    omega
  · rw [product_exp_of_nonzero h, natAbs_product_value hm]
    have h3 := ha.exp_ge
    have h4 := hb.exp_ge
    by_cases hn : 2 ^ 7 ≤ a.sig.natAbs ∧ 2 ^ 7 ≤ b.sig.natAbs
    · have h5 : (m.scale + a.exp + b.exp).toNat
          = 7 + 7 + (m.scale + a.exp + b.exp - 14).toNat := by omega
      rw [h5, Nat.pow_add, Nat.pow_add]
      refine Nat.le_trans (Nat.mul_le_mul_right _ ?_) (Nat.le_add_right _ _)
      exact Nat.mul_le_mul hn.1 hn.2
    · have h1 := ha.exp_le
      have h2 := hb.exp_le
      have h5 := ha.normal_or_lowest
      have h6 := hb.normal_or_lowest
      have h7 : 2 ^ (m.scale + a.exp + b.exp).toNat ≤ 2 ^ (m.scale - 126 + r).toNat :=
        two_pow_le_two_pow (by omega)
      omega

/-- **The leading term is never cut**: a product has at most 14 bits below its exponent. -/
theorem product_aligned {m : Fdpa} (hm : m.inputPrec = 8) (hF : 14 ≤ m.fraction) (a b : Operand) :
    (2 : Int) ^ ((m.product a b).exp - m.fraction) ∣ (m.product a b).value := by
  rw [product_value hm]
  by_cases h : a.sig * b.sig = 0
  · rw [h, Int.zero_mul]
    exact Int.dvd_zero _
  · rw [product_exp_of_nonzero h]
    refine Int.dvd_trans (two_pow_dvd_two_pow ?_) (Int.dvd_mul_left _ _)
    omega

/-- A product of two BF16 values with exponents of at most 15 is below `2^32`. -/
theorem natAbs_product_lt {m : Fdpa} (hm : m.inputPrec = 8) {a b : Operand}
    (ha : a.Bf16 15) (hb : b.Bf16 15) : (m.product a b).value.natAbs ≤ 2 ^ (m.scale + 32) := by
  rw [natAbs_product_value hm]
  have h1 := ha.sig_lt
  have h2 := hb.sig_lt
  have h3 := ha.exp_le
  have h4 := hb.exp_le
  have h5 : a.sig.natAbs * b.sig.natAbs ≤ 2 ^ 8 * 2 ^ 8 := Nat.mul_le_mul (by omega) (by omega)
  have h6 : 2 ^ (m.scale + a.exp + b.exp - 14).toNat ≤ 2 ^ (m.scale + 16) :=
    two_pow_le_two_pow (by omega)
  calc a.sig.natAbs * b.sig.natAbs * 2 ^ (m.scale + a.exp + b.exp - 14).toNat
      ≤ 2 ^ 8 * 2 ^ 8 * 2 ^ (m.scale + 16) := Nat.mul_le_mul h5 h6
    _ = 2 ^ (m.scale + 32) := by
      rw [← Nat.pow_add, ← Nat.pow_add]
      exact congrArg (2 ^ ·) (by omega)

theorem products_forall {m : Fdpa} {P : Operand → Prop} {Q : FdpaTerm → Prop}
    (hPQ : ∀ a b, P a → P b → Q (m.product a b)) :
    ∀ {a b : List Operand}, (∀ x ∈ a, P x) → (∀ x ∈ b, P x) → ∀ t ∈ m.products a b, Q t
  | [], _, _, _, _, ht => nomatch ht
  | _ :: _, [], _, _, _, ht => nomatch ht
  | x :: a, y :: b, ha, hb, t, ht => by
    rw [products, List.zipWith_cons_cons] at ht
    rcases List.mem_cons.1 ht with rfl | ht
    · exact hPQ x y (ha x (List.mem_cons_self ..)) (hb y (List.mem_cons_self ..))
    · exact products_forall hPQ (fun u hu => ha u (List.mem_cons_of_mem _ hu))
        (fun u hu => hb u (List.mem_cons_of_mem _ hu)) t ht

theorem magnitude_le {X : Nat} {ts : List FdpaTerm} (h : ∀ t ∈ ts, t.value.natAbs ≤ X) :
    magnitude ts ≤ ts.length * X := by
  induction ts with
  | nil => exact Nat.zero_le _
  | cons t ts ih =>
    have h1 := h t (List.mem_cons_self ..)
    have h2 := ih fun s hs => h s (List.mem_cons_of_mem _ hs)
    rw [magnitude_cons, List.length_cons, Nat.add_mul, Nat.one_mul]
    omega

theorem products_length (m : Fdpa) {a b : List Operand} {K : Nat} (ha : a.length = K)
    (hb : b.length = K) : (m.products a b).length = K := by
  unfold products
  rw [List.length_zipWith, ha, hb, Nat.min_self]

/-! ## The Hopper chain -/

theorem hopper_acc_prec (B : Nat) (z : Option Int) : (hopper B z).acc.prec = 24 := rfl

theorem hopper_acc_qmin (B : Nat) (z : Option Int) : (hopper B z).acc.qmin = B - 149 := by
  unfold hopper Format.grid fp32
  simp only
  omega

theorem hopper_acc_top (B : Nat) (z : Option Int) : (hopper B z).acc.top = B + 128 := by
  unfold hopper Format.grid fp32
  simp only
  omega

/-- The slack of rows below `2^16`: a subnormal or zero operand times one below `2^16`. -/
theorem hopper_covered {B : Nat} (hB : 277 ≤ B) {z : Option Int} (hz : ZeroIsSmall z)
    {a b : List Operand} (ha : ∀ x ∈ a, x.Bf16 15) (hb : ∀ x ∈ b, x.Bf16 15) :
    Covered (2 ^ (B - 111)) ((hopper B z).products a b) := by
  refine products_forall (P := Operand.Bf16 15) (fun x y hx hy => ?_) ha hb
  have h := product_covered (m := hopper B z) rfl (show 266 ≤ B by omega) hz (by omega) hx hy
  have e : (((hopper B z).scale : Int) - 126 + 15).toNat = B - 111 := by
    show ((B : Int) - 126 + 15).toNat = B - 111
    omega
  rw [e] at h
  exact h

theorem hopper_accExp {B : Nat} (hB : 277 ≤ B) {z : Option Int} (hz : ZeroIsSmall z) (c : Int) :
    2 ^ (hopper B z).accExp c ≤ c.natAbs + 2 ^ (B - 111) := by
  refine two_pow_accExp_le (by rw [hopper_acc_prec]; omega) ?_ ?_ c
  · rw [hopper_acc_qmin, hopper_acc_prec]
    exact two_pow_le_two_pow (by omega)
  · have h := two_pow_zeroTermExp_le (m := hopper B z) hz
    have e : ((hopper B z).scale : Nat) = B := rfl
    rw [e] at h
    exact Nat.le_trans h (two_pow_le_two_pow (by omega))

/-- The absolute part of one step's error, in a form without division. -/
theorem hopper_floor_le {B : Nat} (hB : 277 ≤ B) (z : Option Int) :
    ((hopper B z).nodeError (2 ^ (B - 111)) 16).floor ≤ 2 ^ (B - 131) := by
  have e : ((hopper B z).nodeError (2 ^ (B - 111)) 16).floor
      = 16 * 2 ^ (B - 111) / 2 ^ 25 + 1 + 2 ^ (hopper B z).acc.qmin := rfl
  have h1 : 16 * 2 ^ (B - 111) / 2 ^ 25 = 2 ^ (B - 132) := by
    have : 16 * 2 ^ (B - 111) = 2 ^ (B - 132) * 2 ^ 25 := by
      rw [← Nat.pow_add, show (16 : Nat) = 2 ^ 4 from rfl, ← Nat.pow_add]
      exact congrArg (2 ^ ·) (by omega)
    rw [this, Nat.mul_div_cancel _ (Nat.two_pow_pos 25)]
  have h2 : 2 * 2 ^ (B - 149) ≤ 2 ^ (B - 132) := by
    rw [← Nat.pow_succ']
    exact two_pow_le_two_pow (by omega)
  have h3 := Nat.two_pow_pos (B - 149)
  have h4 : 2 ^ (B - 131) = 2 * 2 ^ (B - 132) := by
    rw [← Nat.pow_succ']
    exact congrArg (2 ^ ·) (by omega)
  rw [e, h1, hopper_acc_qmin]
  omega

theorem hopper_aligned (B : Nat) (z : Option Int) (a b : List Operand) :
    (hopper B z).Aligned ((hopper B z).products a b) :=
  products_forall (P := fun _ => True)
    (fun x y _ _ => product_aligned (m := hopper B z) rfl (show 14 ≤ 25 by omega) x y)
    (fun _ _ => trivial) (fun _ _ => trivial)

/-- Every step of the Hopper chain over rows below `2^16` is a node of unit
`16·2^-25 + 2^-23 = 20·2^-25`. -/
theorem hopper_step_admits {B : Nat} (hB : 277 ≤ B) {z : Option Int} (hz : ZeroIsSmall z)
    {a b : List Operand} (ha : ∀ x ∈ a, x.Bf16 15) (hb : ∀ x ∈ b, x.Bf16 15) {c : Int}
    (hc : Representable (hopper B z).acc c) {ts : List FdpaTerm} (hlen : ts.length ≤ 16)
    (hts : ∀ t ∈ ts, t ∈ (hopper B z).products a b) :
    ((hopper B z).nodeError (2 ^ (B - 111)) 16).Admits 1 (c :: ts.map FdpaTerm.value)
      ((hopper B z).step c ts) :=
  step_admits_tight (m := hopper B z) (by rw [hopper_acc_prec]; omega) (show 24 ≤ 25 + 1 by omega)
    hc hlen (hopper_accExp hB hz c) (fun t ht => hopper_covered hB hz ha hb t (hts t ht))
    (fun t ht => hopper_aligned B z a b t (hts t ht))

/-- **The Hopper chain with the leading term uncut** (`fdpa_tight`): for rows below `2^16` the chain
over `K` products is within `γ·Σ|w·h| + (1+γ)·s·2^-131` of the exact dot product, `γ = (1+p)^s - 1`,
`p = 16·2^-25 + 2^-23 = 20·2^-25`, `s = ⌈K/16⌉`. Nothing about the arithmetic is assumed: `dot` is
the machine. -/
theorem hopper_dot_gamma_bound_tight {B : Nat} (hB : 277 ≤ B) {z : Option Int} (hz : ZeroIsSmall z)
    {a b : List Operand} (ha : ∀ x ∈ a, x.Bf16 15) (hb : ∀ x ∈ b, x.Bf16 15) {K s : Nat}
    (haK : a.length = K) (hbK : b.length = K) (hs : s = (K + 15) / 16) :
    (2 ^ 25) ^ s * ((hopper B z).dot a b - exactSum ((hopper B z).products a b)).natAbs
      ≤ ((2 ^ 25 + 20) ^ s - (2 ^ 25) ^ s) * magnitude ((hopper B z).products a b)
        + (2 ^ 25 + 20) ^ s * (s * 2 ^ (B - 131)) := by
  have h := chainOf_gamma_bound (m := hopper B z) (e := (hopper B z).nodeError (2 ^ (B - 111)) 16)
    (by decide : 0 < 16) (by rw [hopper_acc_prec]; omega) (Nat.two_pow_pos 25)
    (ts := (hopper B z).products a b)
    (fun c hc d hd hmem => hopper_step_admits hB hz ha hb hc hd hmem)
    (representable_zero _) (s := s) (by rw [products_length _ haK hbK]; exact hs)
  rw [Int.natAbs_zero, Nat.zero_add, Int.zero_add] at h
  refine Nat.le_trans h (Nat.add_le_add_left (Nat.mul_le_mul_left _ ?_) _)
  exact Nat.mul_le_mul_left _ (hopper_floor_le hB z)

/-- **The `hopper` model** of `pyref.models`: the same with all 17 terms counted as cut,
`p = 17·2^-25 + 2^-23 = 21·2^-25`. -/
theorem hopper_dot_gamma_bound {B : Nat} (hB : 277 ≤ B) {z : Option Int} (hz : ZeroIsSmall z)
    {a b : List Operand} (ha : ∀ x ∈ a, x.Bf16 15) (hb : ∀ x ∈ b, x.Bf16 15) {K s : Nat}
    (haK : a.length = K) (hbK : b.length = K) (hs : s = (K + 15) / 16) :
    (2 ^ 25) ^ s * ((hopper B z).dot a b - exactSum ((hopper B z).products a b)).natAbs
      ≤ ((2 ^ 25 + 21) ^ s - (2 ^ 25) ^ s) * magnitude ((hopper B z).products a b)
        + (2 ^ 25 + 21) ^ s * (s * 2 ^ (B - 131)) := by
  have h := hopper_dot_gamma_bound_tight hB hz ha hb haK hbK hs
  have hp : (2 ^ 25 + 20) ^ s ≤ (2 ^ 25 + 21) ^ s := Nat.pow_le_pow_left (by omega) s
  exact Nat.le_trans h (Nat.add_le_add (Nat.mul_le_mul_right _ (Nat.sub_le_sub_right hp _))
    (Nat.mul_le_mul_right _ hp))

/-- **Nothing overflows** in the stock accumulator of rows below `2^16`, `K ≤ 2^16`. -/
theorem hopper_dot_never_overflows {B : Nat} {z : Option Int}
    {a b : List Operand} (ha : ∀ x ∈ a, x.Bf16 15) (hb : ∀ x ∈ b, x.Bf16 15) {K : Nat}
    (haK : a.length = K) (hbK : b.length = K) (hK : K ≤ 2 ^ 16) :
    (hopper B z).chain? 0 (blocksOf 16 ((hopper B z).products a b))
      = some ((hopper B z).dot a b) := by
  refine chain?_eq_some (by rw [hopper_acc_prec]; omega) _ ?_
  rw [blocksOf_flatten (by omega), Int.natAbs_zero, Nat.zero_add, hopper_acc_top]
  have h1 := magnitude_le (products_forall (m := hopper B z) (P := Operand.Bf16 15)
    (Q := fun t => t.value.natAbs ≤ 2 ^ (B + 32)) (fun x y hx hy => natAbs_product_lt rfl hx hy) ha hb)
  rw [products_length _ haK hbK] at h1
  have h2 : K * 2 ^ (B + 32) ≤ 2 ^ 16 * 2 ^ (B + 32) := Nat.mul_le_mul_right _ hK
  have h3 : 2 ^ 16 * 2 ^ (B + 32) < 2 ^ (B + 128) := by
    rw [← Nat.pow_add]
    exact Nat.pow_lt_pow_right (by omega) (by omega)
  omega

/-- With at most `2^12` steps the growth factor `(1+p)^s` is below two. -/
theorem hopper_growth_le_two {s : Nat} (hs : s ≤ 2 ^ 12) : (2 ^ 25 + 20) ^ s ≤ 2 * (2 ^ 25) ^ s := by
  have h1 := one_sub_mul_pow_le (2 ^ 25) 20 s
  have h2 : 2 ^ 24 * (2 ^ 25 + 20) ^ s ≤ (2 ^ 25 - s * 20) * (2 ^ 25 + 20) ^ s :=
    Nat.mul_le_mul_right _ (by omega)
  refine Nat.le_of_mul_le_mul_left (c := 2 ^ 24) ?_ (Nat.two_pow_pos 24)
  have h3 : 2 ^ 24 * (2 * (2 ^ 25) ^ s) = 2 ^ 25 * (2 ^ 25) ^ s := by
    rw [← Nat.mul_assoc]
  omega

/-- **The stock model of the specification, `|y - Σw·h| ≤ γ·Σ|w·h| + η`, holds for the Hopper
chain** with `γ = gammaNum/2^40` and `η = 2^-90`, for every `gammaNum` that is at least
`2^40·((1+p)^s - 1)`, `p = 16·2^-25 + 2^-23`. -/
theorem hopper_stock_bound_tight {B : Nat} (hB : 277 ≤ B) {z : Option Int} (hz : ZeroIsSmall z)
    {a b : List Operand} (ha : ∀ x ∈ a, x.Bf16 15) (hb : ∀ x ∈ b, x.Bf16 15) {K s : Nat}
    (haK : a.length = K) (hbK : b.length = K) (hK : K ≤ 2 ^ 16) (hs : s = (K + 15) / 16)
    {gammaNum : Nat}
    (hgamma : 2 ^ 40 * ((2 ^ 25 + 20) ^ s - (2 ^ 25) ^ s) ≤ gammaNum * (2 ^ 25) ^ s) :
    2 ^ 40 * ((hopper B z).dot a b - exactSum ((hopper B z).products a b)).natAbs
      ≤ gammaNum * magnitude ((hopper B z).products a b) + 2 ^ 40 * 2 ^ (B - 90) := by
  have h := hopper_dot_gamma_bound_tight hB hz ha hb haK hbK hs
  have hs12 : s ≤ 2 ^ 12 := by omega
  have hgrow := hopper_growth_le_two hs12
  have hfloor : 2 * (s * 2 ^ (B - 131)) ≤ 2 ^ (B - 90) := by
    have h1 : s * 2 ^ (B - 131) ≤ 2 ^ 12 * 2 ^ (B - 131) := Nat.mul_le_mul_right _ hs12
    have h2 : 2 * (2 ^ 12 * 2 ^ (B - 131)) ≤ 2 ^ (B - 90) := by
      rw [← Nat.mul_assoc, show 2 * 2 ^ 12 = 2 ^ 13 from rfl, ← Nat.pow_add]
      exact two_pow_le_two_pow (by omega)
    omega
  refine Nat.le_of_mul_le_mul_left (c := (2 ^ 25) ^ s) ?_ (Nat.pow_pos (Nat.two_pow_pos 25))
  generalize ((hopper B z).dot a b - exactSum ((hopper B z).products a b)).natAbs = E at h ⊢
  generalize magnitude ((hopper B z).products a b) = A at h ⊢
  calc (2 ^ 25) ^ s * (2 ^ 40 * E)
      = 2 ^ 40 * ((2 ^ 25) ^ s * E) := Nat.mul_left_comm _ _ _
    _ ≤ 2 ^ 40 * (((2 ^ 25 + 20) ^ s - (2 ^ 25) ^ s) * A + (2 ^ 25 + 20) ^ s * (s * 2 ^ (B - 131))) :=
        Nat.mul_le_mul_left _ h
    _ = 2 ^ 40 * ((2 ^ 25 + 20) ^ s - (2 ^ 25) ^ s) * A
          + 2 ^ 40 * ((2 ^ 25 + 20) ^ s * (s * 2 ^ (B - 131))) := by
        rw [Nat.mul_add, Nat.mul_assoc]
    _ ≤ gammaNum * (2 ^ 25) ^ s * A + 2 ^ 40 * (2 * (2 ^ 25) ^ s * (s * 2 ^ (B - 131))) :=
        Nat.add_le_add (Nat.mul_le_mul_right _ hgamma)
          (Nat.mul_le_mul_left _ (Nat.mul_le_mul_right _ hgrow))
    _ = (2 ^ 25) ^ s * (gammaNum * A + 2 ^ 40 * (2 * (s * 2 ^ (B - 131)))) := by
        rw [Nat.mul_add, Nat.mul_comm gammaNum, Nat.mul_assoc, Nat.mul_comm 2 ((2 ^ 25) ^ s),
          Nat.mul_assoc ((2 ^ 25) ^ s) 2, Nat.mul_left_comm (2 ^ 40) ((2 ^ 25) ^ s)]
    _ ≤ (2 ^ 25) ^ s * (gammaNum * A + 2 ^ 40 * 2 ^ (B - 90)) :=
        Nat.mul_le_mul_left _ (Nat.add_le_add_left (Nat.mul_le_mul_left _ hfloor) _)

/-- **The same with the `hopper` γ of `pyref.models`**, `p = 17·2^-25 + 2^-23`. -/
theorem hopper_stock_bound {B : Nat} (hB : 277 ≤ B) {z : Option Int} (hz : ZeroIsSmall z)
    {a b : List Operand} (ha : ∀ x ∈ a, x.Bf16 15) (hb : ∀ x ∈ b, x.Bf16 15) {K s : Nat}
    (haK : a.length = K) (hbK : b.length = K) (hK : K ≤ 2 ^ 16) (hs : s = (K + 15) / 16)
    {gammaNum : Nat}
    (hgamma : 2 ^ 40 * ((2 ^ 25 + 21) ^ s - (2 ^ 25) ^ s) ≤ gammaNum * (2 ^ 25) ^ s) :
    2 ^ 40 * ((hopper B z).dot a b - exactSum ((hopper B z).products a b)).natAbs
      ≤ gammaNum * magnitude ((hopper B z).products a b) + 2 ^ 40 * 2 ^ (B - 90) :=
  hopper_stock_bound_tight hB hz ha hb haK hbK hK hs
    (Nat.le_trans (Nat.mul_le_mul_left _ (Nat.sub_le_sub_right
      (Nat.pow_le_pow_left (by omega) s) _)) hgamma)

/-- The `hopper` γ at `K = 2560`, as `pyref.models` gives it: 110105959 units of `2^-40`, and no
smaller number of units would do. -/
theorem hopper_gammaNum_2560 :
    2 ^ 40 * ((2 ^ 25 + 21) ^ 160 - (2 ^ 25) ^ 160) ≤ 110105959 * (2 ^ 25) ^ 160
      ∧ ¬ 2 ^ 40 * ((2 ^ 25 + 21) ^ 160 - (2 ^ 25) ^ 160) ≤ 110105958 * (2 ^ 25) ^ 160 := by
  decide +kernel

/-- The any-order γ at `K = 2560`: 671498491 units of `2^-40`, and no smaller number would do. -/
theorem any_order_gammaNum_2560 :
    2 ^ 40 * (2 * 2560) ≤ 671498491 * (2 ^ 23 - 2 * 2560)
      ∧ ¬ 2 ^ 40 * (2 * 2560) ≤ 671498490 * (2 ^ 23 - 2 * 2560) := by
  decide +kernel

/-! ## Split-K -/

/-- The parts of a dot product, each a chain from zero, their results added in turn by rounded
additions in the accumulator's format. -/
def splitK (m : Fdpa) (mode : Mode) (parts : List (List FdpaTerm)) : Int :=
  (parts.map (m.chainOf 0)).foldl (roundedAdd mode m.acc) 0

theorem splitK_trees (m : Fdpa) (hg : 0 < m.group) :
    ∀ parts : List (List FdpaTerm),
      (parts.map fun ts => m.chainTree (.leaf 0) (blocksOf m.group ts)).map SumTree.value
          = parts.map (m.chainOf 0)
        ∧ (SumTree.leavesList
            (parts.map fun ts => m.chainTree (.leaf 0) (blocksOf m.group ts))).sum
          = exactSum parts.flatten
        ∧ absSum (SumTree.leavesList
            (parts.map fun ts => m.chainTree (.leaf 0) (blocksOf m.group ts)))
          = magnitude parts.flatten
  | [] => ⟨rfl, rfl, rfl⟩
  | ts :: parts => by
    have ih := splitK_trees m hg parts
    have hv := chainTree_value m (blocksOf m.group ts) (.leaf 0)
    have hl := chainTree_leaves m (blocksOf m.group ts) (.leaf 0)
    rw [blocksOf_flatten hg, SumTree.leaves] at hl
    refine ⟨?_, ?_, ?_⟩
    · rw [List.map_cons, List.map_cons, List.map_cons, ih.1, hv]
      rfl
    · rw [List.map_cons, SumTree.leavesList, List.sum_append_int, ih.2.1, hl, List.flatten_cons,
        exactSum_append]
      exact congrArg (· + exactSum parts.flatten) (Int.zero_add _)
    · rw [List.map_cons, SumTree.leavesList, absSum_append, ih.2.2, hl, List.flatten_cons,
        magnitude_append]
      exact congrArg (· + magnitude parts.flatten) (Nat.zero_add _)

theorem splitK_depth_and_nodes (m : Fdpa) (hg : 0 < m.group) {s : Nat} :
    ∀ parts : List (List FdpaTerm),
      (∀ ts ∈ parts, (ts.length + (m.group - 1)) / m.group ≤ s) →
      SumTree.depthList (parts.map fun ts => m.chainTree (.leaf 0) (blocksOf m.group ts)) ≤ s
        ∧ SumTree.nodeCountList (parts.map fun ts => m.chainTree (.leaf 0) (blocksOf m.group ts))
          ≤ parts.length * s
  | [], _ => ⟨Nat.zero_le _, Nat.zero_le _⟩
  | ts :: parts, h => by
    have ih := splitK_depth_and_nodes m hg parts fun us hus => h us (List.mem_cons_of_mem _ hus)
    have h1 := h ts (List.mem_cons_self ..)
    have hd := chainTree_depth m (blocksOf m.group ts) (.leaf 0)
    have hn := chainTree_nodeCount m (blocksOf m.group ts) (.leaf 0)
    rw [SumTree.depth, blocksOf_length hg] at hd
    rw [SumTree.nodeCount, blocksOf_length hg] at hn
    rw [List.map_cons, SumTree.depthList, SumTree.nodeCountList, List.length_cons, Nat.add_mul,
      Nat.one_mul]
    omega

/-- **Split-K** (`fdpa_split_k`): the terms are dealt to at most `n` chains of at most `s` steps of
unit `p`, whose results are added with a unit of `2^(1-prec)`:
`|d - Σp| + A ≤ (1+p)^s·(1+2^(1-prec))^n·(A + n·s·floor) + (1+2^(1-prec))^n·n·2^qmin`,
`A = Σ|p|`. -/
theorem splitK_bound {m : Fdpa} (hg : 0 < m.group) (hp : 1 ≤ m.acc.prec) {e : NodeError}
    (hden : 0 < e.den) (mode : Mode) {parts : List (List FdpaTerm)}
    (hstep : ∀ c : Int, Representable m.acc c → ∀ b : List FdpaTerm, b.length ≤ m.group →
      (∀ t ∈ b, t ∈ parts.flatten) → e.Admits 1 (c :: b.map FdpaTerm.value) (m.step c b))
    {s : Nat} (hs : ∀ ts ∈ parts, (ts.length + (m.group - 1)) / m.group ≤ s) :
    e.den ^ s * ((2 ^ (m.acc.prec - 1)) ^ parts.length
        * ((m.splitK mode parts - exactSum parts.flatten).natAbs + magnitude parts.flatten))
      ≤ (e.den + e.num) ^ s * ((2 ^ (m.acc.prec - 1) + 1) ^ parts.length
            * (magnitude parts.flatten + parts.length * s * e.floor))
        + e.den ^ s * ((2 ^ (m.acc.prec - 1) + 1) ^ parts.length
            * (parts.length * 2 ^ m.acc.qmin)) := by
  have htrees := splitK_trees m hg parts
  have hdn := splitK_depth_and_nodes m hg parts hs
  have hts : SumTree.ObeysList e
      (parts.map fun ts => m.chainTree (.leaf 0) (blocksOf m.group ts)) := by
    have key : ∀ ps : List (List FdpaTerm), (∀ ts ∈ ps, ts ∈ parts) → SumTree.ObeysList e
        (ps.map fun ts => m.chainTree (.leaf 0) (blocksOf m.group ts)) := by
      intro ps
      induction ps with
      | nil => exact fun _ => trivial
      | cons ts ps ih =>
        intro h
        refine ⟨chainTree_obeys hp _ (fun c hc b hb => hstep c hc b (length_le_of_mem_blocksOf hb)
          fun t ht => List.mem_flatten.2 ⟨ts, h ts (List.mem_cons_self ..),
            mem_of_mem_blocksOf hg hb ht⟩) (acc := .leaf 0) (representable_zero _) trivial, ?_⟩
        exact ih fun us hus => h us (List.mem_cons_of_mem _ hus)
    exact key parts fun _ h => h
  have hob := SumTree.sequentialTerms_obeys (roundedAdd_within hp mode) 0 (parts.map (m.chainOf 0))
  have hl := SumTree.sequentialTerms_leaves (roundedAdd mode m.acc) 0 (parts.map (m.chainOf 0))
  have hd := SumTree.sequentialTerms_depth (roundedAdd mode m.acc) 0 (parts.map (m.chainOf 0))
  have hv := SumTree.sequentialTerms_value (roundedAdd mode m.acc) (parts.map (m.chainOf 0)) 0
  have hn : (SumTree.sequentialTerms (roundedAdd mode m.acc) 0 (parts.map (m.chainOf 0))).nodeCount
      = parts.length := by
    rw [SumTree.sequentialTerms, SumTree.sequential_nodeCount, SumTree.nodeCount,
      SumTree.nodeCountList_map_leaf, List.length_map, List.length_map]
    omega
  rw [List.length_map] at hd
  have h := SumTree.two_stage_bound hden (Nat.two_pow_pos _) hts hob
    (by rw [hl, htrees.1]; exact Int.zero_add _) (by rw [hl, htrees.1]; exact Nat.zero_add _)
    hdn.1 hd
  rw [hv, htrees.2.1, htrees.2.2, hn] at h
  refine Nat.le_trans h (Nat.add_le_add_right (Nat.mul_le_mul_left _ ?_) _)
  exact Nat.mul_le_mul_left _ (Nat.add_le_add_left (Nat.mul_le_mul_right _ hdn.2) _)

/-! ## The two models against each other -/

/-- **The any-order γ dominates the Hopper γ**: `(1+p)^⌈K/16⌉ ≤ 1/(1 - 2K·2^-23)` for `K ≥ 3`, so
whatever the `hopper` model bounds, `any_order` bounds. -/
theorem any_order_gamma_dominates_hopper {K s : Nat} (hK : 3 ≤ K) (hs : s = (K + 15) / 16) :
    (2 ^ 23 - 2 * K) * (2 ^ 25 + 21) ^ s ≤ 2 ^ 23 * (2 ^ 25) ^ s := by
  have h1 := one_sub_mul_pow_le (2 ^ 25) 24 s
  have h2 : (2 ^ 25 + 21) ^ s ≤ (2 ^ 25 + 24) ^ s := Nat.pow_le_pow_left (by omega) s
  refine Nat.le_of_mul_le_mul_left (c := 4) ?_ (by omega)
  calc 4 * ((2 ^ 23 - 2 * K) * (2 ^ 25 + 21) ^ s)
      = (2 ^ 25 - 8 * K) * (2 ^ 25 + 21) ^ s := by
        rw [← Nat.mul_assoc]
        exact congrArg (· * (2 ^ 25 + 21) ^ s) (by omega)
    _ ≤ (2 ^ 25 - s * 24) * (2 ^ 25 + 24) ^ s := Nat.mul_le_mul (by omega) h2
    _ ≤ 2 ^ 25 * (2 ^ 25) ^ s := h1
    _ = 4 * (2 ^ 23 * (2 ^ 25) ^ s) := by rw [← Nat.mul_assoc]

/-- Below three terms it does not: the `hopper` γ counts 17 cut terms for one step, however short.
The machine itself stays within `any_order` even there: see `fdpa_dot_within_any_order`. -/
theorem any_order_gamma_does_not_dominate_hopper_at_two :
    2 ^ 23 * (2 ^ 25) ^ ((2 + 15) / 16) < (2 ^ 23 - 2 * 2) * (2 ^ 25 + 21) ^ ((2 + 15) / 16) := by
  decide

/-- **Every fused adder with at least 23 fraction bits lies within `any_order`**, whatever its group:
for a chain from a zero accumulator over `K` aligned terms, `|d - Σp| ≤ γ·Σ|p| + (1+γ)·s·floor` with
`γ = 2Ku/(1 - 2Ku)`, `u = 2^(1-prec)`. -/
theorem fdpa_dot_within_any_order {m : Fdpa} (hg : 0 < m.group) (hp : 1 ≤ m.acc.prec)
    (hF : m.acc.prec ≤ m.fraction + 1) {slack : Nat}
    (hacc : ∀ c : Int, 2 ^ m.accExp c ≤ c.natAbs + slack) {ts : List FdpaTerm}
    (hts : Covered slack ts) (hal : m.Aligned ts) (hK : 2 * ts.length ≤ 2 ^ (m.acc.prec - 1)) :
    (2 ^ (m.acc.prec - 1) - 2 * ts.length) * (m.chainOf 0 ts - exactSum ts).natAbs
      ≤ 2 * ts.length * magnitude ts
        + 2 ^ (m.acc.prec - 1)
          * ((ts.length + (m.group - 1)) / m.group * (m.anyOrderError slack).floor) := by
  have hbs : ∀ b ∈ blocksOf m.group ts, b.length ≤ m.group ∧ Covered slack b ∧ m.Aligned b :=
    fun b hb => ⟨length_le_of_mem_blocksOf hb,
      fun t ht => hts t (mem_of_mem_blocksOf hg hb ht),
      fun t ht => hal t (mem_of_mem_blocksOf hg hb ht)⟩
  have hob := anyOrderTree_obeys hp hF hacc (blocksOf m.group ts) hbs
    (acc := .leaf 0) (representable_zero _) trivial
  have hl := anyOrderTree_leaves m (blocksOf m.group ts) (.leaf 0)
  have hd := anyOrderTree_depth m (blocksOf m.group ts) (.leaf 0)
  have hc := anyOrderTree_nodeCount m (blocksOf m.group ts) (.leaf 0)
  have hv := anyOrderTree_value m (blocksOf m.group ts) (.leaf 0)
  have hb : (blocksOf m.group ts).length ≤ ts.length := by
    rw [blocksOf_length hg]
    by_cases h0 : ts.length = 0
    · rw [h0, Nat.zero_add, Nat.div_eq_of_lt (by omega)]
      exact Nat.le_refl 0
    · refine Nat.div_le_of_le_mul ?_
      have h2 : m.group - 1 ≤ (m.group - 1) * ts.length := Nat.le_mul_of_pos_right _ (by omega)
      have h3 : m.group * ts.length = (m.group - 1) * ts.length + ts.length := by
        rw [← Nat.succ_mul]
        exact congrArg (· * ts.length) (by omega)
      omega
  rw [blocksOf_flatten hg] at hl hd
  rw [SumTree.depth, Nat.zero_add] at hd
  rw [SumTree.nodeCount, Nat.zero_add, blocksOf_length hg] at hc
  rw [SumTree.leaves] at hl
  have h := SumTree.sum_closed_gamma_bound (n := 2 * ts.length) (Nat.two_pow_pos _) hob
    (by rw [hd]; omega)
    (by
      show 2 * ts.length * 1 ≤ 2 ^ (m.acc.prec - 1)
      omega)
  rw [SumTree.error, hv, hl, hc] at h
  have e1 : (m.anyOrderError slack).den = 2 ^ (m.acc.prec - 1) := rfl
  have e2 : (m.anyOrderError slack).num = 1 := rfl
  have e3 : ([(0 : Int)] ++ ts.map FdpaTerm.value).sum = exactSum ts := Int.zero_add _
  have e4 : absSum ([(0 : Int)] ++ ts.map FdpaTerm.value) = magnitude ts := Nat.zero_add _
  rw [e1, e2, e3, e4, Nat.mul_one] at h
  exact h

/-- **The Hopper chain lies within `any_order`** for rows below `2^16` and every `K ≤ 2^16`, one and
two terms included. -/
theorem hopper_dot_within_any_order {B : Nat} (hB : 277 ≤ B) {z : Option Int} (hz : ZeroIsSmall z)
    {a b : List Operand} (ha : ∀ x ∈ a, x.Bf16 15) (hb : ∀ x ∈ b, x.Bf16 15) {K : Nat}
    (haK : a.length = K) (hbK : b.length = K) (hK : K ≤ 2 ^ 16) :
    (2 ^ 23 - 2 * K) * ((hopper B z).dot a b - exactSum ((hopper B z).products a b)).natAbs
      ≤ 2 * K * magnitude ((hopper B z).products a b) + 2 ^ 23 * 2 ^ (B - 90) := by
  have hlen := products_length (hopper B z) haK hbK
  have hal := hopper_aligned B z a b
  have h := fdpa_dot_within_any_order (m := hopper B z) (by decide : 0 < 16)
    (by rw [hopper_acc_prec]; omega) (show 24 ≤ 25 + 1 by omega) (hopper_accExp hB hz)
    (hopper_covered hB hz ha hb) hal
    (by rw [hlen, hopper_acc_prec]; show 2 * K ≤ 2 ^ 23; omega)
  rw [hlen, hopper_acc_prec] at h
  refine Nat.le_trans h (Nat.add_le_add_left (Nat.mul_le_mul_left _ ?_) _)
  have hf : ((hopper B z).anyOrderError (2 ^ (B - 111))).floor ≤ 2 ^ (B - 129) := by
    have e : ((hopper B z).anyOrderError (2 ^ (B - 111))).floor
        = 16 * 2 ^ (B - 111) / 2 ^ 23 + 1 + 2 ^ (hopper B z).acc.qmin := rfl
    have h1 : 16 * 2 ^ (B - 111) / 2 ^ 23 = 2 ^ (B - 130) := by
      have : 16 * 2 ^ (B - 111) = 2 ^ (B - 130) * 2 ^ 23 := by
        rw [← Nat.pow_add, show (16 : Nat) = 2 ^ 4 from rfl, ← Nat.pow_add]
        exact congrArg (2 ^ ·) (by omega)
      rw [this, Nat.mul_div_cancel _ (Nat.two_pow_pos 23)]
    have h2 : 2 * 2 ^ (B - 149) ≤ 2 ^ (B - 130) := by
      rw [← Nat.pow_succ']
      exact two_pow_le_two_pow (by omega)
    have h3 := Nat.two_pow_pos (B - 149)
    have h4 : 2 ^ (B - 129) = 2 * 2 ^ (B - 130) := by
      rw [← Nat.pow_succ']
      exact congrArg (2 ^ ·) (by omega)
    rw [e, h1, hopper_acc_qmin]
    omega
  have hs : (K + ((hopper B z).group - 1)) / (hopper B z).group ≤ 2 ^ 13 := by
    show (K + 15) / 16 ≤ 2 ^ 13
    omega
  calc (K + ((hopper B z).group - 1)) / (hopper B z).group
        * ((hopper B z).anyOrderError (2 ^ (B - 111))).floor
      ≤ 2 ^ 13 * 2 ^ (B - 129) := Nat.mul_le_mul hs hf
    _ = 2 ^ (13 + (B - 129)) := (Nat.pow_add _ _ _).symm
    _ ≤ 2 ^ (B - 90) := two_pow_le_two_pow (by omega)

/-! ## What the fused sum does not have -/

/-- A step of the Hopper adder: `-1.5·1.5`, then thirteen products `2^-25`, added to `c`. -/
def exampleStep (c : Int) : Option Int :=
  (hopper 300).stepBits c (0xBFC0 :: List.replicate 13 0x3F80) (0x3FC0 :: List.replicate 13 0x3300)

/-- `c = 2 - 2^-23` gives `-0.25 + 9·2^-25`; the larger `c = 2` raises the largest exponent, so the
thirteen products are dropped, and gives `-0.25`. -/
theorem larger_accumulator_smaller_result :
    exampleStep (2 ^ 301 - 2 ^ 277) = some (9 * 2 ^ 275 - 2 ^ 298)
      ∧ exampleStep (2 ^ 301) = some (-2 ^ 298) := by
  decide +kernel

/-- **The fused sum is not monotone in its terms.** -/
theorem fused_sum_is_not_monotone :
    ¬ ∀ (c c' : Int) (a b : List Nat) (d d' : Int), c ≤ c' →
      (hopper 300).stepBits c a b = some d → (hopper 300).stepBits c' a b = some d' → d ≤ d' := by
  intro h
  have h1 := h _ _ _ _ _ _ (by decide +kernel) larger_accumulator_smaller_result.1
    larger_accumulator_smaller_result.2
  exact absurd h1 (by decide +kernel)

/-- **Nor is it a function of the products' values**: `1.5·1.5 = 1.125·2`, but the second product
has the larger exponent, and `2^-25` is dropped. -/
theorem equal_products_different_sums :
    (0x3FC0, 0x3FC0) ≠ (0x3F90, 0x4000)
      ∧ ((decodeBf16 0x3FC0).bind fun a => some ((hopper 300).product a a).value)
        = ((decodeBf16 0x3F90).bind fun a => (decodeBf16 0x4000).bind fun b =>
            some ((hopper 300).product a b).value)
      ∧ (hopper 300).stepBits 0 [0x3FC0, 0xBFC0, 0x3F80] [0x3FC0, 0x3FC0, 0x3300]
        = some (2 ^ 275)
      ∧ (hopper 300).stepBits 0 [0x3F90, 0xBFC0, 0x3F80] [0x4000, 0x3FC0, 0x3300] = some 0 := by
  decide +kernel

end Fdpa
end CertHead
