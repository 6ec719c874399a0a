/-!
# Binary formats and the values they hold

A finite binary float is an integer times a power of two. All values of one argument are put on
one common scale `2^-B`, so that a value *is* an integer and rounding is rounding an integer to a
multiple of a power of two. `Format` names a format as IEEE 754 does; `Grid` is the same format
seen on the scale. Source: IEEE 754-2019, 3.3 (sets of floating-point data), table 3.5.
-/

namespace CertHead

/-- An IEEE 754 style binary format with gradual underflow. -/
structure Format where
  /-- Significand bits, the leading one included. -/
  prec : Nat
  /-- Exponent of the smallest normal number, which is `2^emin`. -/
  emin : Int
  /-- Exponent of the largest finite numbers, which are below `2^(emax+1)`. -/
  emax : Int
deriving DecidableEq, Repr

/-- bfloat16: 1 + 8 + 7 bits. -/
def bf16 : Format := ⟨8, -126, 127⟩
/-- IEEE binary16: 1 + 5 + 10 bits. -/
def fp16 : Format := ⟨11, -14, 15⟩
/-- IEEE binary32: 1 + 8 + 23 bits. -/
def fp32 : Format := ⟨24, -126, 127⟩
/-- IEEE binary64: 1 + 11 + 52 bits. -/
def fp64 : Format := ⟨53, -1022, 1023⟩

/-- Exponent of the smallest subnormal: every finite value is a multiple of `2^f.qminExp`. -/
def Format.qminExp (f : Format) : Int := f.emin - ((f.prec : Int) - 1)

/-- A format seen on a common integer scale `2^-B`: the integer `x` stands for `x * 2^-B`. -/
structure Grid where
  /-- Significand bits, the leading one included. -/
  prec : Nat
  /-- The smallest subnormal is `2^qmin` units of the scale. -/
  qmin : Nat
  /-- Finite magnitudes are below `2^top` units of the scale. -/
  top : Nat
deriving DecidableEq, Repr

/-- The format `f` on the scale `2^-B`. Faithful when `0 ≤ B + f.qminExp` (`Format.FitsScale`). -/
def Format.grid (f : Format) (B : Nat) : Grid :=
  ⟨f.prec, (B + (f.emin - ((f.prec : Int) - 1))).toNat, (B + f.emax + 1).toNat⟩

/-- The scale `2^-B` is fine enough to hold every finite value of the format. -/
def Format.FitsScale (f : Format) (B : Nat) : Prop := 0 ≤ (B : Int) + f.qminExp

instance (f : Format) (B : Nat) : Decidable (f.FitsScale B) :=
  inferInstanceAs (Decidable (0 ≤ (B : Int) + f.qminExp))

/-- A grid that a format can have: some precision, and room for at least one normal binade. -/
structure Grid.Valid (g : Grid) : Prop where
  prec_pos : 1 ≤ g.prec
  normal_room : g.qmin + g.prec ≤ g.top

/-- log2 of the spacing of the grid at magnitude `n`: `n` has `n.log2 + 1` bits, of which the
grid keeps `prec`, and never finer than the smallest subnormal. -/
def Grid.quantumExp (g : Grid) (n : Nat) : Nat := max g.qmin (n.log2 + 1 - g.prec)

/-- The spacing of the grid at magnitude `n` (one ulp), in units of the scale. -/
def Grid.quantum (g : Grid) (n : Nat) : Nat := 2 ^ g.quantumExp n

/-- `x` is a value of the grid, if its exponent range had no upper end. -/
def Representable (g : Grid) (x : Int) : Prop := (g.quantum x.natAbs : Int) ∣ x

/-- `x` is a finite value of the grid. -/
def FiniteValue (g : Grid) (x : Int) : Prop := Representable g x ∧ x.natAbs < 2 ^ g.top

/-- The largest finite value of the grid: `prec` ones. -/
def Grid.maxFinite (g : Grid) : Nat := 2 ^ g.top - 2 ^ (g.top - g.prec)

/-- A value with the overflow results and "not a number". The sign of zero is not kept: the
specification never distinguishes `-0` from `+0`. -/
inductive Ext where
  | fin (x : Int)
  | inf (neg : Bool)
  | nan
deriving DecidableEq, Repr

/-- The order of extended values; `nan` is unordered, even with itself. -/
def Ext.le : Ext → Ext → Bool
  | .nan, _ => false
  | _, .nan => false
  | .inf true, _ => true
  | _, .inf false => true
  | .inf false, _ => false
  | _, .inf true => false
  | .fin x, .fin y => decide (x ≤ y)

/-- The finite value, if it is one. -/
def Ext.toInt? : Ext → Option Int
  | .fin x => some x
  | _ => none

end CertHead
