import CertHead.Decision.Code
import CertHead.Enclosure.Screen
import CertHead.Sum.Fdpa

/-!
# The whole head, as a program

The stock head *defined* (a chain of fused dot-product steps, one rounding to BF16, first maximum) and the
certified head *run* on the same BF16 bits: quantise, limbs, screen, select, rescore, decide. `EndToEnd` proves
that the second answers with the first one's token.
-/

namespace CertHead

open Enclosure

/-- Weights and inputs are integers on the scale `2^-149`; products and accumulators on `2^-298`. -/
def headScale : Nat := 149

/-- A BF16 pattern that is finite and below `2^16` in magnitude. -/
def inRange (bits : Nat) : Bool := decide (bits / 128 % 256 ≤ 142)

/-- The operand with the given BF16 bits (zero for infinities and NaN, which `inRange` excludes). -/
def operandOf (bits : Nat) : Operand := (decodeBf16 bits).getD ⟨0, -126⟩

/-- A row of BF16 bits as integers on the scale `2^-149`. -/
def integersOf (row : List Nat) : List Int := (row.map operandOf).map (Operand.value headScale)

/-! ## The stock head -/

/-- The stock accumulator of two rows of BF16 bits: the Hopper chain. `zeroExp` says how the adder treats
zeros when it looks for the largest exponent (see `Fdpa`). -/
def stockAccumulator (zeroExp : Option Int) (w h : List Nat) : Int :=
  (hopper (2 * headScale) zeroExp).dot (w.map operandOf) (h.map operandOf)

/-- Rounding an accumulator on the scale `2^-298` to a BF16 logit. -/
def toLogit (y : Int) : Int := roundNE (bf16.grid (2 * headScale)) y

/-- The stock head's logit of row `i`. -/
def stockLogit (zeroExp : Option Int) (W : List (List Nat)) (h : List Nat) (i : Nat) : Int :=
  toLogit (stockAccumulator zeroExp (W.getD i []) h)

/-- **The stock head**: the first index of the largest logit. -/
def stockToken (zeroExp : Option Int) (W : List (List Nat)) (h : List Nat) : Option Nat :=
  firstMax (stockLogit zeroExp W h) (List.range W.length)

/-! ## The certified head -/

/-- What can be chosen. None of it affects which token is right. -/
structure HeadConfig where
  /-- Columns per group of the residual norms. -/
  group : Nat
  limbs : LimbCount
  /-- The stock model's `γ` in units of `2^-40`. -/
  gammaNum : Nat
  /-- Rows per block. -/
  block : Nat
  /-- Blocks that may be rescored. -/
  capacity : Nat
  deriving Repr

/-- `γ` is not smaller than the Hopper chain's over `K` products: `gammaNum/2^40 ≥ (1 + 20·2^-25)^⌈K/16⌉ − 1`. -/
def gammaSuffices (gammaNum columns : Nat) : Bool :=
  let s := (columns + 15) / 16
  decide (2 ^ 40 * ((2 ^ 25 + 20) ^ s - (2 ^ 25) ^ s) ≤ gammaNum * (2 ^ 25) ^ s)

/-- The head lies inside the specified range. -/
def headInRange (c : HeadConfig) (W : List (List Nat)) (h : List Nat) : Bool :=
  W.all (fun w => decide (w.length = h.length) && w.all inRange) && h.all inRange &&
    decide (h.length ≤ 2 ^ 16) && decide (0 < c.group)

/-- `Q` of the specification: no row of codes has a larger norm. -/
def headCodeNorm (columns : Nat) (rows : List QuantizedRow) : Int :=
  codeNormBound columns (rows.foldl (fun m row => max m row.normCode) 0)

/-- The screen's intervals of all rows. -/
def screenAll (c : HeadConfig) (rows : List QuantizedRow) (p : Limbs) (i : Nat) : Interval :=
  let ends := (rows.map fun row => screen headScale (residualShift c.group) row p).getD i (0, 0)
  ⟨ends.1, ends.2⟩

/-- The quantised head. -/
def quantizeHead (c : HeadConfig) (W : List (List Nat)) : List QuantizedRow :=
  W.map fun w => quantizeRow headScale c.group (integersOf w)

/-- Quantise, limbs, screen, select and decide, with whatever rescoring returned for the candidates. -/
def headWith (c : HeadConfig) (rescored : Rescored) (W : List (List Nat)) (h : List Nat) : Outcome :=
  if headInRange c W h then
    let rows := quantizeHead c W
    match limbs? c.limbs headScale c.group c.gammaNum (headCodeNorm h.length rows) (integersOf h) with
    | none => .fallback .refused
    | some p => certify toLogit ⟨W.length, c.block, c.capacity⟩ (screenAll c rows p) rescored
  else .fallback .refused

/-- **The certified head** for one position in exact mode, from BF16 bits to an outcome: candidates are rescored
by the stock kernel's own chain. -/
def certifiedHead (c : HeadConfig) (zeroExp : Option Int) (W : List (List Nat)) (h : List Nat) : Outcome :=
  if gammaSuffices c.gammaNum h.length then
    headWith c (.exact fun i => stockAccumulator zeroExp (W.getD i []) h) W h
  else .fallback .refused

end CertHead
