import CertHead.Float.Round
import CertHead.Sum.Tree
/-!
# The fused dot-product accumulate of a tensor core

One instruction adds `group` exact products to an accumulator: every term is cut to `fraction`
bits below the largest exponent, the cut terms are added exactly, and the sum is truncated to the
accumulator's format. A dot product is a chain of such steps in increasing `k`. The exponent of a
product is the *sum of the exponent fields* of its operands: products are not normalised.
Parameters of NVIDIA Hopper for BF16: 16 products, 25 fraction bits, truncation (measured; see
`conformance` for the identification on a device). Finite values only.
-/

namespace CertHead

/-- An exact product on the common scale, with the exponent that its alignment uses. -/
structure FdpaTerm where
  /-- Unbiased exponent plus the scale's `B`: an exponent `e` stands for the magnitude `2^e` units. -/
  exp : Nat
  /-- The product, in units of the scale. -/
  value : Int
deriving DecidableEq, Repr

/-- A fused adder on a common scale `2^-scale`. -/
structure Fdpa where
  /-- Products per step. -/
  group : Nat
  /-- Bits kept below the largest exponent. -/
  fraction : Nat
  /-- The common scale is `2^-scale`. -/
  scale : Nat
  /-- The accumulator's format on that scale. -/
  acc : Grid
  /-- Significand bits of the operands, the leading one included. -/
  inputPrec : Nat
  /-- The exponent that a zero product or a zero accumulator brings to the largest one; `none`: it
  takes no part. Public models differ here (-133 in newer ones, -126 in an older one). -/
  zeroExp : Option Int
deriving DecidableEq, Repr

/-- Hopper, BF16 products into FP32, on the scale `2^-B`. The scale holds every cut exactly if
`277 ≤ B`: the smallest exponent of a product is `-252`, and 25 bits below it are kept. The theorems hold for
every `zeroExp` up to -126 and for `none`. -/
def hopper (B : Nat) (zeroExp : Option Int := some (-133)) : Fdpa := ⟨16, 25, B, fp32.grid B, 8, zeroExp⟩

/-! ## Operands -/

/-- A finite operand: `sig · 2^(exp - (prec - 1))`. A subnormal has the exponent `emin`. -/
structure Operand where
  sig : Int
  exp : Int
deriving DecidableEq, Repr

/-- The operand with the given 16 bits of BF16; `none` for infinities and NaN. -/
def decodeBf16 (bits : Nat) : Option Operand :=
  let field := bits / 128 % 256
  let fraction := bits % 128
  let magnitude : Nat := if field = 0 then fraction else 128 + fraction
  let sig : Int := if bits / 32768 % 2 = 1 then -(magnitude : Int) else magnitude
  if field = 255 then none else some ⟨sig, (max field 1 : Nat) - 127⟩

/-- The operands of a row of BF16 bits; `none` if one is not finite. -/
def decodeRow : List Nat → Option (List Operand)
  | [] => some []
  | x :: xs => (decodeBf16 x).bind fun a => (decodeRow xs).map (a :: ·)

/-- The value of a BF16 operand on the scale `2^-B`. -/
def Operand.value (B : Nat) (a : Operand) : Int := a.sig * 2 ^ (B + a.exp - 7).toNat

namespace Fdpa

/-- The exponent that a zero brings to the largest one. -/
def zeroTermExp (m : Fdpa) : Nat :=
  match m.zeroExp with
  | none => 0
  | some z => (m.scale + z).toNat

/-- The product of two operands, its exponent the sum of theirs. Exact if the scale is fine enough:
`2·(inputPrec - 1) ≤ scale + a.exp + b.exp`. -/
def product (m : Fdpa) (a b : Operand) : FdpaTerm where
  exp := if a.sig * b.sig = 0 then m.zeroTermExp else (m.scale + a.exp + b.exp).toNat
  value := a.sig * b.sig * 2 ^ (m.scale + a.exp + b.exp - 2 * ((m.inputPrec : Int) - 1)).toNat

/-- The exponent of the accumulator: its leading bit, or `emin` for a subnormal. -/
def accExp (m : Fdpa) (c : Int) : Nat :=
  if c = 0 then m.zeroTermExp else m.acc.quantumExp c.natAbs + (m.acc.prec - 1)

/-! ## One step -/

/-- Cut to a multiple of `2^q`, towards zero. -/
def cut (q : Nat) (x : Int) : Int := x.tdiv (2 ^ q) * 2 ^ q

/-- The largest exponent of the accumulator and the terms. -/
def maxExp (m : Fdpa) (c : Int) (terms : List FdpaTerm) : Nat :=
  terms.foldr (fun t e => max t.exp e) (m.accExp c)

/-- Every term is cut to a multiple of two to this. -/
def cutExp (m : Fdpa) (c : Int) (terms : List FdpaTerm) : Nat := m.maxExp c terms - m.fraction

/-- The sum of the terms cut to a multiple of `2^q`. -/
def cutSum (q : Nat) (terms : List FdpaTerm) : Int := (terms.map fun t => cut q t.value).sum

/-- The exact sum of the cut terms and the cut accumulator. -/
def alignedSum (m : Fdpa) (c : Int) (terms : List FdpaTerm) : Int :=
  let q := m.cutExp c terms
  cut q c + cutSum q terms

/-- One step: the aligned sum, truncated to the accumulator's precision. -/
def step (m : Fdpa) (c : Int) (terms : List FdpaTerm) : Int := roundZ m.acc (m.alignedSum c terms)

/-- One step; `none` where the result overflows (to an infinity, on the machine). -/
def step? (m : Fdpa) (c : Int) (terms : List FdpaTerm) : Option Int :=
  let d := m.step c terms
  if d.natAbs < 2 ^ m.acc.top then some d else none

/-! ## Chains -/

/-- Steps in turn, the accumulator handed on. -/
def chain (m : Fdpa) (c : Int) (blocks : List (List FdpaTerm)) : Int := blocks.foldl m.step c

/-- Steps in turn; `none` as soon as one overflows. -/
def chain? (m : Fdpa) : Int → List (List FdpaTerm) → Option Int
  | c, [] => some c
  | c, b :: bs => (m.step? c b).bind fun d => chain? m d bs

end Fdpa

/-- Consecutive blocks of `n`, at most `fuel` of them; the last may be shorter. -/
def blocksUpTo (n : Nat) : Nat → List α → List (List α)
  | 0, _ => []
  | _ + 1, [] => []
  | fuel + 1, x :: xs => (x :: xs).take n :: blocksUpTo n fuel ((x :: xs).drop n)

/-- Consecutive blocks of `n`; the last may be shorter. -/
def blocksOf (n : Nat) (xs : List α) : List (List α) := blocksUpTo n xs.length xs

namespace Fdpa

/-- The exact products of two rows. -/
def products (m : Fdpa) (a b : List Operand) : List FdpaTerm := List.zipWith m.product a b

/-- The chain over terms in blocks of `group`. -/
def chainOf (m : Fdpa) (c : Int) (terms : List FdpaTerm) : Int := m.chain c (blocksOf m.group terms)

/-- The dot product of two rows, from a zero accumulator: what the stock kernel computes. -/
def dot (m : Fdpa) (a b : List Operand) : Int := m.chainOf 0 (m.products a b)

/-- The dot product of two rows of BF16 bits, in units of the scale; `none` where an operand is
not finite or a step overflows. -/
def dotBits (m : Fdpa) (a b : List Nat) : Option Int :=
  (decodeRow a).bind fun a => (decodeRow b).bind fun b =>
    m.chain? 0 (blocksOf m.group (m.products a b))

/-- One step on BF16 bits and an accumulator in units of the scale. -/
def stepBits (m : Fdpa) (c : Int) (a b : List Nat) : Option Int :=
  (decodeRow a).bind fun a => (decodeRow b).bind fun b => m.step? c (m.products a b)

/-! ## What a step and a chain can lose -/

/-- One step is off by at most this: what the cuts drop, and what the last truncation drops. -/
def stepLoss (m : Fdpa) (c : Int) (terms : List FdpaTerm) : Nat :=
  (terms.length + 1) * (2 ^ m.cutExp c terms - 1) + (m.acc.quantum (m.step c terms).natAbs - 1)

/-- A chain is off by at most this: the losses of its steps, each at its own exponent. -/
def chainLoss (m : Fdpa) : Int → List (List FdpaTerm) → Nat
  | _, [] => 0
  | c, b :: bs => m.stepLoss c b + chainLoss m (m.step c b) bs

/-- The exact sum of the terms. -/
def exactSum (terms : List FdpaTerm) : Int := (terms.map FdpaTerm.value).sum

/-- The sum of the magnitudes of the terms. -/
def magnitude (terms : List FdpaTerm) : Nat := absSum (terms.map FdpaTerm.value)

/-- The chain as a summation tree: one node of weight 1 for each step. -/
def chainTree (m : Fdpa) (acc : SumTree) (blocks : List (List FdpaTerm)) : SumTree :=
  blocks.foldl
    (fun t b => .node 1 (m.step t.value b) (t :: (b.map FdpaTerm.value).map .leaf)) acc

/-- The error of one step as a node: `u = t·2^-fraction + 2^(1-prec)`, where `t` terms can be cut:
all `group + 1`, or `group` where the leading one never is. `slack` is what the alignment exponent
may exceed the terms by (subnormal operands, zeros that take part). -/
def nodeError (m : Fdpa) (slack : Nat) (t : Nat := m.group + 1) : NodeError where
  num := t + 2 ^ (m.fraction + 1 - m.acc.prec)
  den := 2 ^ m.fraction
  floor := t * slack / 2 ^ m.fraction + 1 + 2 ^ m.acc.qmin

/-- The chain as a summation tree whose nodes weigh as much as they have children. -/
def anyOrderTree (m : Fdpa) (acc : SumTree) (blocks : List (List FdpaTerm)) : SumTree :=
  blocks.foldl
    (fun t b =>
      .node (b.length + 1) (m.step t.value b) (t :: (b.map FdpaTerm.value).map .leaf)) acc

/-- The error of one step in the any-order model: `u = 2^(1-prec)` for each addend. -/
def anyOrderError (m : Fdpa) (slack : Nat) : NodeError where
  num := 1
  den := 2 ^ (m.acc.prec - 1)
  floor := m.group * slack / 2 ^ (m.acc.prec - 1) + 1 + 2 ^ m.acc.qmin

end Fdpa
end CertHead
