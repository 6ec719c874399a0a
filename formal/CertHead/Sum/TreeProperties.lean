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

end SumTree
end CertHead
