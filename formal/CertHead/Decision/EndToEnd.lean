import CertHead.Decision.Bf16
import CertHead.Decision.Head
import CertHead.Enclosure.ScreenProperties
import CertHead.Sum.Models

/-!
# End to end

With the stock head defined as the Hopper chain, one rounding to BF16 and the first maximum, the certified head's
token is the stock head's token. Nothing is assumed about the arithmetic: the error bound of the chain, the
enclosure of the screen, the monotonicity of rounding and the completeness of the selection are all theorems.
What is left outside is that a given machine *is* this chain, which the audit tests.
-/

namespace CertHead

open Enclosure Fdpa

/-- Looking up in a mapped list. -/
private theorem getD_map {α β : Type} (f : α → β) (d : α) (d' : β) : ∀ (l : List α) (i : Nat), i < l.length →
    (l.map f).getD i d' = f (l.getD i d)
  | [], i, h => absurd h (Nat.not_lt_zero i)
  | _ :: _, 0, _ => rfl
  | _ :: l, i + 1, h => getD_map f d d' l i (Nat.lt_of_succ_lt_succ h)

private theorem getD_mem {α : Type} (d : α) : ∀ (l : List α) (i : Nat), i < l.length → l.getD i d ∈ l
  | [], i, h => absurd h (Nat.not_lt_zero i)
  | _ :: _, 0, _ => List.mem_cons_self
  | _ :: l, i + 1, h => List.mem_cons_of_mem _ (getD_mem d l i (Nat.lt_of_succ_lt_succ h))

/-- An in-range pattern is a BF16 value below `2^16`. -/
theorem in_range_operand_is_bf16 {bits : Nat} (h : inRange bits = true) : (operandOf bits).Bf16 15 := by
  obtain ⟨a, decoded, ok⟩ := decodeBf16_below_two_pow_16 (of_decide_eq_true h)
  unfold operandOf
  rw [decoded]
  exact ok

/-- The product that the machine forms is the product of the integers. -/
private theorem product_on_scale (z : Option Int) {a b : Operand} (ha : -126 ≤ a.exp) (hb : -126 ≤ b.exp) :
    ((hopper (2 * headScale) z).product a b).value = a.onScale * b.onScale := by
  have split : (((2 * headScale : Nat) : Int) + a.exp + b.exp - 2 * (((8 : Nat) : Int) - 1)).toNat =
      ((headScale : Int) + a.exp - 7).toNat + ((headScale : Int) + b.exp - 7).toNat := by
    unfold headScale
    omega
  have value : a.sig * b.sig * 2 ^ (((2 * headScale : Nat) : Int) + a.exp + b.exp - 2 * (((8 : Nat) : Int) - 1)).toNat =
      a.onScale * b.onScale := by
    rw [split, Int.pow_add]
    unfold Operand.onScale
    ac_rfl
  unfold product
  dsimp only
  split
  · rename_i zero
    show (0 : Int) = _
    rw [← value, zero.1, Int.zero_mul]
  · exact value

/-- The exact terms of the chain are the products of the integers. -/
private theorem products_on_scale (z : Option Int) : ∀ a b : List Operand, (∀ x ∈ a, x.Bf16 15) → (∀ x ∈ b, x.Bf16 15) →
    ((hopper (2 * headScale) z).products a b).map FdpaTerm.value =
      List.zipWith (· * ·) (a.map Operand.onScale) (b.map Operand.onScale)
  | [], _, _, _ => rfl
  | _ :: _, [], _, _ => rfl
  | x :: a, y :: b, ha, hb => by
    have hx := ha x List.mem_cons_self
    have hy := hb y List.mem_cons_self
    have rest := products_on_scale z a b (fun v m => ha v (List.mem_cons_of_mem _ m))
      (fun v m => hb v (List.mem_cons_of_mem _ m))
    show ((hopper (2 * headScale) z).product x y).value :: _ = x.onScale * y.onScale :: _
    rw [product_on_scale z hx.exp_ge hy.exp_ge]
    exact congrArg _ rest

/-- **The stock accumulator satisfies the stock model**, by proof: the Hopper chain over in-range rows is within
`γ·Σ|w·h| + η` of the exact dot product. -/
theorem stock_accumulator_is_within_gamma {z : Option Int} (zero_small : ZeroIsSmall z) {w h : List Nat}
    {gammaNum : Nat} (same_length : w.length = h.length) (columns : h.length ≤ 2 ^ 16)
    (w_in_range : ∀ b, b ∈ w → inRange b = true) (h_in_range : ∀ b, b ∈ h → inRange b = true)
    (gamma : gammaSuffices gammaNum h.length = true) :
    WithinGamma gammaNum (floorTerm headScale) (integersOf w) (integersOf h) (stockAccumulator z w h) := by
  have ok : ∀ r : List Nat, (∀ b, b ∈ r → inRange b = true) → ∀ x ∈ r.map operandOf, x.Bf16 15 := by
    intro r inside x mem
    obtain ⟨b, hb, e⟩ := List.mem_map.1 mem
    rw [← e]
    exact in_range_operand_is_bf16 (inside b hb)
  have terms := products_on_scale z _ _ (ok w w_in_range) (ok h h_in_range)
  have bound := hopper_stock_bound (B := 2 * headScale) (by decide) zero_small (ok w w_in_range) (ok h h_in_range)
    (K := h.length) (by rw [List.length_map, same_length]) (by rw [List.length_map]) columns rfl
    (of_decide_eq_true gamma)
  unfold exactSum magnitude at bound
  rw [terms] at bound
  exact withinGamma_of_bound (D := 2 ^ 40) (P := gammaNum) (F := 2 ^ 40 * 2 ^ (2 * headScale - 90)) (by decide) bound
    (Nat.le_refl _) (by decide)

/-- **End to end.** If the certified head answers with a token, for any grouping, number of limbs, block size and
capacity, that token is the stock head's. -/
theorem certified_token_is_the_stock_token {c : HeadConfig} {z : Option Int} (zero_small : ZeroIsSmall z)
    {W : List (List Nat)} {h : List Nat} {k : Nat} (answer : (certifiedHead c z W h).token? = some k) :
    stockToken z W h = some k := by
  unfold certifiedHead at answer
  split at answer
  · rename_i ok
    unfold headInRange at ok
    simp only [Bool.and_eq_true, decide_eq_true_eq, List.all_eq_true] at ok
    obtain ⟨⟨⟨⟨rows_ok, h_ok⟩, columns⟩, group_pos⟩, gamma⟩ := ok
    dsimp only at answer
    split at answer
    · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])
    · rename_i p accepted
      refine fold_over_range_iff_first_max.2 ?_
      refine certify_is_sound (rn := toLogit) (round_to_nearest_is_monotone (by decide)) ?_ ?_ answer
      · intro i inside
        have row := rows_ok _ (getD_mem [] W i inside)
        have within := stock_accumulator_is_within_gamma zero_small row.1 columns row.2 h_ok gamma
        have len : (integersOf (W.getD i [])).length = (integersOf h).length := by
          unfold integersOf
          simp only [List.length_map]
          exact row.1
        have ends := accepted_screen_encloses_stock_accumulator (by decide) group_pos accepted len within
        unfold screenAll quantizeHead
        dsimp only
        rw [List.map_map, getD_map _ [] _ W i inside]
        exact ends
      · intro selected _ i _
        rfl
  · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])

end CertHead
