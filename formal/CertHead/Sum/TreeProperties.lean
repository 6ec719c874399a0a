import CertHead.Sum.Tree
/-!
# The error of any summation tree
-/

namespace CertHead

/-! ## Sums of magnitudes -/

theorem absSum_nil : absSum [] = 0 := rfl

theorem absSum_cons (x : Int) (xs : List Int) : absSum (x :: xs) = x.natAbs + absSum xs := rfl

theorem absSum_append (xs ys : List Int) : absSum (xs ++ ys) = absSum xs + absSum ys := by
  induction xs with
  | nil => rw [List.nil_append, absSum_nil, Nat.zero_add]
  | cons x xs ih => rw [List.cons_append, absSum_cons, absSum_cons, ih, Nat.add_assoc]

/-- The triangle inequality. -/
theorem natAbs_sum_le_absSum (xs : List Int) : xs.sum.natAbs ≤ absSum xs := by
  induction xs with
  | nil => exact Nat.le_refl 0
  | cons x xs ih =>
    rw [List.sum_cons, absSum_cons]
    exact Nat.le_trans (Int.natAbs_add_le x xs.sum) (Nat.add_le_add_left ih _)

/-! ## Powers of `1 + u` over integers -/

/-- A relative bound over `k` levels is also one over more levels. -/
theorem pow_bound_extends {D M X Y k d : Nat} (hDM : D ≤ M) (hkd : k ≤ d)
    (h : D ^ k * X ≤ M ^ k * Y) : D ^ d * X ≤ M ^ d * Y := by
  have hd : d = (d - k) + k := by omega
  rw [hd, Nat.pow_add, Nat.pow_add, Nat.mul_assoc, Nat.mul_assoc]
  exact Nat.mul_le_mul (Nat.pow_le_pow_left hDM _) h

/-- Bernoulli: `1 + w·u ≤ (1+u)^w`. -/
theorem one_add_mul_le_pow (D N w : Nat) : D ^ w * (D + w * N) ≤ D * (D + N) ^ w := by
  induction w with
  | zero => simp only [Nat.pow_zero, Nat.zero_mul, Nat.add_zero, Nat.one_mul, Nat.mul_one, Nat.le_refl]
  | succ w ih =>
    have h1 : D * (D + (w + 1) * N) ≤ (D + w * N) * (D + N) := by
      have e : (D + w * N) * (D + N) = D * (D + (w + 1) * N) + w * N * N := by
        simp only [Nat.mul_add, Nat.add_mul, Nat.one_mul]
        have : w * N * D = D * (w * N) := Nat.mul_comm _ _
        have : N * D = D * N := Nat.mul_comm _ _
        omega
      omega
    calc D ^ (w + 1) * (D + (w + 1) * N)
        = D ^ w * (D * (D + (w + 1) * N)) := by rw [Nat.pow_succ, Nat.mul_assoc]
      _ ≤ D ^ w * ((D + w * N) * (D + N)) := Nat.mul_le_mul_left _ h1
      _ = D ^ w * (D + w * N) * (D + N) := by rw [Nat.mul_assoc]
      _ ≤ D * (D + N) ^ w * (D + N) := Nat.mul_le_mul_right _ ih
      _ = D * (D + N) ^ (w + 1) := by rw [Nat.pow_succ, Nat.mul_assoc]

/-- The closed form: `(1+u)^n ≤ 1/(1 - n·u)`, that is `(1+u)^n - 1 ≤ n·u/(1 - n·u)`. Where
`n·u ≥ 1` the left side is zero. -/
theorem one_sub_mul_pow_le (D N n : Nat) : (D - n * N) * (D + N) ^ n ≤ D * D ^ n := by
  induction n with
  | zero => simp only [Nat.pow_zero, Nat.zero_mul, Nat.sub_zero, Nat.le_refl]
  | succ n ih =>
    have h1 : (D - (n + 1) * N) * (D + N) ≤ D * (D - n * N) := by
      by_cases h : (n + 1) * N ≤ D
      · obtain ⟨r, hr⟩ := Nat.le.dest h
        have e1 : D - (n + 1) * N = r := by omega
        have e2 : D - n * N = r + N := by rw [Nat.add_mul, Nat.one_mul] at hr; omega
        rw [e1, e2, Nat.mul_add, Nat.mul_add, Nat.mul_comm r D]
        have : r * N ≤ D * N := Nat.mul_le_mul_right N (by omega)
        omega
      · have e1 : D - (n + 1) * N = 0 := by omega
        rw [e1, Nat.zero_mul]
        exact Nat.zero_le _
    calc (D - (n + 1) * N) * (D + N) ^ (n + 1)
        = (D - (n + 1) * N) * (D + N) * (D + N) ^ n := by rw [Nat.pow_succ']; ac_rfl
      _ ≤ D * (D - n * N) * (D + N) ^ n := Nat.mul_le_mul_right _ h1
      _ = D * ((D - n * N) * (D + N) ^ n) := by rw [Nat.mul_assoc]
      _ ≤ D * (D * D ^ n) := Nat.mul_le_mul_left _ ih
      _ = D * D ^ (n + 1) := by rw [Nat.pow_succ']

namespace SumTree

/-! ## One node -/

/-- One node, in the form that the induction uses: with the error and the magnitude of the children
added up, a node of weight `w` costs at most a factor `(1+u)^w`. -/
theorem node_step {e : NodeError} (hden : 0 < e.den) {w : Nat} {s : Int} {ts : List SumTree}
    {E A : Nat} (herr : ((ts.map value).sum - (leavesList ts).sum).natAbs ≤ E)
    (habs : absSum (ts.map value) ≤ E + A) (h : e.Admits w (ts.map value) s) :
    e.den ^ w * ((s - (leavesList ts).sum).natAbs + A)
      ≤ (e.den + e.num) ^ w * (E + A + e.floor) := by
  have h0 : e.den * (s - (ts.map value).sum).natAbs
      ≤ w * e.num * absSum (ts.map value) + e.den * e.floor := h
  have h1 : (s - (leavesList ts).sum).natAbs ≤ (s - (ts.map value).sum).natAbs + E := by omega
  have h2 : w * e.num * absSum (ts.map value) ≤ w * e.num * (E + A) := Nat.mul_le_mul_left _ habs
  have h3 : e.den * ((s - (leavesList ts).sum).natAbs + A)
      ≤ (e.den + w * e.num) * (E + A + e.floor) := by
    have h4 := Nat.mul_le_mul_left e.den h1
    simp only [Nat.mul_add, Nat.add_mul] at h0 h2 h4 ⊢
    omega
  refine Nat.le_of_mul_le_mul_left (c := e.den) ?_ hden
  calc e.den * (e.den ^ w * ((s - (leavesList ts).sum).natAbs + A))
      = e.den ^ w * (e.den * ((s - (leavesList ts).sum).natAbs + A)) := Nat.mul_left_comm _ _ _
    _ ≤ e.den ^ w * ((e.den + w * e.num) * (E + A + e.floor)) := Nat.mul_le_mul_left _ h3
    _ = e.den ^ w * (e.den + w * e.num) * (E + A + e.floor) := (Nat.mul_assoc _ _ _).symm
    _ ≤ e.den * (e.den + e.num) ^ w * (E + A + e.floor) :=
        Nat.mul_le_mul_right _ (one_add_mul_le_pow e.den e.num w)
    _ = e.den * ((e.den + e.num) ^ w * (E + A + e.floor)) := Nat.mul_assoc _ _ _

/-- The errors of several trees added up. -/
def errorList : List SumTree → Nat
  | [] => 0
  | t :: ts => t.error + errorList ts

theorem values_sum_near_leaves (ts : List SumTree) :
    ((ts.map value).sum - (leavesList ts).sum).natAbs ≤ errorList ts := by
  induction ts with
  | nil => exact Nat.le_refl 0
  | cons t ts ih =>
    rw [List.map_cons, List.sum_cons, leavesList, List.sum_append_int, errorList, error]
    omega

theorem values_abs_le (ts : List SumTree) :
    absSum (ts.map value) ≤ errorList ts + absSum (leavesList ts) := by
  induction ts with
  | nil => exact Nat.le_refl 0
  | cons t ts ih =>
    rw [List.map_cons, absSum_cons, leavesList, absSum_append, errorList, error]
    have := natAbs_sum_le_absSum t.leaves
    omega

/-! ## The bound for every shape -/

mutual
/-- **Any tree.** With `u = num/den`, `A` the sum of the magnitudes of the terms, `d` the depth and
`N` the number of nodes: `|returned - exact| + A ≤ (1+u)^d · (A + N·floor)`. The same inequality as
`|returned - exact| ≤ ((1+u)^d - 1)·A + (1+u)^d·N·floor`, without subtraction. -/
theorem error_bound_of_any_tree {e : NodeError} (hden : 0 < e.den) :
    (t : SumTree) → Obeys e t →
      e.den ^ t.depth * (t.error + absSum t.leaves)
        ≤ (e.den + e.num) ^ t.depth * (absSum t.leaves + t.nodeCount * e.floor)
  | .leaf v, _ => by
    have h : error (.leaf v) = 0 := by
      rw [error, value, leaves, List.sum_cons, List.sum_nil]; omega
    rw [h, depth, nodeCount, Nat.pow_zero, Nat.pow_zero, Nat.zero_mul, Nat.zero_add, Nat.add_zero]
    exact Nat.le_refl _
  | .node w s ts, hob => by
    have hob' : e.Admits w (ts.map value) s ∧ ObeysList e ts := hob
    have ih := error_bound_of_any_list hden ts hob'.2
    have hn := node_step hden (values_sum_near_leaves ts) (values_abs_le ts) hob'.1
    rw [error, value, leaves, depth, nodeCount]
    have hfloor : e.den ^ depthList ts * e.floor ≤ (e.den + e.num) ^ depthList ts * e.floor :=
      Nat.mul_le_mul_right _ (Nat.pow_le_pow_left (Nat.le_add_right _ _) _)
    calc e.den ^ (w + depthList ts) * ((s - (leavesList ts).sum).natAbs + absSum (leavesList ts))
        = e.den ^ depthList ts
            * (e.den ^ w * ((s - (leavesList ts).sum).natAbs + absSum (leavesList ts))) := by
          rw [Nat.pow_add]; ac_rfl
      _ ≤ e.den ^ depthList ts
            * ((e.den + e.num) ^ w * (errorList ts + absSum (leavesList ts) + e.floor)) :=
          Nat.mul_le_mul_left _ hn
      _ = (e.den + e.num) ^ w
            * (e.den ^ depthList ts * (errorList ts + absSum (leavesList ts))
              + e.den ^ depthList ts * e.floor) := by
          rw [Nat.mul_left_comm, Nat.mul_add (e.den ^ depthList ts)]
      _ ≤ (e.den + e.num) ^ w
            * ((e.den + e.num) ^ depthList ts
                * (absSum (leavesList ts) + nodeCountList ts * e.floor)
              + (e.den + e.num) ^ depthList ts * e.floor) :=
          Nat.mul_le_mul_left _ (Nat.add_le_add ih hfloor)
      _ = (e.den + e.num) ^ (w + depthList ts)
            * (absSum (leavesList ts) + (nodeCountList ts + 1) * e.floor) := by
          rw [Nat.pow_add, Nat.mul_assoc, ← Nat.mul_add, Nat.add_mul, Nat.one_mul, Nat.add_assoc]
/-- The same for several trees side by side. -/
theorem error_bound_of_any_list {e : NodeError} (hden : 0 < e.den) :
    (ts : List SumTree) → ObeysList e ts →
      e.den ^ depthList ts * (errorList ts + absSum (leavesList ts))
        ≤ (e.den + e.num) ^ depthList ts
            * (absSum (leavesList ts) + nodeCountList ts * e.floor)
  | [], _ => by
    rw [errorList, leavesList, absSum_nil, depthList, Nat.pow_zero, Nat.one_mul]
    exact Nat.zero_le _
  | t :: ts, hob => by
    have hob' : Obeys e t ∧ ObeysList e ts := hob
    have h1 := pow_bound_extends (Nat.le_add_right _ _) (Nat.le_max_left t.depth (depthList ts))
      (error_bound_of_any_tree hden t hob'.1)
    have h2 := pow_bound_extends (Nat.le_add_right _ _) (Nat.le_max_right t.depth (depthList ts))
      (error_bound_of_any_list hden ts hob'.2)
    rw [errorList, leavesList, absSum_append, depthList, nodeCountList]
    simp only [Nat.mul_add, Nat.add_mul] at h1 h2 ⊢
    omega
end

/-- The bound with any `n` that is at least the depth. -/
theorem error_bound_of_depth_le {e : NodeError} (hden : 0 < e.den) {t : SumTree}
    (hob : Obeys e t) {n : Nat} (hn : t.depth ≤ n) :
    e.den ^ n * (t.error + absSum t.leaves)
      ≤ (e.den + e.num) ^ n * (absSum t.leaves + t.nodeCount * e.floor) :=
  pow_bound_extends (Nat.le_add_right _ _) hn (error_bound_of_any_tree hden t hob)

/-- **The γ bound of every shape**, `|returned - exact| ≤ γ·A + (1+u)^n·N·floor` with
`γ = (1+u)^n - 1`, for every `n` that is at least the depth. -/
theorem sum_gamma_bound {e : NodeError} (hden : 0 < e.den) {t : SumTree} (hob : Obeys e t)
    {n : Nat} (hn : t.depth ≤ n) :
    e.den ^ n * t.error
      ≤ ((e.den + e.num) ^ n - e.den ^ n) * absSum t.leaves
        + (e.den + e.num) ^ n * (t.nodeCount * e.floor) := by
  have h := error_bound_of_depth_le hden hob hn
  have hp : e.den ^ n ≤ (e.den + e.num) ^ n := Nat.pow_le_pow_left (Nat.le_add_right _ _) n
  have hm := Nat.mul_le_mul_right (absSum t.leaves) hp
  rw [Nat.mul_add, Nat.mul_add] at h
  rw [Nat.sub_mul]
  omega

/-- **The closed form of the γ bound**: `|returned - exact| ≤ γ·A + (1+γ)·N·floor` with
`γ = n·u/(1 - n·u)`, for every `n` that is at least the depth. -/
theorem sum_closed_gamma_bound {e : NodeError} (hden : 0 < e.den) {t : SumTree}
    (hob : Obeys e t) {n : Nat} (hn : t.depth ≤ n) (hnu : n * e.num ≤ e.den) :
    (e.den - n * e.num) * t.error
      ≤ n * e.num * absSum t.leaves + e.den * (t.nodeCount * e.floor) := by
  have h := error_bound_of_depth_le hden hob hn
  have hc : (e.den - n * e.num) * (t.error + absSum t.leaves)
      ≤ e.den * (absSum t.leaves + t.nodeCount * e.floor) := by
    refine Nat.le_of_mul_le_mul_left (c := e.den ^ n) ?_ (Nat.pow_pos hden)
    calc e.den ^ n * ((e.den - n * e.num) * (t.error + absSum t.leaves))
        = (e.den - n * e.num) * (e.den ^ n * (t.error + absSum t.leaves)) := Nat.mul_left_comm _ _ _
      _ ≤ (e.den - n * e.num)
            * ((e.den + e.num) ^ n * (absSum t.leaves + t.nodeCount * e.floor)) :=
          Nat.mul_le_mul_left _ h
      _ = (e.den - n * e.num) * (e.den + e.num) ^ n
            * (absSum t.leaves + t.nodeCount * e.floor) := (Nat.mul_assoc _ _ _).symm
      _ ≤ e.den * e.den ^ n * (absSum t.leaves + t.nodeCount * e.floor) :=
          Nat.mul_le_mul_right _ (one_sub_mul_pow_le e.den e.num n)
      _ = e.den ^ n * (e.den * (absSum t.leaves + t.nodeCount * e.floor)) := by
          rw [Nat.mul_comm e.den, Nat.mul_assoc]
  obtain ⟨r, hr⟩ := Nat.le.dest hnu
  have hr' : e.den - n * e.num = r := by omega
  have hA : e.den * absSum t.leaves = n * e.num * absSum t.leaves + r * absSum t.leaves := by
    rw [← Nat.add_mul, hr]
  rw [hr', Nat.mul_add, Nat.mul_add] at hc
  rw [hr']
  omega

/-- **Two stages with different units**: the tree `t` adds what the trees `ts` returned. With
`u₁, u₂` the units, `d₁, d₂` bounds of the depths and `A` the magnitude of all terms,
`|returned - exact| + A ≤ (1+u₁)^d₁·(1+u₂)^d₂·(A + N₁·floor₁) + (1+u₂)^d₂·N₂·floor₂`. -/
theorem two_stage_bound {e₁ e₂ : NodeError} (hden₁ : 0 < e₁.den) (hden₂ : 0 < e₂.den)
    {ts : List SumTree} {t : SumTree} (hts : ObeysList e₁ ts) (ht : Obeys e₂ t)
    (hsum : t.leaves.sum = (ts.map value).sum) (habs : absSum t.leaves = absSum (ts.map value))
    {d₁ d₂ : Nat} (h₁ : depthList ts ≤ d₁) (h₂ : t.depth ≤ d₂) :
    e₁.den ^ d₁ * (e₂.den ^ d₂
        * ((t.value - (leavesList ts).sum).natAbs + absSum (leavesList ts)))
      ≤ (e₁.den + e₁.num) ^ d₁ * ((e₂.den + e₂.num) ^ d₂
            * (absSum (leavesList ts) + nodeCountList ts * e₁.floor))
        + e₁.den ^ d₁ * ((e₂.den + e₂.num) ^ d₂ * (t.nodeCount * e₂.floor)) := by
  have hin := pow_bound_extends (Nat.le_add_right _ _) h₁ (error_bound_of_any_list hden₁ ts hts)
  have hout := error_bound_of_depth_le hden₂ ht h₂
  have hnear := values_sum_near_leaves ts
  have hC := values_abs_le ts
  have hp : e₂.den ^ d₂ ≤ (e₂.den + e₂.num) ^ d₂ := Nat.pow_le_pow_left (Nat.le_add_right _ _) d₂
  rw [error, hsum, habs] at hout
  generalize (e₂.den + e₂.num) ^ d₂ = M at *
  generalize e₂.den ^ d₂ = D at *
  generalize errorList ts = E at *
  generalize absSum (leavesList ts) = A at *
  generalize absSum (ts.map value) = C at *
  generalize t.nodeCount * e₂.floor = F at *
  have htri : (t.value - (leavesList ts).sum).natAbs
      ≤ (t.value - (ts.map value).sum).natAbs + E := by omega
  have hmid : D * ((t.value - (leavesList ts).sum).natAbs + A) ≤ M * (E + A) + M * F := by
    obtain ⟨r, hr⟩ := Nat.le.dest hp
    have h3 := Nat.mul_le_mul_left D htri
    have h4 := Nat.mul_le_mul_left r hC
    rw [← hr] at hout ⊢
    simp only [Nat.mul_add, Nat.add_mul] at h3 h4 hout ⊢
    omega
  calc e₁.den ^ d₁ * (D * ((t.value - (leavesList ts).sum).natAbs + A))
      ≤ e₁.den ^ d₁ * (M * (E + A) + M * F) := Nat.mul_le_mul_left _ hmid
    _ = M * (e₁.den ^ d₁ * (E + A)) + e₁.den ^ d₁ * (M * F) := by
        rw [Nat.mul_add, Nat.mul_left_comm]
    _ ≤ M * ((e₁.den + e₁.num) ^ d₁ * (A + nodeCountList ts * e₁.floor))
          + e₁.den ^ d₁ * (M * F) := Nat.add_le_add_right (Nat.mul_le_mul_left _ hin) _
    _ = _ := by rw [Nat.mul_left_comm]

/-! ## Depths of the usual shapes -/

theorem leavesList_append (ss ts : List SumTree) :
    leavesList (ss ++ ts) = leavesList ss ++ leavesList ts := by
  induction ss with
  | nil => rfl
  | cons s ss ih => rw [List.cons_append, leavesList, leavesList, ih, List.append_assoc]

theorem depthList_append (ss ts : List SumTree) :
    depthList (ss ++ ts) = max (depthList ss) (depthList ts) := by
  induction ss with
  | nil => rw [List.nil_append, depthList]; omega
  | cons s ss ih => rw [List.cons_append, depthList, depthList, ih]; omega

theorem obeysList_append {e : NodeError} {ss ts : List SumTree} :
    ObeysList e (ss ++ ts) ↔ ObeysList e ss ∧ ObeysList e ts := by
  induction ss with
  | nil => exact ⟨fun h => ⟨trivial, h⟩, fun h => h.2⟩
  | cons s ss ih =>
    rw [List.cons_append, ObeysList, ObeysList, ih]
    exact and_assoc.symm

theorem leavesList_map_leaf (xs : List Int) : leavesList (xs.map .leaf) = xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [List.map_cons, leavesList, leaves, ih]; rfl

theorem depthList_map_leaf (xs : List Int) : depthList (xs.map .leaf) = 0 := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [List.map_cons, depthList, depth, ih]; rfl

theorem obeysList_map_leaf (e : NodeError) (xs : List Int) : ObeysList e (xs.map .leaf) := by
  induction xs with
  | nil => trivial
  | cons x xs ih => exact ⟨trivial, ih⟩

theorem map_value_map_leaf (xs : List Int) : (xs.map SumTree.leaf).map value = xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [List.map_cons, List.map_cons, ih]; rfl

theorem nodeCountList_map_leaf (xs : List Int) : nodeCountList (xs.map .leaf) = 0 := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [List.map_cons, nodeCountList, nodeCount, ih]

/-- A two-term addition stays within the node error, whatever it is given. -/
def AddWithin (e : NodeError) (add : Int → Int → Int) : Prop := ∀ x y, e.Admits 1 [x, y] (add x y)

theorem pair_obeys {e : NodeError} {add : Int → Int → Int} (hadd : AddWithin e add)
    {s t : SumTree} (hs : Obeys e s) (ht : Obeys e t) : Obeys e (pair add s t) :=
  ⟨hadd s.value t.value, hs, ht, trivial⟩

theorem pair_leaves (add : Int → Int → Int) (s t : SumTree) :
    (pair add s t).leaves = s.leaves ++ t.leaves := by
  rw [pair, leaves, leavesList, leavesList, leavesList, List.append_nil]

theorem pair_depth (add : Int → Int → Int) (s t : SumTree) :
    (pair add s t).depth = 1 + max s.depth t.depth := by
  rw [pair, depth, depthList, depthList, depthList]
  omega

theorem sequential_cons (add : Int → Int → Int) (acc t : SumTree) (ts : List SumTree) :
    sequential add acc (t :: ts) = sequential add (pair add acc t) ts := rfl

/-- A running sum obeys the node error if its parts and its additions do. -/
theorem sequential_obeys {e : NodeError} {add : Int → Int → Int} (hadd : AddWithin e add)
    (ts : List SumTree) : ∀ {acc : SumTree}, Obeys e acc → ObeysList e ts →
      Obeys e (sequential add acc ts) := by
  induction ts with
  | nil => exact fun hacc _ => hacc
  | cons t ts ih =>
    intro acc hacc hts
    rw [sequential_cons]
    exact ih (pair_obeys hadd hacc hts.1) hts.2

theorem sequential_leaves (add : Int → Int → Int) (ts : List SumTree) :
    ∀ acc : SumTree, (sequential add acc ts).leaves = acc.leaves ++ leavesList ts := by
  induction ts with
  | nil => exact fun acc => (List.append_nil _).symm
  | cons t ts ih =>
    intro acc
    rw [sequential_cons, ih, pair_leaves, leavesList, List.append_assoc]

/-- **Sequential depth**: the parts' depth plus their number. -/
theorem sequential_depth (add : Int → Int → Int) (ts : List SumTree) :
    ∀ acc : SumTree, (sequential add acc ts).depth ≤ max acc.depth (depthList ts) + ts.length := by
  induction ts with
  | nil => exact fun acc => Nat.le_max_left _ _
  | cons t ts ih =>
    intro acc
    have h := ih (pair add acc t)
    rw [pair_depth] at h
    rw [sequential_cons, depthList, List.length_cons]
    omega

/-- **A running sum of `n` terms has depth at most `n`.** -/
theorem sequentialTerms_depth (add : Int → Int → Int) (acc : Int) (xs : List Int) :
    (sequentialTerms add acc xs).depth ≤ xs.length := by
  have h := sequential_depth add (xs.map .leaf) (.leaf acc)
  rw [depthList_map_leaf, depth, List.length_map] at h
  rw [sequentialTerms]
  omega

theorem sequentialTerms_obeys {e : NodeError} {add : Int → Int → Int} (hadd : AddWithin e add)
    (acc : Int) (xs : List Int) : Obeys e (sequentialTerms add acc xs) :=
  sequential_obeys hadd _ (acc := .leaf acc) trivial (obeysList_map_leaf e xs)

theorem sequentialTerms_leaves (add : Int → Int → Int) (acc : Int) (xs : List Int) :
    (sequentialTerms add acc xs).leaves = acc :: xs := by
  rw [sequentialTerms, sequential_leaves, leaves, leavesList_map_leaf]
  rfl

/-- The returned value is the plain left fold. -/
theorem sequentialTerms_value (add : Int → Int → Int) (xs : List Int) :
    ∀ acc : Int, (sequentialTerms add acc xs).value = xs.foldl add acc := by
  have h : ∀ (acc : SumTree), (sequential add acc (xs.map .leaf)).value = xs.foldl add acc.value := by
    induction xs with
    | nil => exact fun _ => rfl
    | cons x xs ih =>
      intro acc
      rw [List.map_cons, sequential_cons, ih, List.foldl_cons]
      rfl
  exact fun acc => h (.leaf acc)

theorem depthList_take_drop (n : Nat) (ts : List SumTree) :
    depthList (ts.take n) ≤ depthList ts ∧ depthList (ts.drop n) ≤ depthList ts := by
  have h := depthList_append (ts.take n) (ts.drop n)
  rw [List.take_append_drop] at h
  omega

theorem obeysList_take_drop {e : NodeError} (n : Nat) {ts : List SumTree} (h : ObeysList e ts) :
    ObeysList e (ts.take n) ∧ ObeysList e (ts.drop n) := by
  rw [← obeysList_append, List.take_append_drop]
  exact h

/-- **Pairwise depth**: `k` more than the parts, where `2^k` is at least their number. -/
theorem pairwise_depth (add : Int → Int → Int) :
    ∀ (k : Nat) (ts : List SumTree), (pairwise add k ts).depth ≤ depthList ts + k
  | 0, [] => Nat.zero_le _
  | 0, t :: ts => Nat.le_max_left t.depth (depthList ts)
  | k + 1, ts => by
    rw [pairwise]
    split
    · exact Nat.le_succ_of_le (pairwise_depth add k ts)
    · have h1 := pairwise_depth add k (ts.take (2 ^ k))
      have h2 := pairwise_depth add k (ts.drop (2 ^ k))
      have h3 := depthList_take_drop (2 ^ k) ts
      rw [pair_depth]
      omega

/-- Pairwise summation loses no term. -/
theorem pairwise_leaves (add : Int → Int → Int) :
    ∀ (k : Nat) (ts : List SumTree), 0 < ts.length → ts.length ≤ 2 ^ k →
      (pairwise add k ts).leaves = leavesList ts
  | 0, [t], _, _ => (List.append_nil t.leaves).symm
  | 0, s :: t :: ts, _, h => by
    simp only [List.length_cons, Nat.pow_zero] at h
    omega
  | k + 1, ts, h0, h => by
    rw [pairwise]
    split
    · exact pairwise_leaves add k ts h0 (by assumption)
    · have hk := Nat.two_pow_pos k
      rw [Nat.two_pow_succ] at h
      rw [pair_leaves,
        pairwise_leaves add k (ts.take (2 ^ k)) (by rw [List.length_take]; omega)
          (by rw [List.length_take]; omega),
        pairwise_leaves add k (ts.drop (2 ^ k)) (by rw [List.length_drop]; omega)
          (by rw [List.length_drop]; omega),
        ← leavesList_append, List.take_append_drop]

theorem pairwise_obeys {e : NodeError} {add : Int → Int → Int} (hadd : AddWithin e add) :
    ∀ (k : Nat) (ts : List SumTree), ObeysList e ts → Obeys e (pairwise add k ts)
  | 0, [], _ => trivial
  | 0, _ :: _, h => h.1
  | k + 1, ts, h => by
    rw [pairwise]
    have hs := obeysList_take_drop (2 ^ k) h
    split
    · exact pairwise_obeys hadd k ts h
    · exact pair_obeys hadd (pairwise_obeys hadd k _ hs.1) (pairwise_obeys hadd k _ hs.2)

theorem depthList_zipWith_pair (add : Int → Int → Int) :
    ∀ ss ts : List SumTree,
      depthList (List.zipWith (pair add) ss ts) ≤ max (depthList ss) (depthList ts) + 1
  | [], _ => Nat.zero_le _
  | _ :: _, [] => Nat.zero_le _
  | s :: ss, t :: ts => by
    have h := depthList_zipWith_pair add ss ts
    rw [List.zipWith_cons_cons, depthList, depthList, depthList, pair_depth]
    omega

theorem obeysList_zipWith_pair {e : NodeError} {add : Int → Int → Int} (hadd : AddWithin e add) :
    ∀ ss ts : List SumTree, ObeysList e ss → ObeysList e ts →
      ObeysList e (List.zipWith (pair add) ss ts)
  | [], _, _, _ => trivial
  | _ :: _, [], _, _ => trivial
  | _ :: ss, _ :: ts, hs, ht =>
    ⟨pair_obeys hadd hs.1 ht.1, obeysList_zipWith_pair hadd ss ts hs.2 ht.2⟩

/-- **Halving depth**: `k` more than the parts. -/
theorem halving_depth (add : Int → Int → Int) :
    ∀ (k : Nat) (ts : List SumTree), (halving add k ts).depth ≤ depthList ts + k
  | 0, [] => Nat.zero_le _
  | 0, t :: ts => Nat.le_max_left t.depth (depthList ts)
  | k + 1, ts => by
    have h1 := halving_depth add k (List.zipWith (pair add) (ts.take (2 ^ k)) (ts.drop (2 ^ k)))
    have h2 := depthList_zipWith_pair add (ts.take (2 ^ k)) (ts.drop (2 ^ k))
    have h3 := depthList_take_drop (2 ^ k) ts
    rw [halving]
    omega

theorem halving_obeys {e : NodeError} {add : Int → Int → Int} (hadd : AddWithin e add) :
    ∀ (k : Nat) (ts : List SumTree), ObeysList e ts → Obeys e (halving add k ts)
  | 0, [], _ => trivial
  | 0, _ :: _, h => h.1
  | k + 1, ts, h => by
    have hs := obeysList_take_drop (2 ^ k) h
    rw [halving]
    exact halving_obeys hadd k _ (obeysList_zipWith_pair hadd _ _ hs.1 hs.2)

theorem leavesList_zipWith_pair (add : Int → Int → Int) :
    ∀ ss ts : List SumTree, ss.length = ts.length →
      (leavesList (List.zipWith (pair add) ss ts)).sum
          = (leavesList ss).sum + (leavesList ts).sum
        ∧ absSum (leavesList (List.zipWith (pair add) ss ts))
          = absSum (leavesList ss) + absSum (leavesList ts)
  | [], [], _ => ⟨rfl, rfl⟩
  | [], _ :: _, h => by rw [List.length_nil, List.length_cons] at h; omega
  | _ :: _, [], h => by rw [List.length_nil, List.length_cons] at h; omega
  | s :: ss, t :: ts, h => by
    rw [List.length_cons, List.length_cons] at h
    have ih := leavesList_zipWith_pair add ss ts (by omega)
    rw [List.zipWith_cons_cons, leavesList, leavesList, leavesList, pair_leaves]
    simp only [List.sum_append_int, absSum_append]
    omega

/-- Halving `2^k` parts loses no term: the exact sum and the magnitude are theirs. -/
theorem halving_leaves (add : Int → Int → Int) :
    ∀ (k : Nat) (ts : List SumTree), ts.length = 2 ^ k →
      (halving add k ts).leaves.sum = (leavesList ts).sum
        ∧ absSum (halving add k ts).leaves = absSum (leavesList ts)
  | 0, [t], _ => by
    rw [leavesList, leavesList, List.append_nil]
    exact ⟨rfl, rfl⟩
  | 0, [], h => by simp only [List.length_nil, Nat.pow_zero] at h; omega
  | 0, s :: t :: ts, h => by simp only [List.length_cons, Nat.pow_zero] at h; omega
  | k + 1, ts, h => by
    rw [Nat.two_pow_succ] at h
    have hz := leavesList_zipWith_pair add (ts.take (2 ^ k)) (ts.drop (2 ^ k))
      (by rw [List.length_take, List.length_drop]; omega)
    have ih := halving_leaves add k
      (List.zipWith (pair add) (ts.take (2 ^ k)) (ts.drop (2 ^ k)))
      (by rw [List.length_zipWith, List.length_take, List.length_drop]; omega)
    rw [halving, ih.1, ih.2, hz.1, hz.2, ← List.sum_append_int, ← absSum_append,
      ← leavesList_append, List.take_append_drop]
    exact ⟨rfl, rfl⟩

theorem map_value_zipWith_pair (add : Int → Int → Int) :
    ∀ ss ts : List SumTree, (List.zipWith (pair add) ss ts).map value
      = List.zipWith add (ss.map value) (ts.map value)
  | [], _ => rfl
  | _ :: _, [] => rfl
  | s :: ss, t :: ts => by
    rw [List.zipWith_cons_cons, List.map_cons, List.map_cons, List.map_cons, List.zipWith_cons_cons,
      map_value_zipWith_pair add ss ts]
    rfl

/-- What halving returns is `foldHalves` of the values. -/
theorem halving_value (add : Int → Int → Int) :
    ∀ (k : Nat) (ts : List SumTree), (halving add k ts).value = foldHalves add k (ts.map value)
  | 0, [] => rfl
  | 0, _ :: _ => rfl
  | k + 1, ts => by
    rw [halving, foldHalves, halving_value add k, map_value_zipWith_pair, List.map_take,
      List.map_drop]

theorem depthList_map_sequentialTerms (add : Int → Int → Int) {b : Nat} :
    ∀ blocks : List (List Int), (∀ xs ∈ blocks, xs.length ≤ b) →
      depthList (blocks.map (sequentialTerms add 0)) ≤ b
  | [], _ => Nat.zero_le _
  | xs :: blocks, h => by
    have h1 := sequentialTerms_depth add 0 xs
    have h2 := h xs (List.mem_cons_self ..)
    have h3 := depthList_map_sequentialTerms add blocks fun ys hys => h ys (List.mem_cons_of_mem _ hys)
    rw [List.map_cons, depthList]
    omega

theorem obeysList_map_sequentialTerms {e : NodeError} {add : Int → Int → Int}
    (hadd : AddWithin e add) :
    ∀ blocks : List (List Int), ObeysList e (blocks.map (sequentialTerms add 0))
  | [] => trivial
  | xs :: blocks =>
    ⟨sequentialTerms_obeys hadd 0 xs, obeysList_map_sequentialTerms hadd blocks⟩

/-- **Blocked and split-K depth**: the longest block plus the number of blocks. -/
theorem blocked_depth (add : Int → Int → Int) {blocks : List (List Int)} {b : Nat}
    (h : ∀ xs ∈ blocks, xs.length ≤ b) : (blocked add blocks).depth ≤ b + blocks.length := by
  have h1 := sequential_depth add (blocks.map (sequentialTerms add 0)) (.leaf 0)
  have h2 := depthList_map_sequentialTerms add blocks h
  rw [List.length_map, depth] at h1
  rw [blocked]
  omega

theorem blocked_obeys {e : NodeError} {add : Int → Int → Int} (hadd : AddWithin e add)
    (blocks : List (List Int)) : Obeys e (blocked add blocks) :=
  sequential_obeys hadd _ (acc := .leaf 0) trivial (obeysList_map_sequentialTerms hadd blocks)

/-- Blocks lose no term. -/
theorem blocked_leaves (add : Int → Int → Int) (blocks : List (List Int)) :
    (blocked add blocks).leaves.sum = blocks.flatten.sum
      ∧ absSum (blocked add blocks).leaves = absSum blocks.flatten := by
  have h : ∀ bs : List (List Int),
      (leavesList (bs.map (sequentialTerms add 0))).sum = bs.flatten.sum
        ∧ absSum (leavesList (bs.map (sequentialTerms add 0))) = absSum bs.flatten := by
    intro bs
    induction bs with
    | nil => exact ⟨rfl, rfl⟩
    | cons xs bs ih =>
      rw [List.map_cons, leavesList, sequentialTerms_leaves, List.flatten_cons]
      simp only [List.sum_append_int, absSum_append, List.sum_cons, absSum_cons, Int.natAbs_zero]
      omega
  rw [blocked, sequential_leaves, leaves]
  simp only [List.sum_append_int, absSum_append, List.sum_cons, absSum_cons, List.sum_nil,
    absSum_nil, Int.natAbs_zero]
  have hb := h blocks
  omega

theorem pair_nodeCount (add : Int → Int → Int) (s t : SumTree) :
    (pair add s t).nodeCount = s.nodeCount + t.nodeCount + 1 := by
  rw [pair, nodeCount, nodeCountList, nodeCountList, nodeCountList]
  rfl

/-- A running sum has one node for each part. -/
theorem sequential_nodeCount (add : Int → Int → Int) (ts : List SumTree) :
    ∀ acc : SumTree, (sequential add acc ts).nodeCount
      = acc.nodeCount + nodeCountList ts + ts.length := by
  induction ts with
  | nil => exact fun acc => rfl
  | cons t ts ih =>
    intro acc
    rw [sequential_cons, ih, pair_nodeCount, nodeCountList, List.length_cons]
    omega

/-! ## Any order at all -/

mutual
theorem leaves_pos_of_anyOrder : (t : SumTree) → AnyOrder t → 1 ≤ t.leaves.length
  | .leaf _, _ => Nat.le_refl 1
  | .node _ _ [], h => absurd rfl h.1
  | .node w v (t :: ts), h => by
    have h' := leavesList_length_of_anyOrder (t :: ts) h.2.2
    rw [leaves]
    rw [List.length_cons] at h'
    omega
theorem leavesList_length_of_anyOrder :
    (ts : List SumTree) → AnyOrderList ts → ts.length ≤ (leavesList ts).length
  | [], _ => Nat.zero_le _
  | t :: ts, h => by
    have h1 := leaves_pos_of_anyOrder t h.1
    have h2 := leavesList_length_of_anyOrder ts h.2
    rw [leavesList, List.length_cons, List.length_append]
    omega
end

mutual
/-- **Whatever the order and the adders**, the depth is at most twice the number of terms, less
two, plus the single-child roundings of a path: an adder of `m + 1` values costs `m + 1 ≤ 2·m` and
leaves `m` values fewer. -/
theorem anyOrder_depth : (t : SumTree) → AnyOrder t →
    t.depth + 2 ≤ 2 * t.leaves.length + t.unaryDepth
  | .leaf _, _ => Nat.le_refl 2
  | .node w v ts, h => by
    have hl := anyOrder_depthList ts h.1 h.2.2
    have hw := h.2.1
    have hne : ts.length ≠ 0 := fun h0 => h.1 (List.eq_nil_of_length_eq_zero h0)
    rw [depth, leaves, unaryDepth]
    split <;> omega
theorem anyOrder_depthList : (ts : List SumTree) → ts ≠ [] → AnyOrderList ts →
    depthList ts + 2 * ts.length ≤ 2 * (leavesList ts).length + unaryDepthList ts
  | [], h, _ => absurd rfl h
  | [t], _, h => by
    have h1 := anyOrder_depth t h.1
    rw [depthList, depthList, leavesList, leavesList, unaryDepthList, unaryDepthList,
      List.append_nil, List.length_cons, List.length_nil]
    omega
  | t :: s :: ts, _, h => by
    have h1 := anyOrder_depth t h.1
    have h2 := leaves_pos_of_anyOrder t h.1
    have h3 := anyOrder_depthList (s :: ts) (List.cons_ne_nil _ _) h.2
    have h4 := leavesList_length_of_anyOrder (s :: ts) h.2
    rw [depthList, leavesList, unaryDepthList, List.length_append,
      List.length_cons (a := t) (as := s :: ts)]
    omega
end

/-- **The any-order model**: with at most two single-child roundings on a path, `K` terms and
`n = 2·K`, every tree satisfies `|returned - exact| ≤ γ·A + (1+γ)·N·floor`, `γ = n·u/(1 - n·u)`. -/
theorem sum_any_order_bound {e : NodeError} (hden : 0 < e.den) {t : SumTree} (hob : Obeys e t)
    (hany : AnyOrder t) (hunary : t.unaryDepth ≤ 2) {K : Nat} (hK : t.leaves.length ≤ K)
    (hnu : 2 * K * e.num ≤ e.den) :
    (e.den - 2 * K * e.num) * t.error
      ≤ 2 * K * e.num * absSum t.leaves + e.den * (t.nodeCount * e.floor) := by
  have h := anyOrder_depth t hany
  exact sum_closed_gamma_bound hden hob (by omega) hnu

end SumTree
end CertHead
