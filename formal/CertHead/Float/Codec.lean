import CertHead.Float.Format
/-!
# Bit patterns and what they stand for

The interchange encoding: sign bit, `expWidth` exponent bits, `fracBits` fraction bits. A magnitude
is a natural number of smallest subnormals, so that no exponent is ever negative. Source:
IEEE 754-2019, 3.4 (binary interchange format encodings). `CodecProperties` has the theorems.
-/

namespace CertHead

/-- The format has an interchange encoding with `w` exponent bits. -/
structure Format.Interchange (f : Format) (w : Nat) : Prop where
  prec_ge : 2 ≤ f.prec
  width_pos : 1 ≤ w
  emax_eq : f.emax + 1 = ((2 ^ (w - 1) : Nat) : Int)
  emin_eq : f.emin = 1 - f.emax

/-- Exponent bits: `w` with `2^(w-1) = emax + 1`. -/
def Format.expWidth (f : Format) : Nat := (f.emax + 1).toNat.log2 + 1

/-- Explicit fraction bits. -/
def Format.fracBits (f : Format) : Nat := f.prec - 1

/-- The exponent field of infinities and NaNs: all ones. -/
def Format.expOnes (f : Format) : Nat := 2 ^ f.expWidth - 1

/-- All bits of a code. -/
def Format.codeBits (f : Format) : Nat := f.fracBits + f.expWidth + 1

/-- What a bit pattern stands for. `finite neg mag` is `mag` smallest subnormals with a sign (so
`-0` and `+0` differ); a NaN keeps its sign and payload. -/
inductive Datum where
  | finite (neg : Bool) (mag : Nat)
  | inf (neg : Bool)
  | nan (neg : Bool) (payload : Nat)
deriving DecidableEq, Repr

/-- The magnitude of an exponent and a fraction field: subnormal, or with the leading one. -/
def fieldsMag (f : Format) (expo frac : Nat) : Nat :=
  if expo = 0 then frac else (2 ^ f.fracBits + frac) * 2 ^ (expo - 1)

/-- What the bit pattern `bits` stands for in the format `f`. -/
def decode (f : Format) (bits : Nat) : Datum :=
  let frac := bits % 2 ^ f.fracBits
  let expo := bits / 2 ^ f.fracBits % 2 ^ f.expWidth
  let neg := decide (bits / 2 ^ (f.fracBits + f.expWidth) % 2 = 1)
  if expo = f.expOnes then
    if frac = 0 then .inf neg else .nan neg frac
  else .finite neg (fieldsMag f expo frac)

/-- The code of a magnitude, without the sign. -/
def encodeMag (f : Format) (mag : Nat) : Nat :=
  if mag < 2 ^ f.fracBits then mag
  else
    let shift := mag.log2 - f.fracBits
    (shift + 1) * 2 ^ f.fracBits + (mag / 2 ^ shift - 2 ^ f.fracBits)

/-- The sign bit in its place. -/
def signBit (f : Format) (neg : Bool) : Nat :=
  (if neg then 1 else 0) * 2 ^ (f.fracBits + f.expWidth)

/-- The bit pattern of a datum. -/
def encode (f : Format) : Datum → Nat
  | .finite neg mag => signBit f neg + encodeMag f mag
  | .inf neg => signBit f neg + f.expOnes * 2 ^ f.fracBits
  | .nan neg payload => signBit f neg + (f.expOnes * 2 ^ f.fracBits + payload)

/-- The data that have a code in the format: finite magnitudes in range with at most `prec`
significant bits, both infinities, and NaNs whose payload is nonzero and fits. -/
def Datum.Canonical (f : Format) : Datum → Prop
  | .finite _ mag => mag < 2 ^ (f.fracBits + (f.expOnes - 1)) ∧ 2 ^ (mag.log2 - f.fracBits) ∣ mag
  | .inf _ => True
  | .nan _ payload => 0 < payload ∧ payload < 2 ^ f.fracBits

/-- The value on the scale `2^-B`. -/
def Datum.toExt (f : Format) (B : Nat) : Datum → Ext
  | .finite false mag => .fin ((mag * 2 ^ (f.grid B).qmin : Nat) : Int)
  | .finite true mag => .fin (-((mag * 2 ^ (f.grid B).qmin : Nat) : Int))
  | .inf neg => .inf neg
  | .nan _ _ => .nan

/-- The datum of a value on the scale `2^-B`: zero is `+0`, NaN is the quiet one. -/
def Datum.ofExt (f : Format) (B : Nat) : Ext → Datum
  | .fin x => .finite (decide (x < 0)) (x.natAbs / 2 ^ (f.grid B).qmin)
  | .inf neg => .inf neg
  | .nan => .nan false (2 ^ (f.fracBits - 1))

/-- The value of a bit pattern on the scale `2^-B`. -/
def fromBits (f : Format) (B : Nat) (bits : Nat) : Ext := (decode f bits).toExt f B

/-- The bit pattern of a value on the scale `2^-B`. -/
def toBits (f : Format) (B : Nat) (x : Ext) : Nat := encode f (Datum.ofExt f B x)

end CertHead
