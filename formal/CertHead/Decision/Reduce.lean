import CertHead.Decision.Select

/-!
# Parallel reductions

Kernels do not fold from left to right. Combining two winners by "larger value, lower row on a tie" gives the
first maximum in any order and shape; and tiles that pass on only their best rows plus one bound for the rest
lose nothing as long as that bound stays below the threshold.
-/

namespace CertHead

/-- A shape of reduction: rows at the leaves, a combination at every node. -/
inductive Reduction where
  | row (i : Nat)
  | combine (left right : Reduction)

/-- The rows that a reduction covers. -/
def Reduction.Covers : Reduction → Nat → Prop
  | row i, j => j = i
  | combine left right, j => left.Covers j ∨ right.Covers j

/-- The better of two rows: larger value, lower row on a tie. -/
def better (f : Nat → Int) (a b : Nat) : Nat :=
  if f a < f b ∨ (f a = f b ∧ b < a) then b else a

/-- What a reduction returns. -/
def Reduction.run (f : Nat → Int) : Reduction → Nat
  | row i => i
  | combine left right => better f (left.run f) (right.run f)

/-- **Any reduction order finds the first maximum.** Rows may come in any order, shape and multiplicity. -/
theorem any_reduction_order_finds_first_max (f : Nat → Int) (r : Reduction) :
    IsFirstMaxAmong r.Covers f (r.run f) := by
  induction r with
  | row i =>
    refine ⟨rfl, ?_, ?_⟩
    · intro j e
      have e : j = i := e
      rw [e]
      exact Int.le_refl _
    · intro j e less
      have e : j = i := e
      rw [e] at less
      exact absurd less (Nat.lt_irrefl _)
  | combine left right goLeft goRight =>
    obtain ⟨memL, mostL, firstL⟩ := goLeft
    obtain ⟨memR, mostR, firstR⟩ := goRight
    show IsFirstMaxAmong (fun j => left.Covers j ∨ right.Covers j) f (better f (left.run f) (right.run f))
    unfold better
    split
    · rename_i takeRight
      refine ⟨Or.inr memR, ?_, ?_⟩
      · intro j hj
        rcases hj with h | h
        · have := mostL j h
          omega
        · exact mostR j h
      · intro j hj less
        rcases hj with h | h
        · rcases takeRight with s | ⟨e, s⟩
          · have := mostL j h
            omega
          · have := firstL j h (by omega)
            omega
        · exact firstR j h less
    · rename_i takeLeft
      refine ⟨Or.inl memL, ?_, ?_⟩
      · intro j hj
        rcases hj with h | h
        · exact mostL j h
        · have := mostR j h
          omega
      · intro j hj less
        rcases hj with h | h
        · exact firstL j h less
        · have most := mostR j h
          rcases Int.lt_or_le (f (left.run f)) (f (right.run f)) with s | s
          · exact absurd (Or.inl s) takeLeft
          · by_cases e : f (left.run f) = f (right.run f)
            · have order : ¬ right.run f < left.run f := fun s' => takeLeft (Or.inr ⟨e, s'⟩)
              have := firstR j h (by omega)
              omega
            · omega

/-- **Tiles with a quiet remainder drop nothing.** Each tile passes on some rows and a bound `rest` on the upper
ends of its other rows. If every bound rounds below the threshold, all candidates were passed on. -/
theorem tiles_with_quiet_remainder_are_complete {rn : Int → Int} (monotone : Monotone rn) {v : Nat → Interval}
    {passed : Nat → Prop} {tile : Nat → Nat} {rest : Nat → Int} {threshold : Int} {n : Nat}
    (bounded : ∀ i, i < n → ¬ passed i → (v i).hi ≤ rest (tile i))
    (quiet : ∀ i, i < n → rn (rest (tile i)) < threshold) :
    ∀ i, i < n → threshold ≤ rn (v i).hi → passed i := by
  intro i hi qualifies
  refine Decidable.byContradiction (dec := Classical.propDecidable _) fun dropped => ?_
  have := monotone _ _ (bounded i hi dropped)
  have := quiet i hi
  omega

end CertHead
