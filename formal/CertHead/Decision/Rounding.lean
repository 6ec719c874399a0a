import CertHead.Decision.FirstMax
import CertHead.Float.RoundProperties

/-!
# What a decision needs to know about rounding

Only what `RoundModel` says: rounding is monotone, moves a value by at most half a spacing, and the spacing
does not shrink with magnitude. From it: the separation lemma, the gap condition, and the margin by which a
screen of *unrounded* values may drop rows. `Decision.Bf16` puts real BF16 rounding in place of the model.
-/

namespace CertHead

/-- A map that keeps order. -/
def Monotone (rn : Int → Int) : Prop := ∀ a b, a ≤ b → rn a ≤ rn b

/-- A monotone rounding cannot turn a loser into a strict winner. -/
theorem rounded_strict_implies_strict {rn : Int → Int} (monotone : Monotone rn) {a b : Int}
    (h : rn a < rn b) : a < b := by
  rcases Int.lt_or_le a b with less | ge
  · exact less
  · have := monotone b a ge
    omega

/-- **Separation.** Values more than one spacing apart stay strictly ordered after rounding. -/
theorem separation {rn : Int → Int} {spacing : Nat → Nat} (model : RoundModel rn spacing) {a b : Int}
    (apart : (spacing (max a.natAbs b.natAbs) : Int) < a - b) : rn b < rn a := by
  have moveA := model.nearest a
  have moveB := model.nearest b
  have growA := model.spacing_mono (Nat.le_max_left a.natAbs b.natAbs)
  have growB := model.spacing_mono (Nat.le_max_right a.natAbs b.natAbs)
  omega

/-- **Gap condition.** If every stock accumulator `y i` is within `err i` of a reference `z i`, and the
reference winner leads by both errors and one spacing, then the stock head returns the reference winner. -/
theorem gap_condition {rn : Int → Int} {spacing : Nat → Nat} (model : RoundModel rn spacing)
    {n a : Nat} {y z : Nat → Int} {err : Nat → Nat} (inside : a < n)
    (close : ∀ i, i < n → (y i - z i).natAbs ≤ err i)
    (lead : ∀ b, b < n → b ≠ a →
      err a + err b + spacing (max (z a).natAbs (z b).natAbs + max (err a) (err b)) < z a - z b) :
    IsFirstMax (fun i => rn (y i)) n a := by
  have wins : ∀ b, b < n → b ≠ a → rn (y b) < rn (y a) := by
    intro b hb ne
    have ca := close a inside
    have cb := close b hb
    have l := lead b hb ne
    apply separation model
    have grow := model.spacing_mono
      (show max (y a).natAbs (y b).natAbs ≤ max (z a).natAbs (z b).natAbs + max (err a) (err b) by omega)
    omega
  refine ⟨inside, ?_, ?_⟩
  · intro i hi
    by_cases e : i = a
    · rw [e]
      exact Int.le_refl _
    · exact Int.le_of_lt (wins i hi e)
  · intro i hi less
    exact wins i hi (by omega)

/-- **Screen margin.** With intervals around the reference only, a row may be dropped when its upper end is
below the best lower end by two errors and one spacing: it then rounds strictly below the row with that lower
end. (Being merely below is not enough; see `formal/variants`.) -/
theorem screen_margin {rn : Int → Int} {spacing : Nat → Nat} (model : RoundModel rn spacing)
    {n best j : Nat} {y z : Nat → Int} {v : Nat → Interval} {err reach : Nat}
    (close : ∀ i, i < n → (y i - z i).natAbs ≤ err)
    (encloses : ∀ i, i < n → (v i).Contains (z i))
    (reaches : ∀ i, i < n → (v i).lo.natAbs ≤ reach ∧ (v i).hi.natAbs ≤ reach)
    (best_inside : best < n) (inside : j < n)
    (below : (v j).hi < (v best).lo - (2 * err + spacing (reach + err))) :
    rn (y j) < rn (y best) := by
  have cj := close j inside
  have cb := close best best_inside
  have ej := encloses j inside
  have eb := encloses best best_inside
  have rj := reaches j inside
  have rb := reaches best best_inside
  unfold Interval.Contains at ej eb
  apply separation model
  have grow := model.spacing_mono (show max (y best).natAbs (y j).natAbs ≤ reach + err by omega)
  omega

end CertHead
