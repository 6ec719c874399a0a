import CertHead.Decision.Certify

/-!
# The certificate with real BF16 rounding

`rn` is no longer abstract: it is rounding to nearest, ties to even, into BF16 with gradual underflow, on the
scale `2^-149` of FP32's smallest subnormal. Also here: the midpoint threshold, by which a kernel compares
unrounded ends.
-/

namespace CertHead

/-- BF16 on the scale `2^-149`, where every finite FP32 value is an integer. -/
def bf16Grid : Grid := bf16.grid 149

/-- The stock head's conversion of an accumulator to a logit. -/
def toBf16 (y : Int) : Int := roundNE bf16Grid y

/-- Rounding to nearest even into any format keeps order. -/
theorem round_to_nearest_is_monotone {g : Grid} (precise : 1 ≤ g.prec) : Monotone (roundNE g) :=
  fun _ _ h => roundNE_mono precise h

/-- Rounding an accumulator to a BF16 logit keeps order. -/
theorem bf16_rounding_is_monotone : Monotone toBf16 :=
  round_to_nearest_is_monotone (g := bf16Grid) (by decide)

/-- **Real BF16 rounding is a `RoundModel`**: separation, gap condition and screen margin apply to it. -/
theorem bf16_rounding_is_a_round_model : RoundModel toBf16 bf16Grid.quantum :=
  roundModel_roundNE (g := bf16Grid) (by decide)

/-- **The certificate is sound for BF16.** Nothing is assumed about rounding: if the screen encloses the stock
accumulators and rescoring describes those of the selected rows, the certified token is the first maximum of
the accumulators rounded to BF16. -/
theorem certify_is_sound_for_bf16 {s : Shape} {screen : Nat → Interval} {r : Rescored} {y : Nat → Int} {k : Nat}
    (encloses : ∀ i, i < s.rows → (screen i).Contains (y i))
    (describes : ∀ selected, select toBf16 s screen = some selected → r.Describes y (rowsOfBlocks s selected))
    (answer : (certify toBf16 s screen r).token? = some k) : IsFirstMax (fun i => toBf16 (y i)) s.rows k :=
  certify_is_sound bf16_rounding_is_monotone encloses describes answer

/-! ## The midpoint threshold -/

/-- The least value that rounds to at least the rounded value `goal`: the midpoint between `goal` and the value
below it, or one unit of the scale above the midpoint when the tie goes down. -/
def midpointThreshold (g : Grid) (goal : Int) : Int :=
  let below := roundDown g (goal - 1)
  let middle := (below + goal + 1) / 2
  if goal ≤ roundNE g middle then middle else middle + 1

/-- Below half way to the value underneath, rounding falls short of `goal`. -/
private theorem below_middle_rounds_below {g : Grid} (precise : 1 ≤ g.prec) {goal x : Int}
    (low : 2 * x < roundDown g (goal - 1) + goal) : roundNE g x < goal := by
  have belowRep := roundDown_representable precise (goal - 1)
  have belowLess := roundDown_le g (goal - 1)
  rcases Int.lt_or_le x (roundDown g (goal - 1)) with under | over
  · have := roundNE_mono precise (Int.le_of_lt under)
    rw [roundNE_of_representable belowRep] at this
    omega
  · have := roundNE_nearest precise belowRep (x := x)
    omega

/-- Above half way, rounding reaches `goal`. -/
private theorem above_middle_rounds_to_goal {g : Grid} (precise : 1 ≤ g.prec) {goal x : Int}
    (isValue : Representable g goal) (high : roundDown g (goal - 1) + goal < 2 * x) : goal ≤ roundNE g x := by
  rcases Int.lt_or_le x goal with under | over
  · rcases Int.lt_or_le (roundNE g x) goal with short | reached
    · have := le_roundDown_of_representable precise (roundNE_representable precise x) (x := goal - 1) (by omega)
      have := roundNE_nearest precise isValue (x := x)
      omega
    · exact reached
  · have := roundNE_mono precise over
    rw [roundNE_of_representable isValue] at this
    exact this

/-- **The midpoint threshold.** Comparing an unrounded value with the threshold is the same as rounding it to
nearest even and comparing with `goal`. -/
theorem midpoint_threshold_is_exact {g : Grid} (precise : 1 ≤ g.prec) {goal x : Int} (isValue : Representable g goal) :
    midpointThreshold g goal ≤ x ↔ goal ≤ roundNE g x := by
  unfold midpointThreshold
  dsimp only
  split
  · rename_i reached
    constructor
    · intro h
      exact Int.le_trans reached (roundNE_mono precise h)
    · intro h
      rcases Int.lt_or_le x ((roundDown g (goal - 1) + goal + 1) / 2) with under | over
      · have := below_middle_rounds_below precise (goal := goal) (x := x) (by omega)
        omega
      · exact over
  · rename_i short
    constructor
    · intro h
      exact above_middle_rounds_to_goal precise isValue (by omega)
    · intro h
      rcases Int.lt_or_le x ((roundDown g (goal - 1) + goal + 1) / 2 + 1) with under | over
      · have : x ≤ (roundDown g (goal - 1) + goal + 1) / 2 := by omega
        have := roundNE_mono precise this
        omega
      · exact over

/-- **What the kernel compares**: an upper end qualifies against the rounded best lower end exactly when it reaches
one precomputed number. -/
theorem kernel_threshold_selects_the_candidates (best hi : Int) :
    midpointThreshold bf16Grid (toBf16 best) ≤ hi ↔ toBf16 best ≤ toBf16 hi :=
  midpoint_threshold_is_exact (by decide) (roundNE_representable (by decide) best)

end CertHead
