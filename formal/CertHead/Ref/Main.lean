import CertHead.Decision.Rescore
import CertHead.Float.Codec

/-!
# The executable reference

`lake exe certhead-ref` (offline: `tools/lean-offline/lean -path BUILD -run CertHead.Ref.Main`) reads lines and
answers each with one line, from the same functions that the theorems speak about.

A line is a stage's name and integers in decimal, separated by single spaces. Values are integers at a common
scale `2^-B`; a grid is the three integers `prec qmin top` of `Float.Format.Grid` on that scale. Rows follow
each other; an interval is `lo hi`.

| request | answer |
|---|---|
| `round-ne`, `round-z`, `round-up`, `round-down` GRID x… | the rounded values, each an integer, `inf` or `-inf` |
| `first-max` y… | the row |
| `select` GRID rows block capacity INTERVAL… | `blocks b…` or `overflow` |
| `decide-exact` GRID y… | `exact k` or `fallback refused` |
| `decide-enclosed` GRID INTERVAL… | `enclosed k`, `fallback ambiguous` |
| `certify-exact` GRID rows block capacity INTERVAL… y… | `exact k`, `fallback overflow`, `fallback refused` |
| `certify-enclosed` GRID rows block capacity INTERVAL… INTERVAL… | `enclosed k`, `fallback …` |

| `decode` PREC EMIN EMAX B bits… | the values on the scale `2^-B`, each an integer, `inf`, `-inf` or `nan` |
| `encode` PREC EMIN EMAX B x… | the bits of values of the format |
| `fdpa-step` ADDER c PAIR… | the accumulator after one step, or `none` |
| `fdpa-dot` ADDER PAIR… | the chain from zero, or `none` |
| `quantize` B group w… | `s`, the codes, the residual codes, the norm code |
| `limbs` LIMBS B group gammaNum codeNorm h… | `u τ N Y`, high limbs, low limbs, group codes; or `refused` |
| `screen` LIMBS B group gammaNum columns w… h… | `center spread width lo hi` |
| `rescore` gammaNum PAIR… | the enclosure `lo hi` of the stock accumulator, on the scale `2^-298` |
| `stock-token` ZERO rows columns bits… | the stock head's token |
| `head` LIMBS group gammaNum block capacity ZERO rows columns bits… | an outcome of the whole certified head |
| `head-enclosed` LIMBS group gammaNum block capacity rows columns bits… | the same in enclosed mode |

ZERO is two integers, `0 0` for an adder in which zeros take no part in the largest exponent, else `1 e` with the
exponent of a zero. ADDER is `group fraction scale` and ZERO; the accumulator is FP32. PAIR is the BF16 bits of two
operands; LIMBS is 1 or 2; `w`, `h` are integers on the scale `2^-B`. `head`, `head-enclosed` and `stock-token` take the BF16 bits
of the rows and then of the input.

`certify` takes the screen's intervals of all rows, then the rescored values of all rows (only those of the
selected blocks are looked at). A line that is not understood is answered with `error` and why.
-/

namespace CertHead.Ref

/-- The words of an answer. -/
def words (parts : List String) : String := String.intercalate " " parts

def showExt : Ext → String
  | .fin x => toString x
  | .inf false => "inf"
  | .inf true => "-inf"
  | .nan => "nan"

def Reason.show : Reason → String
  | .refused => "refused"
  | .overflow => "overflow"
  | .ambiguous => "ambiguous"

def showOutcome : Outcome → String
  | .exact k => s!"exact {k}"
  | .enclosed k => s!"enclosed {k}"
  | .fallback why => s!"fallback {Reason.show why}"

/-- Values by row number; zero beyond the end. -/
def valueAt (values : Array Int) (start i : Nat) : Int := values.getD (start + i) 0

/-- Intervals by row number, from a flat list of ends that starts at `start`. -/
def intervalAt (values : Array Int) (start i : Nat) : Interval :=
  ⟨valueAt values start (2 * i), valueAt values start (2 * i + 1)⟩

/-- The grid that the first three numbers name. -/
def gridOf (a : Array Int) : Grid := ⟨(valueAt a 0 0).toNat, (valueAt a 0 1).toNat, (valueAt a 0 2).toNat⟩

/-- The shape in numbers 3, 4 and 5. -/
def shapeOf (a : Array Int) : Shape := ⟨(valueAt a 0 3).toNat, (valueAt a 0 4).toNat, (valueAt a 0 5).toNat⟩

def roundAll (mode : Mode) (a : Array Int) : String :=
  words ((a.toList.drop 3).map fun x => showExt (finish (gridOf a) mode x))

/-- The number of integers that a stage needs must be there exactly. -/
def exactly (a : Array Int) (n : Nat) (answer : String) : String :=
  if a.size = n then answer else s!"error {a.size} integers where {n} are needed"

def showInts (xs : List Int) : String := words (xs.map toString)

/-- The integers from position `start` on. -/
def fromIndex (a : Array Int) (start : Nat) : List Int := a.toList.drop start

def naturals (xs : List Int) : List Nat := xs.map Int.toNat

def natAt (a : Array Int) (i : Nat) : Nat := (valueAt a 0 i).toNat

def zeroOf (a : Array Int) (i : Nat) : Option Int := if valueAt a 0 i = 0 then none else some (valueAt a 0 (i + 1))

def limbCountOf (n : Int) : Enclosure.LimbCount := if n = 1 then .one else .two

/-- The format that the first three numbers name. -/
def formatOf (a : Array Int) : Format := ⟨natAt a 0, valueAt a 0 1, valueAt a 0 2⟩

def adderOf (a : Array Int) : Fdpa where
  group := natAt a 0
  fraction := natAt a 1
  scale := natAt a 2
  acc := fp32.grid (natAt a 2)
  inputPrec := 8
  zeroExp := zeroOf a 3

/-- First and second members of consecutive pairs. -/
def unpair : List Nat → List Nat × List Nat
  | x :: y :: rest => let (xs, ys) := unpair rest; (x :: xs, y :: ys)
  | _ => ([], [])

def showOption : Option Int → String
  | some x => toString x
  | none => "none"

def showLimbs (p : Enclosure.Limbs) : String :=
  showInts ([p.unit, (p.groupShift : Int), p.norm, p.tailCode] ++ p.hi ++ p.lo ++ p.groupCodes)

/-- One request of the stages up to `screen`. -/
def answerArithmetic (stage : String) (a : Array Int) : Option String :=
  match stage with
  | "decode" => some (words ((naturals (fromIndex a 4)).map fun b => showExt (fromBits (formatOf a) (natAt a 3) b)))
  | "encode" => some (words ((fromIndex a 4).map fun x => toString (toBits (formatOf a) (natAt a 3) (.fin x))))
  | "fdpa-step" =>
    let (xs, ys) := unpair (naturals (fromIndex a 6))
    some (showOption ((adderOf a).stepBits (valueAt a 0 5) xs ys))
  | "fdpa-dot" =>
    let (xs, ys) := unpair (naturals (fromIndex a 5))
    some (showOption ((adderOf a).dotBits xs ys))
  | "rescore" =>
    let (xs, ys) := unpair (naturals (fromIndex a 1))
    let ends := rescoreEnclosed (natAt a 0) xs ys
    some (showInts [ends.lo, ends.hi])
  | "quantize" =>
    let row := Enclosure.quantizeRow (natAt a 0) (natAt a 1) (fromIndex a 2)
    some (showInts (row.scale :: row.codes ++ row.residualCodes ++ [row.normCode]))
  | "limbs" =>
    match Enclosure.limbs? (limbCountOf (valueAt a 0 0)) (natAt a 1) (natAt a 2) (natAt a 3) (valueAt a 0 4)
        (fromIndex a 5) with
    | some p => some (showLimbs p)
    | none => some "refused"
  | "screen" =>
    let B := natAt a 1
    let group := natAt a 2
    let columns := natAt a 4
    let row := Enclosure.quantizeRow B group ((fromIndex a 5).take columns)
    let p := Enclosure.limbsOf (limbCountOf (valueAt a 0 0)) B group (natAt a 3) (fromIndex a (5 + columns))
    let ρ := Enclosure.residualShift group
    let s := Enclosure.screenRow ρ row p
    let ends := Enclosure.screen B ρ row p
    some (exactly a (5 + 2 * columns) (showInts [s.center, s.spread, s.width, ends.1, ends.2]))
  | _ => none

/-- Rows of `columns` each. -/
def rowsFrom (a : Array Int) (start rows columns : Nat) : List (List Nat) :=
  (List.range rows).map fun i => (List.range columns).map fun k => natAt a (start + i * columns + k)

/-- The configuration in the first five numbers. -/
def configOf (a : Array Int) : HeadConfig where
  limbs := limbCountOf (valueAt a 0 0)
  group := natAt a 1
  gammaNum := natAt a 2
  block := natAt a 3
  capacity := natAt a 4

/-- One request about whole heads. -/
def answerHead (stage : String) (a : Array Int) : Option String :=
  match stage with
  | "stock-token" =>
    let rows := natAt a 2
    let columns := natAt a 3
    let token := stockToken (zeroOf a 0) (rowsFrom a 4 rows columns) (naturals (fromIndex a (4 + rows * columns)))
    some (exactly a (4 + (rows + 1) * columns) (showOption (token.map Int.ofNat)))
  | "head" =>
    let rows := natAt a 7
    let columns := natAt a 8
    some (exactly a (9 + (rows + 1) * columns) (showOutcome (certifiedHead (configOf a) (zeroOf a 5)
      (rowsFrom a 9 rows columns) (naturals (fromIndex a (9 + rows * columns))))))
  | "head-enclosed" =>
    let rows := natAt a 5
    let columns := natAt a 6
    some (exactly a (7 + (rows + 1) * columns) (showOutcome (certifiedHeadEnclosed (configOf a)
      (rowsFrom a 7 rows columns) (naturals (fromIndex a (7 + rows * columns))))))
  | _ => none

/-- One request. -/
def answer (stage : String) (a : Array Int) : String :=
  let rn := roundNE (gridOf a)
  let shape := shapeOf a
  let screen := intervalAt a 6
  let after := 6 + 2 * shape.rows
  match stage with
  | "round-ne" => roundAll .nearestEven a
  | "round-z" => roundAll .towardZero a
  | "round-up" => roundAll .up a
  | "round-down" => roundAll .down a
  | "first-max" =>
    match firstMax (valueAt a 0) (List.range a.size) with
    | some k => toString k
    | none => "none"
  | "select" => exactly a after <|
    match select rn shape screen with
    | some blocks => words ("blocks" :: blocks.map toString)
    | none => "overflow"
  | "decide-exact" => showOutcome (decideRows rn (.exact (valueAt a 3)) (List.range (a.size - 3)))
  | "decide-enclosed" =>
    showOutcome (decideRows rn (.enclosed (intervalAt a 3)) (List.range ((a.size - 3) / 2)))
  | "certify-exact" => exactly a (after + shape.rows) <|
    showOutcome (certify rn shape screen (.exact (valueAt a after)))
  | "certify-enclosed" => exactly a (after + 2 * shape.rows) <|
    showOutcome (certify rn shape screen (.enclosed (intervalAt a after)))
  | _ => ((answerArithmetic stage a).orElse fun _ => answerHead stage a).getD s!"error unknown stage {stage}"

/-- The integers of a request, or the first word that is not one. -/
def parse (parts : List String) : Except String (Array Int) :=
  parts.foldl (fun acc word => acc.bind fun a =>
    match word.toInt? with
    | some x => .ok (a.push x)
    | none => .error word) (.ok #[])

def respond (line : String) : String :=
  match line.splitOn " " with
  | [] => "error empty line"
  | stage :: rest =>
    match parse rest with
    | .ok a => answer stage a
    | .error word => s!"error not an integer: {word}"

end CertHead.Ref

def main : IO Unit := do
  let stdin ← IO.getStdin
  let stdout ← IO.getStdout
  repeat
    let line ← stdin.getLine
    if line.isEmpty then break
    stdout.putStrLn (CertHead.Ref.respond line.trimAscii.toString)
    stdout.flush
