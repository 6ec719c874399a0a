import CertHead.Sum.TreeProperties
/-! The γ bound with one node less on the longest path than the tree has. -/
namespace CertHead
open SumTree

/-- One node that returns 11 for 10, as its error of a tenth allows. -/
example : ¬ (SumTree.node 1 11 [.leaf 10]).error + absSum [10] ≤ absSum [10] + 0 := by decide

theorem gamma_without_last_node {e : NodeError} (hden : 0 < e.den) {t : SumTree} (hob : Obeys e t)
    {n : Nat} (hn : t.depth ≤ n + 1) :
    e.den ^ n * (t.error + absSum t.leaves)
      ≤ (e.den + e.num) ^ n * (absSum t.leaves + t.nodeCount * e.floor) :=
  pow_bound_extends (Nat.le_add_right _ _) (Nat.le_of_succ_le_succ hn) (error_bound_of_any_tree hden t hob) -- rejected: Application type mismatch

end CertHead
