import CertHead.Enclosure.Screen

/-!
# What the half-width cannot do without

Each part of the half-width taken away, by one unit, and a stock accumulator that the interval then
misses. All by computation.
-/

namespace CertHead.Enclosure

/-- The interval of a row and a position holds `y`, before its ends are rounded. -/
def Encloses (row : QuantizedRow) (p : Limbs) (width y : Int) : Prop :=
  row.scale * p.unit * ((screenRow 0 row p).center - width) ≤ y ∧
    y ≤ row.scale * p.unit * ((screenRow 0 row p).center + width)

instance (row : QuantizedRow) (p : Limbs) (width y : Int) : Decidable (Encloses row p width y) :=
  inferInstanceAs (Decidable (_ ∧ _))

instance (gammaNum : Nat) (η y : Int) (w h : List Int) : Decidable (WithinGamma gammaNum η w h y) :=
  inferInstanceAs (Decidable (_ ≤ _))

/-- A weight of half a scale: its code is 0 and all of it is residual. -/
def halfScaleRow : QuantizedRow := quantizeWith 2 1 0 0 [1]

/-- An input of 16000 units, without remainder, for an exact stock sum. -/
def wideInput : Limbs := limbsOfTicks .two 1 1 0 0 0 [16000] [16000]

/-- **A residual code that is one too small misses the exact sum.** -/
theorem residual_code_cannot_be_one_less :
    let short := { halfScaleRow with residualCodes := halfScaleRow.residualCodes.map (· - 1) }
    WithinGamma 0 0 [1] [16000] 16000 ∧
      Encloses halfScaleRow wideInput (screenRow 0 halfScaleRow wideInput).width 16000 ∧
      ¬ Encloses short wideInput (screenRow 0 short wideInput).width 16000 := by
  decide +kernel

/-- **A group code that is one too small misses the exact sum**, here for a residual of exactly one code. -/
theorem group_code_cannot_be_one_less :
    let row := quantizeWith 1 1 0 0 [3]
    let shifted := { row with codes := [0], residualCodes := [3] }
    let short := { wideInput with groupCodes := wideInput.groupCodes.map (· - 1) }
    WithinGamma 0 0 [3] [16000] 48000 ∧
      Encloses shifted wideInput (screenRow 0 shifted wideInput).width 48000 ∧
      ¬ Encloses shifted short (screenRow 0 shifted short).width 48000 := by
  decide +kernel

/-- A weight of one scale, without residual. -/
def exactRow : QuantizedRow := quantizeWith 1 1 0 0 [1]

/-- An input of half a unit: its tick is 0 and all of it is remainder. -/
def halfUnitInput : Limbs := limbsOfTicks .two 2 1 0 0 0 [1] [0]

/-- **A tail code that is one too small misses the stock accumulator**, with an error of `η = s·u`. -/
theorem tail_code_cannot_be_one_less :
    let short := { halfUnitInput with tailCode := halfUnitInput.tailCode - 1 }
    WithinGamma 0 2 [1] [1] 3 ∧
      Encloses exactRow halfUnitInput (screenRow 0 exactRow halfUnitInput).width 3 ∧
      ¬ Encloses exactRow short (screenRow 0 exactRow short).width 3 := by
  decide +kernel

/-- **The last unit of the width cannot be dropped**: it holds the floor `η = s·u`. -/
theorem floor_unit_cannot_be_dropped :
    WithinGamma 0 2 [1] [1] 3 ∧
      Encloses exactRow halfUnitInput (screenRow 0 exactRow halfUnitInput).width 3 ∧
      ¬ Encloses exactRow halfUnitInput ((screenRow 0 exactRow halfUnitInput).width - 1) 3 := by
  decide +kernel

/-- **A smaller γ than the stock model's does not enclose**: with `γ = 1/2` a sum of 1000 may come out as
1500, outside the interval that is made for `γ = 1/4`. -/
theorem gamma_cannot_be_halved :
    let right := limbsOfTicks .two 1 1 0 0 (2 ^ 39) [1000] [1000]
    let halved := limbsOfTicks .two 1 1 0 0 (2 ^ 38) [1000] [1000]
    WithinGamma (2 ^ 39) 0 [1] [1000] 1500 ∧
      Encloses exactRow right (screenRow 0 exactRow right).width 1500 ∧
      ¬ Encloses exactRow halved (screenRow 0 exactRow halved).width 1500 := by
  decide +kernel

end CertHead.Enclosure
