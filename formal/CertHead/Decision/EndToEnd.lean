import CertHead.Decision.Bf16
import CertHead.Decision.Head
import CertHead.Enclosure.ScreenProperties
import CertHead.Sum.FdpaBits

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
    ((hopper (2 * headScale) z).product a b).value = a.value headScale * b.value headScale := by
  have exponents : (((2 * headScale : Nat) : Int) + a.exp + b.exp - 14).toNat =
      ((headScale : Int) + a.exp - 7).toNat + ((headScale : Int) + b.exp - 7).toNat := by
    unfold headScale
    omega
  rw [product_value (m := hopper (2 * headScale) z) rfl]
  show a.sig * b.sig * 2 ^ (((2 * headScale : Nat) : Int) + a.exp + b.exp - 14).toNat = _
  rw [exponents, Int.pow_add]
  unfold Operand.value
  ac_rfl

/-- The exact terms of the chain sum to the integers' dot product, in value and in magnitude. -/
private theorem products_on_scale (z : Option Int) : ∀ a b : List Operand, (∀ x ∈ a, x.Bf16 15) → (∀ x ∈ b, x.Bf16 15) →
    exactSum ((hopper (2 * headScale) z).products a b) =
        Enclosure.dot (a.map (Operand.value headScale)) (b.map (Operand.value headScale)) ∧
      (magnitude ((hopper (2 * headScale) z).products a b) : Int) =
        absDot (a.map (Operand.value headScale)) (b.map (Operand.value headScale))
  | [], _, _, _ => ⟨rfl, rfl⟩
  | _ :: _, [], _, _ => ⟨rfl, rfl⟩
  | x :: a, y :: b, ha, hb => by
    have hx := ha x List.mem_cons_self
    have hy := hb y List.mem_cons_self
    have rest := products_on_scale z a b (fun v m => ha v (List.mem_cons_of_mem _ m))
      (fun v m => hb v (List.mem_cons_of_mem _ m))
    have first := product_on_scale z hx.exp_ge hy.exp_ge
    have list : (hopper (2 * headScale) z).products (x :: a) (y :: b) =
        (hopper (2 * headScale) z).product x y :: (hopper (2 * headScale) z).products a b := rfl
    rw [list, exactSum_cons, magnitude_cons, first, rest.1, Int.natCast_add, rest.2]
    exact ⟨rfl, rfl⟩

private theorem operands_are_bf16 {row : List Nat} (inside : ∀ b, b ∈ row → inRange b = true) :
    ∀ x ∈ row.map operandOf, x.Bf16 15 := by
  intro x mem
  obtain ⟨b, hb, e⟩ := List.mem_map.1 mem
  rw [← e]
  exact in_range_operand_is_bf16 (inside b hb)

/-- **The stock accumulator satisfies the stock model**, by proof: the Hopper chain over in-range rows is within
`γ·Σ|w·h| + η` of the exact dot product. -/
theorem stock_accumulator_is_within_gamma {z : Option Int} (zero_small : ZeroIsSmall z) {w h : List Nat}
    {gammaNum : Nat} (same_length : w.length = h.length) (columns : h.length ≤ 2 ^ 16)
    (w_in_range : ∀ b, b ∈ w → inRange b = true) (h_in_range : ∀ b, b ∈ h → inRange b = true)
    (gamma : gammaSuffices gammaNum h.length = true) :
    WithinGamma gammaNum (floorTerm headScale) (integersOf w) (integersOf h) (stockAccumulator z w h) := by
  have terms := products_on_scale z _ _ (operands_are_bf16 w_in_range) (operands_are_bf16 h_in_range)
  have bound := hopper_stock_bound_tight (B := 2 * headScale) (by decide) zero_small (operands_are_bf16 w_in_range) (operands_are_bf16 h_in_range)
    (K := h.length) (by rw [List.length_map, same_length]) (by rw [List.length_map]) columns rfl
    (of_decide_eq_true gamma)
  exact withinGamma_of_bound (D := 2 ^ 40) (P := gammaNum) (F := 2 ^ 40 * 2 ^ (2 * headScale - 90)) (by decide)
    terms.1 terms.2 bound (Nat.le_refl _) (by decide)

private theorem decodeRow_of_in_range : ∀ row : List Nat, (∀ b, b ∈ row → inRange b = true) →
    decodeRow row = some (row.map operandOf)
  | [], _ => rfl
  | b :: row, inside => by
    obtain ⟨a, decoded, _⟩ := decodeBf16_below_two_pow_16 (of_decide_eq_true (inside b List.mem_cons_self))
    have rest := decodeRow_of_in_range row fun x m => inside x (List.mem_cons_of_mem _ m)
    have first : operandOf b = a := by
      unfold operandOf
      rw [decoded]
      rfl
    show (decodeBf16 b).bind (fun a => (decodeRow row).map (a :: ·)) = some (operandOf b :: row.map operandOf)
    rw [decoded, rest, first]
    rfl

/-- **The stock accumulator is what the chain on bits returns**: nothing is refused and nothing overflows. -/
theorem stock_accumulator_is_the_chains_answer (z : Option Int) {w h : List Nat} (same_length : w.length = h.length)
    (columns : h.length ≤ 2 ^ 16) (w_in_range : ∀ b, b ∈ w → inRange b = true)
    (h_in_range : ∀ b, b ∈ h → inRange b = true) :
    (hopper (2 * headScale) z).dotBits w h = some (stockAccumulator z w h) := by
  obtain ⟨ws, hs, dw, dh, _, _, answer⟩ := hopper_dotBits_answers (B := 2 * headScale) (z := z)
    (fun x m => of_decide_eq_true (w_in_range x m)) (fun x m => of_decide_eq_true (h_in_range x m)) same_length rfl
    columns
  rw [decodeRow_of_in_range w w_in_range] at dw
  rw [decodeRow_of_in_range h h_in_range] at dh
  rw [answer, ← Option.some.inj dw, ← Option.some.inj dh]
  rfl

/-- **No logit overflows**: rounding with an unbounded exponent is rounding to BF16 here. -/
theorem stock_logit_is_finite (z : Option Int) {w h : List Nat} (same_length : w.length = h.length)
    (columns : h.length ≤ 2 ^ 16) (w_in_range : ∀ b, b ∈ w → inRange b = true)
    (h_in_range : ∀ b, b ∈ h → inRange b = true) :
    FiniteValue (bf16.grid (2 * headScale)) (toLogit (stockAccumulator z w h)) := by
  have precise : 1 ≤ (bf16.grid (2 * headScale)).prec := by decide
  have terms := magnitude_le (products_forall (m := hopper (2 * headScale) z) (P := Operand.Bf16 15)
    (Q := fun t => t.value.natAbs ≤ 2 ^ (2 * headScale + 32)) (fun x y hx hy => natAbs_product_lt rfl hx hy)
    (operands_are_bf16 w_in_range) (operands_are_bf16 h_in_range))
  rw [products_length _ (K := h.length) (by rw [List.length_map, same_length]) (by rw [List.length_map])] at terms
  have chain := natAbs_chain_le (m := hopper (2 * headScale) z) (by rw [hopper_acc_prec]; omega)
    (blocksOf 16 ((hopper (2 * headScale) z).products (w.map operandOf) (h.map operandOf))) 0
  rw [blocksOf_flatten (by omega), Int.natAbs_zero, Nat.zero_add] at chain
  have whole : (stockAccumulator z w h).natAbs ≤ 2 ^ 16 * 2 ^ (2 * headScale + 32) :=
    Nat.le_trans chain (Nat.le_trans terms (Nat.mul_le_mul_right _ columns))
  have power : (2 : Nat) ^ 16 * 2 ^ (2 * headScale + 32) = 2 ^ (2 * headScale + 48) := by
    rw [← Nat.pow_add]
    exact congrArg (2 ^ ·) (by unfold headScale; omega)
  rw [power] at whole
  have fixed : toLogit ((2 ^ (2 * headScale + 48) : Nat) : Int) = ((2 ^ (2 * headScale + 48) : Nat) : Int) :=
    roundNE_of_representable (representable_two_pow precise (by decide))
  have high := roundNE_mono precise (show stockAccumulator z w h ≤ ((2 ^ (2 * headScale + 48) : Nat) : Int) by omega)
  have low := roundNE_mono precise (show -((2 ^ (2 * headScale + 48) : Nat) : Int) ≤ stockAccumulator z w h by omega)
  rw [roundNE_neg] at low
  have room : 2 ^ (2 * headScale + 48) < 2 ^ (bf16.grid (2 * headScale)).top :=
    Nat.pow_lt_pow_right (by omega) (by decide)
  unfold toLogit at fixed ⊢
  rw [fixed] at high low
  exact ⟨roundNE_representable precise _, by omega⟩

/-- **Sound for every stock kernel inside the error model.** Let `y` be the accumulators of any kernel that
satisfies `|y − Σ w·h| ≤ γ·Σ|w·h| + η` (any order, any split), and let rescoring return or enclose them. Then the
token is the first maximum of their BF16 roundings. This is enclosed mode, and exact mode for other machines. -/
theorem token_is_right_for_every_kernel_in_the_model {c : HeadConfig} {r : Rescored} {W : List (List Nat)}
    {h : List Nat} {y : Nat → Int} {k : Nat}
    (within : ∀ i, i < W.length →
      WithinGamma c.gammaNum (floorTerm headScale) (integersOf (W.getD i [])) (integersOf h) (y i))
    (describes : r.Describes y (List.range W.length))
    (answer : (headWith c r W h).token? = some k) : IsFirstMax (fun i => toLogit (y i)) W.length k := by
  unfold headWith at answer
  split at answer
  · rename_i ok
    unfold headInRange at ok
    simp only [Bool.and_eq_true, decide_eq_true_eq, List.all_eq_true] at ok
    obtain ⟨⟨⟨rows_ok, _⟩, _⟩, group_pos⟩ := ok
    dsimp only at answer
    split at answer
    · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])
    · rename_i p accepted
      refine certify_is_sound (s := ⟨W.length, c.block, c.capacity⟩) (rn := toLogit)
        (round_to_nearest_is_monotone (by decide)) ?_ ?_ answer
      · intro i inside
        have row := rows_ok _ (getD_mem [] W i inside)
        have len : (integersOf (W.getD i [])).length = (integersOf h).length := by
          unfold integersOf
          simp only [List.length_map]
          exact row.1
        have ends := accepted_screen_encloses_stock_accumulator (by decide) group_pos accepted len (within i inside)
        unfold screenAll quantizeHead
        dsimp only
        rw [List.map_map, getD_map _ [] _ W i inside]
        exact ends
      · intro selected _
        have inside : ∀ i, i ∈ rowsOfBlocks ⟨W.length, c.block, c.capacity⟩ selected → i ∈ List.range W.length :=
          fun i m => List.mem_range.2 (rescored_rows_are_inside m)
        cases r with
        | exact value => exact fun i m => describes i (inside i m)
        | enclosed value => exact fun i m => describes i (inside i m)
  · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])

/-- **End to end.** If the certified head answers with a token, for any grouping, number of limbs, block size and
capacity, that token is the stock head's. -/
theorem certified_token_is_the_stock_token {c : HeadConfig} {z : Option Int} (zero_small : ZeroIsSmall z)
    {W : List (List Nat)} {h : List Nat} {k : Nat} (answer : (certifiedHead c z W h).token? = some k) :
    stockToken z W h = some k := by
  unfold certifiedHead at answer
  split at answer
  · rename_i gamma
    refine fold_over_range_iff_first_max.2 ?_
    refine token_is_right_for_every_kernel_in_the_model (c := c)
      (r := .exact fun i => stockAccumulator z (W.getD i []) h) ?_ (fun _ _ => rfl) answer
    intro i inside
    unfold headWith at answer
    split at answer
    · rename_i ok
      unfold headInRange at ok
      simp only [Bool.and_eq_true, decide_eq_true_eq, List.all_eq_true] at ok
      have row := ok.1.1.1 _ (getD_mem [] W i inside)
      exact stock_accumulator_is_within_gamma zero_small row.1 ok.1.2 row.2 ok.1.1.2 gamma
    · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])
  · exact absurd answer (by simp only [Outcome.token?, reduceCtorEq, not_false_eq_true])

/-- **In exact mode nothing is ambiguous**: a position without a token was refused (outside the range, `γ` too small,
or the codes leave int32) or had too many candidate blocks. -/
theorem exact_head_is_never_ambiguous {c : HeadConfig} {z : Option Int} {W : List (List Nat)} {h : List Nat} :
    certifiedHead c z W h ≠ .fallback .ambiguous := by
  intro answer
  unfold certifiedHead headWith certify decideRows at answer
  dsimp only at answer
  repeat' split at answer
  all_goals exact absurd answer (by simp only [reduceCtorEq, Outcome.fallback.injEq, not_false_eq_true])

end CertHead
