import CertHead.Float.RoundProperties
/-!
# Rounding into a format that ends

`finish` rounds as if the exponent were unbounded and then overflows. Source: IEEE 754-2019, 7.4.
-/

namespace CertHead

/-- `maxFinite` bounds every finite value of the grid. -/
theorem natAbs_le_maxFinite {g : Grid} (hp : 1 ≤ g.prec) {z : Int} (hz : FiniteValue g z) :
    z.natAbs ≤ g.maxFinite := by
  obtain ⟨hr, hlt⟩ := hz
  unfold Grid.maxFinite
  by_cases hsmall : z.natAbs < 2 ^ (g.top - 1)
  · have hle : 2 ^ (g.top - g.prec) ≤ 2 ^ (g.top - 1) := two_pow_le_two_pow (by omega)
    by_cases ht : g.top = 0
    · rw [ht] at hlt hsmall
      omega
    · have : 2 ^ g.top = 2 ^ (g.top - 1) * 2 := by
        rw [← Nat.pow_succ]
        exact congrArg (2 ^ ·) (by omega)
      omega
  · -- in the top binade the spacing is at least `2^(top-prec)`, which divides `2^top` too
    have hz0 : z.natAbs ≠ 0 := by
      have := Nat.two_pow_pos (g.top - 1)
      omega
    have hlog := (Nat.le_log2 hz0).2 (Nat.le_of_not_lt hsmall)
    have hd : 2 ^ (g.top - g.prec) ∣ z.natAbs := by
      refine Nat.dvd_trans (Nat.pow_dvd_pow 2 ?_) (Int.ofNat_dvd_left.1 hr)
      unfold Grid.quantumExp
      omega
    have ht : 2 ^ (g.top - g.prec) ∣ 2 ^ g.top := Nat.pow_dvd_pow 2 (by omega)
    have h := add_le_of_dvd_of_lt (Int.natCast_dvd_natCast.2 hd)
      (Int.natCast_dvd_natCast.2 ht) (Int.ofNat_lt.2 hlt)
    omega

/-- The largest finite value is one. -/
theorem maxFinite_finiteValue {g : Grid} (hg : g.Valid) : FiniteValue g g.maxFinite := by
  have hp := hg.prec_pos
  have hroom := hg.normal_room
  have hpos := Nat.two_pow_pos (g.top - g.prec)
  have hle : 2 ^ (g.top - g.prec) ≤ 2 ^ g.top := two_pow_le_two_pow (by omega)
  refine ⟨representable_of_two_pow_dvd (e := g.top - g.prec) hp (by omega) ?_ ?_, ?_⟩
  · refine Int.natCast_dvd_natCast.2 (Nat.dvd_sub (Nat.pow_dvd_pow 2 (by omega)) (Nat.dvd_refl _))
  · rw [Int.natAbs_natCast, show g.top - g.prec + g.prec = g.top by omega]
    exact Nat.sub_le _ _
  · rw [Int.natAbs_natCast]
    unfold Grid.maxFinite
    omega

theorem finiteValue_neg {g : Grid} {x : Int} (h : FiniteValue g x) : FiniteValue g (-x) :=
  ⟨representable_neg h.1, by rw [Int.natAbs_neg]; exact h.2⟩

theorem finish_of_lt {g : Grid} {mode : Mode} {x : Int} (h : (mode.round g x).natAbs < 2 ^ g.top) :
    finish g mode x = .fin (mode.round g x) := if_pos h

theorem finish_of_ge {g : Grid} {mode : Mode} {x : Int} (h : 2 ^ g.top ≤ (mode.round g x).natAbs) :
    finish g mode x = overflow g mode (decide (mode.round g x < 0)) := if_neg (Nat.not_lt.2 h)

/-- **A finite value is rounded to itself** in every direction. -/
theorem finish_of_finiteValue {g : Grid} (mode : Mode) {x : Int} (h : FiniteValue g x) :
    finish g mode x = .fin x := by
  have e := mode.round_of_representable h.1
  rw [finish_of_lt (by rw [e]; exact h.2), e]

theorem overflow_ne_nan (g : Grid) (mode : Mode) (neg : Bool) : overflow g mode neg ≠ .nan := by
  cases mode <;> cases neg <;> exact Ext.noConfusion

theorem overflow_finiteValue {g : Grid} (hg : g.Valid) {mode : Mode} {neg : Bool} {r : Int}
    (h : overflow g mode neg = .fin r) : FiniteValue g r := by
  have hm := maxFinite_finiteValue hg
  have hm' := finiteValue_neg hm
  revert h
  cases mode <;> cases neg <;> intro h <;> cases h <;> assumption

/-- **Rounding into a format never gives "not a number".** -/
theorem finish_ne_nan (g : Grid) (mode : Mode) (x : Int) : finish g mode x ≠ .nan := by
  by_cases h : (mode.round g x).natAbs < 2 ^ g.top
  · rw [finish_of_lt h]
    exact Ext.noConfusion
  · rw [finish_of_ge (Nat.le_of_not_lt h)]
    exact overflow_ne_nan g mode _

/-- **A finite result is a finite value of the format.** -/
theorem finish_finiteValue {g : Grid} (hg : g.Valid) {mode : Mode} {x r : Int}
    (h : finish g mode x = .fin r) : FiniteValue g r := by
  by_cases hlt : (mode.round g x).natAbs < 2 ^ g.top
  · rw [finish_of_lt hlt] at h
    cases h
    exact ⟨mode.round_representable hg.prec_pos x, hlt⟩
  · rw [finish_of_ge (Nat.le_of_not_lt hlt)] at h
    exact overflow_finiteValue hg h

theorem Ext.fin_le_fin {x y : Int} (h : x ≤ y) : Ext.le (.fin x) (.fin y) = true := decide_eq_true h

theorem Ext.le_refl_of_ne_nan {a : Ext} (h : a ≠ .nan) : Ext.le a a = true := by
  cases a with
  | fin x => exact Ext.fin_le_fin (Int.le_refl x)
  | inf neg => cases neg <;> rfl
  | nan => exact absurd rfl h

theorem Ext.le_trans {a b c : Ext} (hab : a.le b = true) (hbc : b.le c = true) : a.le c = true := by
  match a, b, c with
  | .fin x, .fin y, .fin z =>
    exact Ext.fin_le_fin (Int.le_trans (of_decide_eq_true hab) (of_decide_eq_true hbc))
  | .nan, _, _ => exact Bool.noConfusion hab
  | .fin _, .nan, _ => exact Bool.noConfusion hab
  | .inf true, .nan, _ => exact Bool.noConfusion hab
  | .inf false, .nan, _ => exact Bool.noConfusion hab
  | _, .fin _, .nan => exact Bool.noConfusion hbc
  | _, .inf true, .nan => exact Bool.noConfusion hbc
  | _, .inf false, .nan => exact Bool.noConfusion hbc
  | .inf true, _, .fin _ => rfl
  | .inf true, _, .inf true => rfl
  | .inf true, _, .inf false => rfl
  | .fin _, _, .inf false => rfl
  | .inf false, _, .inf false => rfl
  | .fin _, .inf true, _ => exact Bool.noConfusion hab
  | .inf false, .inf true, _ => exact Bool.noConfusion hab
  | .inf false, .fin _, _ => exact Bool.noConfusion hab
  | _, .inf false, .fin _ => exact Bool.noConfusion hbc
  | _, .inf false, .inf true => exact Bool.noConfusion hbc
  | _, .fin _, .inf true => exact Bool.noConfusion hbc

/-- **Rounding into a format, overflow included, is monotone** in every direction. -/
theorem finish_mono {g : Grid} (hg : g.Valid) (mode : Mode) {x y : Int} (h : x ≤ y) :
    (finish g mode x).le (finish g mode y) = true := by
  have hp := hg.prec_pos
  have hr := mode.round_mono hp h
  have hm := Nat.two_pow_pos (g.top - g.prec)
  by_cases hx : (mode.round g x).natAbs < 2 ^ g.top
  · have bx := natAbs_le_maxFinite hp ⟨mode.round_representable hp x, hx⟩
    rw [finish_of_lt hx]
    by_cases hy : (mode.round g y).natAbs < 2 ^ g.top
    · rw [finish_of_lt hy]
      exact Ext.fin_le_fin hr
    · rw [finish_of_ge (Nat.le_of_not_lt hy), decide_eq_false (by omega)]
      cases mode
      · rfl
      · exact Ext.fin_le_fin (by omega)
      · rfl
      · exact Ext.fin_le_fin (by omega)
  · rw [finish_of_ge (Nat.le_of_not_lt hx)]
    by_cases hy : (mode.round g y).natAbs < 2 ^ g.top
    · have by' := natAbs_le_maxFinite hp ⟨mode.round_representable hp y, hy⟩
      rw [finish_of_lt hy, decide_eq_true (show mode.round g x < 0 by omega)]
      cases mode
      · rfl
      · exact Ext.fin_le_fin (by omega)
      · exact Ext.fin_le_fin (by omega)
      · rfl
    · rw [finish_of_ge (Nat.le_of_not_lt hy)]
      by_cases sx : mode.round g x < 0
      · rw [decide_eq_true sx]
        by_cases sy : mode.round g y < 0
        · rw [decide_eq_true sy]
          cases mode
          · rfl
          all_goals first | rfl | exact Ext.fin_le_fin (Int.le_refl _)
        · rw [decide_eq_false sy]
          cases mode
          · rfl
          · exact Ext.fin_le_fin (by omega)
          · rfl
          · rfl
      · rw [decide_eq_false sx, decide_eq_false (by omega)]
        cases mode
        all_goals first | rfl | exact Ext.fin_le_fin (Int.le_refl _)

/-- **The directed results bracket the argument**, the infinities included. -/
theorem finish_down_le (g : Grid) (x : Int) : (finish g .down x).le (.fin x) = true := by
  have hle : Mode.down.round g x ≤ x := roundDown_le g x
  by_cases h : (Mode.down.round g x).natAbs < 2 ^ g.top
  · rw [finish_of_lt h]
    exact Ext.fin_le_fin hle
  · rw [finish_of_ge (Nat.le_of_not_lt h)]
    by_cases hs : Mode.down.round g x < 0
    · rw [decide_eq_true hs]
      rfl
    · rw [decide_eq_false hs]
      have hm : g.maxFinite ≤ 2 ^ g.top := Nat.sub_le _ _
      exact Ext.fin_le_fin (by omega)

/-- **The directed results bracket the argument**, the infinities included. -/
theorem le_finish_up (g : Grid) (x : Int) : Ext.le (.fin x) (finish g .up x) = true := by
  have hle : x ≤ Mode.up.round g x := le_roundUp g x
  by_cases h : (Mode.up.round g x).natAbs < 2 ^ g.top
  · rw [finish_of_lt h]
    exact Ext.fin_le_fin hle
  · rw [finish_of_ge (Nat.le_of_not_lt h)]
    by_cases hs : Mode.up.round g x < 0
    · rw [decide_eq_true hs]
      have hm : g.maxFinite ≤ 2 ^ g.top := Nat.sub_le _ _
      exact Ext.fin_le_fin (by omega)
    · rw [decide_eq_false hs]
      rfl

/-- From the largest finite value on, rounding to nearest reaches `2^top` exactly from the halfway
point on: on the tie, `2^top` is the even one. -/
theorem two_pow_top_le_roundNE_iff {g : Grid} (hg : g.Valid) {x : Int} (hx : 0 ≤ x) :
    2 ^ g.top ≤ (roundNE g x).natAbs ↔ 2 * 2 ^ g.top ≤ 2 * x.natAbs + 2 ^ (g.top - g.prec) := by
  have hp := hg.prec_pos
  have hroom := hg.normal_room
  have hmax := maxFinite_finiteValue hg
  have htop : Representable g ((2 ^ g.top : Nat) : Int) := representable_two_pow hp (by omega)
  have hgap := Nat.two_pow_pos (g.top - g.prec)
  have hle : 2 ^ (g.top - g.prec) ≤ 2 ^ g.top := two_pow_le_two_pow (by omega)
  have hmaxEq : g.maxFinite + 2 ^ (g.top - g.prec) = 2 ^ g.top := Nat.sub_add_cancel hle
  have hnonneg : 0 ≤ roundNE g x := by
    have := roundNE_mono hp hx
    rwa [roundNE_zero] at this
  refine ⟨fun h => ?_, fun h => ?_⟩
  · refine Nat.le_of_not_lt fun hlt => ?_
    by_cases hxm : x ≤ (g.maxFinite : Int)
    · have := roundNE_mono hp hxm
      rw [roundNE_of_representable hmax.1] at this
      omega
    · have := roundNE_nearest hp (x := x) hmax.1
      omega
  · refine Nat.le_of_not_lt fun hlt => ?_
    have hr := natAbs_le_maxFinite hp ⟨roundNE_representable hp x, hlt⟩
    have hnear := roundNE_nearest hp (x := x) htop
    by_cases hbig : 2 ^ g.top ≤ x.natAbs
    · have := roundNE_mono hp (show ((2 ^ g.top : Nat) : Int) ≤ x by omega)
      rw [roundNE_of_representable htop] at this
      omega
    -- only the tie is left, where the result would be the odd `maxFinite`
    have heq : roundNE g x = g.maxFinite := by omega
    have htie : 2 * x.natAbs + 2 ^ (g.top - g.prec) = 2 * 2 ^ g.top := by omega
    have hhalf : 2 ^ (g.top - 1) * 2 = 2 ^ g.top := by
      rw [← Nat.pow_succ]
      exact congrArg (2 ^ ·) (by omega)
    have hgap' : 2 ^ (g.top - g.prec) ≤ 2 ^ (g.top - 1) := two_pow_le_two_pow (by omega)
    have hx0 : x.natAbs ≠ 0 := by omega
    have hlog : x.natAbs.log2 = g.top - 1 := (Nat.log2_eq_iff hx0).2
      ⟨by omega, by rw [Nat.pow_succ]; omega⟩
    have hexp : g.quantumExp x.natAbs = g.top - g.prec := by
      unfold Grid.quantumExp
      omega
    have hq : g.quantum x.natAbs = 2 ^ (g.top - g.prec) := by
      unfold Grid.quantum
      rw [hexp]
    have hdown : roundDown g x = g.maxFinite := by
      have h₁ := le_roundDown_of_representable hp hmax.1 (show (g.maxFinite : Int) ≤ x by omega)
      have h₂ := roundDown_le_roundNE g x
      omega
    have heven := roundNE_tie_even (g := g) (x := x) (by rw [hdown, hq]; omega)
    rw [heq, hq] at heven
    have htopd : 2 * ((2 ^ (g.top - g.prec) : Nat) : Int) ∣ ((2 ^ g.top : Nat) : Int) := by
      have := two_pow_dvd_two_pow (show g.top - g.prec + 1 ≤ g.top by omega)
      rw [Nat.pow_succ, Nat.mul_comm, Int.natCast_mul] at this
      exact this
    have hd := Int.dvd_sub htopd heven
    have := Int.le_of_dvd (by omega) hd
    omega

/-- **Rounding to nearest overflows exactly from halfway** between the largest finite value and
`2^top` on, to the infinity of the argument's sign. -/
theorem finish_nearestEven_eq_inf_iff {g : Grid} (hg : g.Valid) (x : Int) :
    finish g .nearestEven x = .inf (decide (x < 0)) ↔
      2 * 2 ^ g.top ≤ 2 * x.natAbs + 2 ^ (g.top - g.prec) := by
  have hp := hg.prec_pos
  have habs : 2 ^ g.top ≤ (roundNE g x).natAbs ↔
      2 * 2 ^ g.top ≤ 2 * x.natAbs + 2 ^ (g.top - g.prec) := by
    by_cases hx : 0 ≤ x
    · exact two_pow_top_le_roundNE_iff hg hx
    · have h := two_pow_top_le_roundNE_iff hg (show 0 ≤ -x by omega)
      rwa [roundNE_neg, Int.natAbs_neg, Int.natAbs_neg] at h
  have hsign : 2 ^ g.top ≤ (roundNE g x).natAbs → (roundNE g x < 0 ↔ x < 0) := fun h => by
    have hpos := Nat.two_pow_pos g.top
    refine ⟨fun hn => Int.lt_of_not_ge fun hx => ?_, fun hx => Int.lt_of_not_ge fun hn => ?_⟩
    · have := roundNE_mono hp hx
      rw [roundNE_zero] at this
      omega
    · have := roundNE_mono hp (Int.le_of_lt hx)
      rw [roundNE_zero] at this
      omega
  rw [← habs]
  refine ⟨fun h => Nat.le_of_not_lt fun hlt => ?_, fun h => ?_⟩
  · rw [finish_of_lt (mode := .nearestEven) hlt] at h
    exact Ext.noConfusion h
  · rw [finish_of_ge (mode := .nearestEven) h]
    show Ext.inf (decide (roundNE g x < 0)) = _
    rw [decide_eq_decide.2 (hsign h)]

end CertHead
