/-!
# Summation trees

A sum as a machine carried it out: which partial results were added in which order, and the value
that came out at every node. A tree says nothing about how a node rounded; `SumTree.Obeys` bounds
how far a node may be off. So one theorem (`TreeProperties`) speaks about every order, every split
and every adder: sequential, pairwise, blocked, split-K, fused. All values are integers on one
common scale (see `Float/Format`).
-/

namespace CertHead

/-- The sum of the magnitudes. -/
def absSum (xs : List Int) : Nat := (xs.map Int.natAbs).sum

/-- How far one node may be off: `num / den` is the relative error of a node of weight 1, and
`floor` an absolute error on top (underflow, flushing to zero), in units of the scale. -/
structure NodeError where
  num : Nat
  den : Nat
  floor : Nat
deriving DecidableEq, Repr

/-- A node of weight `w` with the children `xs` may return any `s` with
`|s - Σ xs| ≤ w·(num/den)·Σ|xs| + floor`; the denominator is cleared. -/
def NodeError.Admits (e : NodeError) (w : Nat) (xs : List Int) (s : Int) : Prop :=
  e.den * (s - xs.sum).natAbs ≤ w * e.num * absSum xs + e.den * e.floor

/-- A sum as it was carried out. A leaf is an exact term. A node holds the value that the machine
returned for the sum of its children, and a weight: the number of unit errors that it may make
(1 for one rounded addition, `n + 1` for a truncating adder of `n` terms, 0 for an exact one). -/
inductive SumTree where
  | leaf (value : Int)
  | node (weight : Nat) (value : Int) (children : List SumTree)

namespace SumTree

/-- The value that the machine returned. -/
def value : SumTree → Int
  | .leaf v => v
  | .node _ v _ => v

mutual
/-- The exact terms, from left to right. -/
def leaves : SumTree → List Int
  | .leaf v => [v]
  | .node _ _ ts => leavesList ts
/-- `leaves` of several trees. -/
def leavesList : List SumTree → List Int
  | [] => []
  | t :: ts => t.leaves ++ leavesList ts
end

mutual
/-- The largest sum of weights on a path from a leaf to the root. -/
def depth : SumTree → Nat
  | .leaf _ => 0
  | .node w _ ts => w + depthList ts
/-- `depth` of the deepest of several trees. -/
def depthList : List SumTree → Nat
  | [] => 0
  | t :: ts => max t.depth (depthList ts)
end

mutual
/-- The number of nodes that are not leaves. -/
def nodeCount : SumTree → Nat
  | .leaf _ => 0
  | .node _ _ ts => nodeCountList ts + 1
/-- `nodeCount` of several trees. -/
def nodeCountList : List SumTree → Nat
  | [] => 0
  | t :: ts => t.nodeCount + nodeCountList ts
end

mutual
/-- Every node of the tree is within the node error of the exact sum of its children. -/
def Obeys (e : NodeError) : SumTree → Prop
  | .leaf _ => True
  | .node w v ts => e.Admits w (ts.map value) v ∧ ObeysList e ts
/-- `Obeys` for several trees. -/
def ObeysList (e : NodeError) : List SumTree → Prop
  | [] => True
  | t :: ts => Obeys e t ∧ ObeysList e ts
end

mutual
/-- The largest number of nodes with a single child on a path: roundings that add nothing. -/
def unaryDepth : SumTree → Nat
  | .leaf _ => 0
  | .node _ _ ts => unaryDepthList ts + (if ts.length = 1 then 1 else 0)
/-- `unaryDepth` of several trees. -/
def unaryDepthList : List SumTree → Nat
  | [] => 0
  | t :: ts => max t.unaryDepth (unaryDepthList ts)
end

mutual
/-- Every node has children, and makes at most as many unit errors as it has children: one for a
rounded addition of two or for a single rounding, `n` for a truncating adder of `n` terms (the
leading one loses nothing, and the sum is rounded once). -/
def AnyOrder : SumTree → Prop
  | .leaf _ => True
  | .node w _ ts => ts ≠ [] ∧ w ≤ ts.length ∧ AnyOrderList ts
/-- `AnyOrder` for several trees. -/
def AnyOrderList : List SumTree → Prop
  | [] => True
  | t :: ts => AnyOrder t ∧ AnyOrderList ts
end

/-- The distance between what the machine returned and the exact sum of the terms. -/
def error (t : SumTree) : Nat := (t.value - t.leaves.sum).natAbs

/-! ## The usual shapes, for a machine whose two-term addition is `add` -/

/-- One addition of weight 1. -/
def pair (add : Int → Int → Int) (s t : SumTree) : SumTree :=
  .node 1 (add s.value t.value) [s, t]

/-- A running sum: `acc`, then each tree in turn. -/
def sequential (add : Int → Int → Int) (acc : SumTree) (ts : List SumTree) : SumTree :=
  ts.foldl (pair add) acc

/-- A running sum over terms. -/
def sequentialTerms (add : Int → Int → Int) (acc : Int) (xs : List Int) : SumTree :=
  sequential add (.leaf acc) (xs.map .leaf)

/-- Pairwise summation of at most `2^k` trees: split at the largest power of two. -/
def pairwise (add : Int → Int → Int) : Nat → List SumTree → SumTree
  | 0, ts => ts.headD (.leaf 0)
  | k + 1, ts =>
    if ts.length ≤ 2 ^ k then pairwise add k ts
    else pair add (pairwise add k (ts.take (2 ^ k))) (pairwise add k (ts.drop (2 ^ k)))

/-- Halving: `x ← x[:n/2] + x[n/2:]`, `k` times, on `2^k` trees. -/
def halving (add : Int → Int → Int) : Nat → List SumTree → SumTree
  | 0, ts => ts.headD (.leaf 0)
  | k + 1, ts => halving add k (List.zipWith (pair add) (ts.take (2 ^ k)) (ts.drop (2 ^ k)))

/-- Blocks, each a running sum from zero, then a running sum of the blocks. Split-K is the same
shape with other numbers: the blocks are the parts of `K`. -/
def blocked (add : Int → Int → Int) (blocks : List (List Int)) : SumTree :=
  sequential add (.leaf 0) (blocks.map (sequentialTerms add 0))

end SumTree

/-- The value of halving on plain integers: what `SumTree.halving` returns, without the tree. -/
def foldHalves (add : Int → Int → Int) : Nat → List Int → Int
  | 0, xs => xs.headD 0
  | k + 1, xs => foldHalves add k (List.zipWith add (xs.take (2 ^ k)) (xs.drop (2 ^ k)))

end CertHead
