/-!
# The decision stages, as programs

`select`, `decide` and `certify` of `docs/spec.md`, over integers. Values stand for finite floats at
one common scale, `rn` for the rounding to the logits' format (BF16, nearest even). Rows are given by
functions of the row number, so that the same definitions run on arrays (the reference executable) and
on whatever a theorem speaks about. Nothing here is proved; see the other modules of this folder.
-/

namespace CertHead

/-- An enclosure of one row's stock accumulator. -/
structure Interval where
  lo : Int
  hi : Int
  deriving DecidableEq, Repr, Inhabited

/-- The value lies in the interval, ends included. -/
def Interval.Contains (v : Interval) (x : Int) : Prop := v.lo ≤ x ∧ x ≤ v.hi

/-- The interval that holds one value only. -/
def Interval.point (x : Int) : Interval := ⟨x, x⟩

/-- Why a position goes back to the stock head. -/
inductive Reason where
  | refused
  | overflow
  | ambiguous
  deriving DecidableEq, Repr

/-- What the certified head says about a position. -/
inductive Outcome where
  /-- The candidates' stock accumulators are known; this is their first maximum. -/
  | exact (token : Nat)
  /-- The accumulators are enclosed, and every choice inside the enclosures gives this token. -/
  | enclosed (token : Nat)
  /-- Nothing is claimed; the stock head decides. -/
  | fallback (why : Reason)
  deriving DecidableEq, Repr

/-- The token that an outcome vouches for. -/
def Outcome.token? : Outcome → Option Nat
  | exact k => some k
  | enclosed k => some k
  | fallback _ => none

/-- First maximum of `f` over a list of rows: the left fold that keeps the earlier row on a tie. -/
def firstMax (f : Nat → Int) : List Nat → Option Nat
  | [] => none
  | i :: rows => some (rows.foldl (fun best j => if f best < f j then j else best) i)

/-- The head's size and the way that `select` looks at it. -/
structure Shape where
  /-- Rows of the head (`V`). -/
  rows : Nat
  /-- Rows in a block; the last block may be shorter. -/
  block : Nat
  /-- Candidate blocks that may be rescored; more means `overflow`. -/
  capacity : Nat
  deriving DecidableEq, Repr

/-- Number of blocks. -/
def Shape.blocks (s : Shape) : Nat := (s.rows + s.block - 1) / s.block

/-- Rows of one block, ascending. -/
def Shape.rowsOf (s : Shape) (b : Nat) : List Nat :=
  List.range' (b * s.block) (min s.block (s.rows - b * s.block))

/-- A block holds a candidate: its largest upper end rounds to at least the threshold. -/
def blockQualifies (rn : Int → Int) (s : Shape) (screen : Nat → Interval) (threshold : Int) (b : Nat) : Bool :=
  match firstMax (fun i => (screen i).hi) (s.rowsOf b) with
  | none => false
  | some i => decide (threshold ≤ rn (screen i).hi)

/-- Candidate blocks, ascending. The threshold is the rounded best lower end. -/
def candidateBlocks (rn : Int → Int) (s : Shape) (screen : Nat → Interval) : List Nat :=
  match firstMax (fun i => (screen i).lo) (List.range s.rows) with
  | none => []
  | some best => (List.range s.blocks).filter (blockQualifies rn s screen (rn (screen best).lo))

/-- `select`: the candidate blocks, or `none` when they are more than the capacity. -/
def select (rn : Int → Int) (s : Shape) (screen : Nat → Interval) : Option (List Nat) :=
  let found := candidateBlocks rn s screen
  if found.length ≤ s.capacity then some found else none

/-- All rows of the selected blocks, ascending. -/
def rowsOfBlocks (s : Shape) (selected : List Nat) : List Nat := selected.flatMap s.rowsOf

/-- The interval condition: `k` is the first maximum of the rounded lower ends, every earlier row's
rounded upper end lies strictly below it, and every later row's does not exceed it. -/
def decideEnclosed (rn : Int → Int) (value : Nat → Interval) (rows : List Nat) : Option Nat :=
  match firstMax (fun i => rn (value i).lo) rows with
  | none => none
  | some k =>
    if rows.all (fun j =>
        if j < k then decide (rn (value j).hi < rn (value k).lo)
        else if k < j then decide (rn (value j).hi ≤ rn (value k).lo)
        else true)
    then some k else none

/-- What `rescore` returned for the candidate rows. -/
inductive Rescored where
  /-- The stock accumulators themselves. -/
  | exact (value : Nat → Int)
  /-- Enclosures of the stock accumulators. -/
  | enclosed (value : Nat → Interval)

/-- `decide` on the candidate rows. -/
def decideRows (rn : Int → Int) (rescored : Rescored) (rows : List Nat) : Outcome :=
  match rescored with
  | .exact value =>
    match firstMax (fun i => rn (value i)) rows with
    | some k => .exact k
    | none => .fallback .refused
  | .enclosed value =>
    match decideEnclosed rn value rows with
    | some k => .enclosed k
    | none => .fallback .ambiguous

/-- The certified head after the screen: select, then decide among the rescored candidates. -/
def certify (rn : Int → Int) (s : Shape) (screen : Nat → Interval) (rescored : Rescored) : Outcome :=
  match select rn s screen with
  | none => .fallback .overflow
  | some selected => decideRows rn rescored (rowsOfBlocks s selected)

end CertHead
