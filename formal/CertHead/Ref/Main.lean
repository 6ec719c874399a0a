import CertHead.Decision.Code
import CertHead.Float.Round

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
  | _ => s!"error unknown stage {stage}"

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
