import CertHead.Float.RoundProperties
import CertHead.Sum.Fdpa
import CertHead.Sum.TreeProperties
/-!
# The error of the fused dot-product accumulate

The step and the chain of `Fdpa`, for any group, fraction bits and accumulator format: the exact
loss, the a-posteriori bound, the relative bound as a summation tree, and that nothing overflows.
-/

namespace CertHead

/-! ## What truncation to the accumulator loses -/

/-- Truncation moves a value by less than one spacing. -/
theorem roundZ_error (g : Grid) (x : Int) : (roundZ g x - x).natAbs ≤ g.quantum x.natAbs - 1 := by
  have h1 := roundDown_le g x
  have h2 := lt_roundDown_add_quantum g x
  have h3 := le_roundUp g x
  have h4 := roundUp_lt_add_quantum g x
  rcases roundZ_eq_roundDown_or_roundUp g x with h | h <;> rw [h] <;> omega

/-- Truncation does not change the spacing: the result has the exponent of the argument. -/
theorem quantum_roundZ {g : Grid} (hp : 1 ≤ g.prec) (x : Int) :
    g.quantum (roundZ g x).natAbs = g.quantum x.natAbs := by
  have key : ∀ y : Int, 0 ≤ y → g.quantumExp (roundZ g y).natAbs = g.quantumExp y.natAbs := by
    intro y hy
    have hle := quantumExp_mono g (roundZ_natAbs_le hp y)
    have hmin : g.qmin ≤ g.quantumExp (roundZ g y).natAbs := Nat.le_max_left _ _
    by_cases hn : y.natAbs.log2 + 1 - g.prec ≤ g.qmin
    · have : g.quantumExp y.natAbs = g.qmin := Nat.max_eq_left hn
      omega
    · have hy0 : y.natAbs ≠ 0 := fun h => by
        rw [h, Nat.log2_zero] at hn
        omega
      have hlow : 2 ^ y.natAbs.log2 ≤ y.natAbs := Nat.log2_self_le hy0
      have hrep := le_roundDown_of_representable hp (x := y)
        (representable_two_pow (g := g) hp (e := y.natAbs.log2) (by omega)) (by omega)
      rw [← roundZ_of_nonneg g hy] at hrep
      have hge : 2 ^ y.natAbs.log2 ≤ (roundZ g y).natAbs := by omega
      have hlog := (Nat.le_log2 (by have := Nat.two_pow_pos y.natAbs.log2; omega)).2 hge
      unfold Grid.quantumExp at hle ⊢
      omega
  unfold Grid.quantum
  by_cases hx : 0 ≤ x
  · rw [key x hx]
  · have h := key (-x) (by omega)
    rw [roundZ_neg, Int.natAbs_neg, Int.natAbs_neg] at h
    rw [h]

/-- One spacing, against the magnitude: relative in the normal range, `2^qmin` below it. -/
theorem quantum_relative_or_subnormal {g : Grid} (hp : 1 ≤ g.prec) (n : Nat) :
    2 ^ (g.prec - 1) * g.quantum n ≤ n + 2 ^ (g.prec - 1) * 2 ^ g.qmin := by
  by_cases hn : 2 ^ (g.qmin + g.prec - 1) ≤ n
  · have := two_pow_mul_quantum_le hp hn
    omega
  · have hq : g.quantum n = 2 ^ g.qmin := by
      unfold Grid.quantum Grid.quantumExp
      by_cases h0 : n = 0
      · rw [h0, Nat.log2_zero, Nat.max_eq_left (by omega)]
      · have := (Nat.log2_lt h0).2 (Nat.lt_of_not_le hn)
        rw [Nat.max_eq_left (by omega)]
    rw [hq]
    exact Nat.le_add_left _ _

/-- The relative error of truncation, with the subnormal range as an absolute term. -/
theorem roundZ_relative_or_subnormal {g : Grid} (hp : 1 ≤ g.prec) (x : Int) :
    2 ^ (g.prec - 1) * (roundZ g x - x).natAbs ≤ x.natAbs + 2 ^ (g.prec - 1) * 2 ^ g.qmin :=
  Nat.le_trans (Nat.mul_le_mul_left _ (Nat.le_trans (roundZ_error g x) (Nat.sub_le _ _)))
    (quantum_relative_or_subnormal hp x.natAbs)

namespace Fdpa

/-! ## What the cuts lose -/

theorem natAbs_two_pow (q : Nat) : ((2 : Int) ^ q).natAbs = 2 ^ q := Int.natAbs_pow 2 q

theorem cut_error_eq (q : Nat) (x : Int) : (cut q x - x).natAbs = x.natAbs % 2 ^ q := by
  have h : cut q x - x = -(x.tmod (2 ^ q)) := by
    unfold cut
    rw [Int.tmod_def, Int.mul_comm]
    omega
  rw [h, Int.natAbs_neg, Int.natAbs_tmod, natAbs_two_pow]

/-- A cut drops less than one unit of its last place. -/
theorem cut_error (q : Nat) (x : Int) : (cut q x - x).natAbs ≤ 2 ^ q - 1 := by
  have h := Nat.mod_lt x.natAbs (Nat.two_pow_pos q)
  rw [cut_error_eq]
  omega

/-- A cut is towards zero. -/
theorem natAbs_cut_le (q : Nat) (x : Int) : (cut q x).natAbs ≤ x.natAbs := by
  unfold cut
  rw [Int.natAbs_mul, Int.natAbs_tdiv, natAbs_two_pow]
  exact Nat.div_mul_le_self _ _

/-- A multiple of the cut loses nothing. -/
theorem cut_of_dvd {q : Nat} {x : Int} (h : (2 : Int) ^ q ∣ x) : cut q x = x :=
  Int.tdiv_mul_cancel h

theorem exactSum_cons (t : FdpaTerm) (ts : List FdpaTerm) :
    exactSum (t :: ts) = t.value + exactSum ts := rfl

theorem magnitude_cons (t : FdpaTerm) (ts : List FdpaTerm) :
    magnitude (t :: ts) = t.value.natAbs + magnitude ts := rfl

theorem cutSum_cons (q : Nat) (t : FdpaTerm) (ts : List FdpaTerm) :
    cutSum q (t :: ts) = cut q t.value + cutSum q ts := rfl

theorem exactSum_append (ts us : List FdpaTerm) :
    exactSum (ts ++ us) = exactSum ts + exactSum us := by
  unfold exactSum
  rw [List.map_append, List.sum_append_int]

theorem magnitude_append (ts us : List FdpaTerm) :
    magnitude (ts ++ us) = magnitude ts + magnitude us := by
  unfold magnitude
  rw [List.map_append, absSum_append]

theorem cutSum_error (q : Nat) (ts : List FdpaTerm) :
    (cutSum q ts - exactSum ts).natAbs ≤ ts.length * (2 ^ q - 1) := by
  induction ts with
  | nil => exact Nat.zero_le _
  | cons t ts ih =>
    have h := cut_error q t.value
    rw [cutSum_cons, exactSum_cons, List.length_cons, Nat.add_mul, Nat.one_mul]
    omega

theorem natAbs_cutSum_le (q : Nat) (ts : List FdpaTerm) :
    (cutSum q ts).natAbs ≤ magnitude ts := by
  induction ts with
  | nil => exact Nat.zero_le _
  | cons t ts ih =>
    have h := natAbs_cut_le q t.value
    rw [cutSum_cons, magnitude_cons]
    omega

/-- The aligned sum is off by less than one unit of the cut for each term and the accumulator. -/
theorem alignedSum_error (m : Fdpa) (c : Int) (ts : List FdpaTerm) :
    (m.alignedSum c ts - (c + exactSum ts)).natAbs
      ≤ (ts.length + 1) * (2 ^ m.cutExp c ts - 1) := by
  have h1 := cut_error (m.cutExp c ts) c
  have h2 := cutSum_error (m.cutExp c ts) ts
  have h3 : m.alignedSum c ts = cut (m.cutExp c ts) c + cutSum (m.cutExp c ts) ts := rfl
  rw [h3, Nat.add_mul, Nat.one_mul]
  omega

/-- The aligned sum is no larger than the magnitudes allow. -/
theorem natAbs_alignedSum_le (m : Fdpa) (c : Int) (ts : List FdpaTerm) :
    (m.alignedSum c ts).natAbs ≤ c.natAbs + magnitude ts := by
  have h1 := natAbs_cut_le (m.cutExp c ts) c
  have h2 := natAbs_cutSum_le (m.cutExp c ts) ts
  have h3 : m.alignedSum c ts = cut (m.cutExp c ts) c + cutSum (m.cutExp c ts) ts := rfl
  rw [h3]
  omega

/-! ## One step -/

/-- **The step bound in its exact form**: with `q` the cut exponent and `Q` the spacing of the
result, `|d - (c + Σp)| ≤ (n+1)·(2^q - 1) + (Q - 1)` for `n` terms. -/
theorem step_error_le_stepLoss {m : Fdpa} (hp : 1 ≤ m.acc.prec) (c : Int) (ts : List FdpaTerm) :
    (m.step c ts - (c + exactSum ts)).natAbs ≤ m.stepLoss c ts := by
  have h1 := alignedSum_error m c ts
  have h2 := roundZ_error m.acc (m.alignedSum c ts)
  have h3 : m.acc.quantum (m.step c ts).natAbs = m.acc.quantum (m.alignedSum c ts).natAbs :=
    quantum_roundZ hp _
  have h4 : m.step c ts = roundZ m.acc (m.alignedSum c ts) := rfl
  unfold stepLoss
  rw [h3, h4]
  omega

/-- **The step bound**: `|d - (c + Σp)| < (L+1)·2^(e_max - F) + 2^(e_d - 23)`, where the last term
is the spacing of the result. -/
theorem step_error_lt {m : Fdpa} (hp : 1 ≤ m.acc.prec) (c : Int) {ts : List FdpaTerm}
    (hlen : ts.length ≤ m.group) :
    (m.step c ts - (c + exactSum ts)).natAbs
      < (m.group + 1) * 2 ^ (m.maxExp c ts - m.fraction)
        + m.acc.quantum (m.step c ts).natAbs := by
  have h1 := step_error_le_stepLoss hp c ts
  have h2 : (ts.length + 1) * (2 ^ m.cutExp c ts - 1) ≤ (m.group + 1) * 2 ^ m.cutExp c ts :=
    Nat.mul_le_mul (by omega) (Nat.sub_le _ _)
  have h3 := quantum_pos m.acc (m.step c ts).natAbs
  have h4 : m.cutExp c ts = m.maxExp c ts - m.fraction := rfl
  unfold stepLoss at h1
  rw [← h4]
  omega

/-- **A step is no larger than the magnitudes of what it adds.** -/
theorem natAbs_step_le {m : Fdpa} (hp : 1 ≤ m.acc.prec) (c : Int) (ts : List FdpaTerm) :
    (m.step c ts).natAbs ≤ c.natAbs + magnitude ts :=
  Nat.le_trans (roundZ_natAbs_le hp _) (natAbs_alignedSum_le m c ts)

/-- The result of a step is a value of the accumulator's format. -/
theorem step_representable {m : Fdpa} (hp : 1 ≤ m.acc.prec) (c : Int) (ts : List FdpaTerm) :
    Representable m.acc (m.step c ts) := roundZ_representable hp _

/-- **A step is exact** where no term is cut and the sum is a value of the accumulator's format. -/
theorem step_exact {m : Fdpa} {c : Int} {ts : List FdpaTerm}
    (hc : (2 : Int) ^ m.cutExp c ts ∣ c) (hts : ∀ t ∈ ts, (2 : Int) ^ m.cutExp c ts ∣ t.value)
    (hrep : Representable m.acc (c + exactSum ts)) : m.step c ts = c + exactSum ts := by
  have key : ∀ us : List FdpaTerm, (∀ t ∈ us, (2 : Int) ^ m.cutExp c ts ∣ t.value) →
      cutSum (m.cutExp c ts) us = exactSum us := by
    intro us
    induction us with
    | nil => exact fun _ => rfl
    | cons u us ih =>
      intro h
      rw [cutSum_cons, exactSum_cons, cut_of_dvd (h u (List.mem_cons_self ..)),
        ih fun t ht => h t (List.mem_cons_of_mem _ ht)]
  have h : m.alignedSum c ts = c + exactSum ts := by
    have e : m.alignedSum c ts = cut (m.cutExp c ts) c + cutSum (m.cutExp c ts) ts := rfl
    rw [e, cut_of_dvd hc, key ts hts]
  have e : m.step c ts = roundZ m.acc (m.alignedSum c ts) := rfl
  rw [e, h, roundZ_of_representable hrep]

theorem maxExp_perm (m : Fdpa) (c : Int) {ts us : List FdpaTerm} (h : ts.Perm us) :
    m.maxExp c ts = m.maxExp c us := by
  have e : ∀ t us, m.maxExp c (t :: us) = max t.exp (m.maxExp c us) := fun _ _ => rfl
  induction h with
  | nil => rfl
  | cons t _ ih => rw [e, e, ih]
  | swap s t us => rw [e, e, e, e]; omega
  | trans _ _ h1 h2 => exact h1.trans h2

theorem cutSum_perm (q : Nat) {ts us : List FdpaTerm} (h : ts.Perm us) :
    cutSum q ts = cutSum q us := by
  induction h with
  | nil => rfl
  | cons t _ ih => rw [cutSum_cons, cutSum_cons, ih]
  | swap s t us => rw [cutSum_cons, cutSum_cons, cutSum_cons, cutSum_cons]; omega
  | trans _ _ h1 h2 => exact h1.trans h2

/-- **The order of the terms within a step does not matter.** -/
theorem step_perm (m : Fdpa) (c : Int) {ts us : List FdpaTerm} (h : ts.Perm us) :
    m.step c ts = m.step c us := by
  have e : ∀ vs, m.step c vs = roundZ m.acc
      (cut (m.maxExp c vs - m.fraction) c + cutSum (m.maxExp c vs - m.fraction) vs) := fun _ => rfl
  rw [e, e, maxExp_perm m c h, cutSum_perm _ h]

/-! ## Chains -/

theorem chain_nil (m : Fdpa) (c : Int) : m.chain c [] = c := rfl

theorem chain_cons (m : Fdpa) (c : Int) (b : List FdpaTerm) (bs : List (List FdpaTerm)) :
    m.chain c (b :: bs) = m.chain (m.step c b) bs := rfl

/-- **A chain over a concatenation is the two chains in turn.** -/
theorem chain_append (m : Fdpa) (c : Int) (bs ds : List (List FdpaTerm)) :
    m.chain c (bs ++ ds) = m.chain (m.chain c bs) ds := List.foldl_append

/-- **The chain bound**: a chain is off by at most the sum of the losses of its steps. -/
theorem chain_error_le_chainLoss {m : Fdpa} (hp : 1 ≤ m.acc.prec) (bs : List (List FdpaTerm)) :
    ∀ c : Int, (m.chain c bs - (c + exactSum bs.flatten)).natAbs ≤ m.chainLoss c bs := by
  induction bs with
  | nil =>
    intro c
    rw [chain_nil, List.flatten_nil]
    have : exactSum [] = 0 := rfl
    omega
  | cons b bs ih =>
    intro c
    have h1 := step_error_le_stepLoss hp c b
    have h2 := ih (m.step c b)
    rw [chain_cons, List.flatten_cons, exactSum_append, chainLoss]
    omega

/-- **A chain is no larger than the magnitudes of what it adds.** -/
theorem natAbs_chain_le {m : Fdpa} (hp : 1 ≤ m.acc.prec) (bs : List (List FdpaTerm)) :
    ∀ c : Int, (m.chain c bs).natAbs ≤ c.natAbs + magnitude bs.flatten := by
  induction bs with
  | nil => exact fun c => Nat.le_add_right _ _
  | cons b bs ih =>
    intro c
    have h1 := natAbs_step_le hp c b
    have h2 := ih (m.step c b)
    rw [chain_cons, List.flatten_cons, magnitude_append]
    omega

/-- A chain of which no step overflows has the value of the unbounded chain. -/
theorem chain_of_chain?_eq_some {m : Fdpa} (bs : List (List FdpaTerm)) :
    ∀ {c d : Int}, m.chain? c bs = some d → d = m.chain c bs := by
  induction bs with
  | nil =>
    intro c d h
    exact (Option.some.inj h).symm
  | cons b bs ih =>
    intro c d h
    rw [chain?, step?] at h
    by_cases ho : (m.step c b).natAbs < 2 ^ m.acc.top
    · simp only [if_pos ho, Option.bind_some] at h
      exact ih h
    · simp only [if_neg ho, Option.bind_none] at h
      exact nomatch h

/-- **A chain over a concatenation is the two chains in turn**, overflow included. -/
theorem chain?_append (m : Fdpa) (bs ds : List (List FdpaTerm)) :
    ∀ c : Int, m.chain? c (bs ++ ds) = (m.chain? c bs).bind fun d => m.chain? d ds := by
  induction bs with
  | nil => exact fun _ => rfl
  | cons b bs ih =>
    intro c
    rw [List.cons_append, chain?, chain?]
    cases m.step? c b with
    | none => rfl
    | some d =>
      simp only [Option.bind_some]
      exact ih d

/-- **Nothing overflows** if the magnitudes add up to less than the largest power of the format. -/
theorem chain?_eq_some {m : Fdpa} (hp : 1 ≤ m.acc.prec) (bs : List (List FdpaTerm)) :
    ∀ {c : Int}, c.natAbs + magnitude bs.flatten < 2 ^ m.acc.top →
      m.chain? c bs = some (m.chain c bs) := by
  induction bs with
  | nil => exact fun _ => rfl
  | cons b bs ih =>
    intro c h
    rw [List.flatten_cons, magnitude_append] at h
    have h1 := natAbs_step_le hp c b
    have ho : (m.step c b).natAbs < 2 ^ m.acc.top := by omega
    rw [chain?, step?]
    simp only [if_pos ho, Option.bind_some]
    rw [chain_cons]
    exact ih (by omega)

/-! ## The relative bound -/

theorem two_pow_maxExp_le {m : Fdpa} {c : Int} {ts : List FdpaTerm} {X : Nat}
    (hc : 2 ^ m.accExp c ≤ X) (hts : ∀ t ∈ ts, 2 ^ t.exp ≤ X) : 2 ^ m.maxExp c ts ≤ X := by
  induction ts with
  | nil => exact hc
  | cons t ts ih =>
    have h1 := hts t (List.mem_cons_self ..)
    have h2 := ih fun s hs => hts s (List.mem_cons_of_mem _ hs)
    have h3 : m.maxExp c (t :: ts) = max t.exp (m.maxExp c ts) := rfl
    rw [h3]
    rcases Nat.le_total t.exp (m.maxExp c ts) with h | h
    · rw [Nat.max_eq_right h]; exact h2
    · rw [Nat.max_eq_left h]; exact h1

theorem natAbs_le_magnitude {t : FdpaTerm} {ts : List FdpaTerm} (h : t ∈ ts) :
    t.value.natAbs ≤ magnitude ts := by
  induction ts with
  | nil => exact nomatch h
  | cons s ts ih =>
    rw [magnitude_cons]
    rcases List.mem_cons.1 h with rfl | h
    · exact Nat.le_add_right _ _
    · exact Nat.le_trans (ih h) (Nat.le_add_left _ _)

/-- Cutting to `fraction` bits below `e` loses at most `2^(e - fraction)` for each term. -/
theorem fraction_mul_cut_le (F e : Nat) : 2 ^ F * (2 ^ (e - F) - 1) ≤ 2 ^ e := by
  by_cases h : F ≤ e
  · calc 2 ^ F * (2 ^ (e - F) - 1) ≤ 2 ^ F * 2 ^ (e - F) := Nat.mul_le_mul_left _ (Nat.sub_le _ _)
      _ = 2 ^ e := by rw [← Nat.pow_add, Nat.add_sub_of_le h]
  · have : e - F = 0 := by omega
    rw [this, Nat.pow_zero, Nat.sub_self, Nat.mul_zero]
    exact Nat.zero_le _

/-- The exponent of every term is at most that of its magnitude plus the slack. With normal
operands the slack is not needed; see `product_covered`. -/
def Covered (slack : Nat) (ts : List FdpaTerm) : Prop :=
  ∀ t ∈ ts, 2 ^ t.exp ≤ t.value.natAbs + slack

/-- One step as a node, from the number of terms that can be cut. -/
theorem step_admits_of_cuts {m : Fdpa} (hp : 1 ≤ m.acc.prec) (hF : m.acc.prec ≤ m.fraction + 1)
    {slack t : Nat} {c : Int} {ts : List FdpaTerm}
    (hcuts : (m.alignedSum c ts - (c + exactSum ts)).natAbs ≤ t * (2 ^ m.cutExp c ts - 1))
    (hc : 2 ^ m.accExp c ≤ c.natAbs + slack) (hts : Covered slack ts) :
    (m.nodeError slack t).Admits 1 (c :: ts.map FdpaTerm.value) (m.step c ts) := by
  have hA : absSum (c :: ts.map FdpaTerm.value) = c.natAbs + magnitude ts := rfl
  have hS : (c :: ts.map FdpaTerm.value).sum = c + exactSum ts := rfl
  have hmax : 2 ^ m.maxExp c ts ≤ c.natAbs + magnitude ts + slack :=
    two_pow_maxExp_le (by omega) fun t ht => by
      have h1 := hts t ht
      have h2 := natAbs_le_magnitude ht
      omega
  -- the cuts
  have hcut : 2 ^ m.fraction * (m.alignedSum c ts - (c + exactSum ts)).natAbs
      ≤ t * (c.natAbs + magnitude ts) + t * slack := by
    calc 2 ^ m.fraction * (m.alignedSum c ts - (c + exactSum ts)).natAbs
        ≤ 2 ^ m.fraction * (t * (2 ^ m.cutExp c ts - 1)) := Nat.mul_le_mul_left _ hcuts
      _ = t * (2 ^ m.fraction * (2 ^ m.cutExp c ts - 1)) := Nat.mul_left_comm _ _ _
      _ ≤ t * (c.natAbs + magnitude ts + slack) :=
          Nat.mul_le_mul_left _ (Nat.le_trans (fraction_mul_cut_le _ _) hmax)
      _ = t * (c.natAbs + magnitude ts) + t * slack := Nat.mul_add _ _ _
  -- the final truncation
  have hround : 2 ^ m.fraction * (m.step c ts - m.alignedSum c ts).natAbs
      ≤ 2 ^ (m.fraction + 1 - m.acc.prec) * (c.natAbs + magnitude ts)
        + 2 ^ m.fraction * 2 ^ m.acc.qmin := by
    have he : 2 ^ m.fraction = 2 ^ (m.fraction + 1 - m.acc.prec) * 2 ^ (m.acc.prec - 1) := by
      rw [← Nat.pow_add]
      exact congrArg (2 ^ ·) (by omega)
    calc 2 ^ m.fraction * (m.step c ts - m.alignedSum c ts).natAbs
        = 2 ^ (m.fraction + 1 - m.acc.prec)
            * (2 ^ (m.acc.prec - 1) * (m.step c ts - m.alignedSum c ts).natAbs) := by
          rw [he, Nat.mul_assoc]
      _ ≤ 2 ^ (m.fraction + 1 - m.acc.prec)
            * (c.natAbs + magnitude ts + 2 ^ (m.acc.prec - 1) * 2 ^ m.acc.qmin) := by
          refine Nat.mul_le_mul_left _ (Nat.le_trans (roundZ_relative_or_subnormal hp _) ?_)
          exact Nat.add_le_add_right (natAbs_alignedSum_le m c ts) _
      _ = 2 ^ (m.fraction + 1 - m.acc.prec) * (c.natAbs + magnitude ts)
            + 2 ^ m.fraction * 2 ^ m.acc.qmin := by
          rw [Nat.mul_add, ← Nat.mul_assoc, ← he]
  have hfloor : t * slack ≤ 2 ^ m.fraction * (t * slack / 2 ^ m.fraction + 1) :=
    Nat.le_of_lt (Nat.lt_mul_div_succ _ (Nat.two_pow_pos _))
  have htri : (m.step c ts - (c + exactSum ts)).natAbs
      ≤ (m.step c ts - m.alignedSum c ts).natAbs
        + (m.alignedSum c ts - (c + exactSum ts)).natAbs := by omega
  have htri' := Nat.mul_le_mul_left (2 ^ m.fraction) htri
  rw [Nat.mul_add] at htri'
  have e1 := Nat.add_mul t (2 ^ (m.fraction + 1 - m.acc.prec)) (c.natAbs + magnitude ts)
  have e2 := Nat.mul_add (2 ^ m.fraction) (t * slack / 2 ^ m.fraction + 1) (2 ^ m.acc.qmin)
  unfold NodeError.Admits nodeError
  simp only [hA, hS, Nat.one_mul]
  omega

/-- **One step is a node of relative error** `u = (L+1)·2^-F + 2^(1-prec)`. -/
theorem step_admits {m : Fdpa} (hp : 1 ≤ m.acc.prec) (hF : m.acc.prec ≤ m.fraction + 1)
    {slack : Nat} {c : Int} {ts : List FdpaTerm} (hlen : ts.length ≤ m.group)
    (hc : 2 ^ m.accExp c ≤ c.natAbs + slack) (hts : Covered slack ts) :
    (m.nodeError slack).Admits 1 (c :: ts.map FdpaTerm.value) (m.step c ts) :=
  step_admits_of_cuts hp hF
    (Nat.le_trans (alignedSum_error m c ts) (Nat.mul_le_mul_right _ (by omega))) hc hts

/-- The exponent of an accumulator exceeds its magnitude only where it is subnormal or zero. -/
theorem two_pow_accExp_le {m : Fdpa} {slack : Nat} (hp : 1 ≤ m.acc.prec)
    (hsub : 2 ^ (m.acc.qmin + m.acc.prec - 1) ≤ slack)
    (hzero : 2 ^ m.zeroTermExp ≤ slack) (c : Int) :
    2 ^ m.accExp c ≤ c.natAbs + slack := by
  unfold accExp
  by_cases hc : c = 0
  · rw [if_pos hc]
    omega
  · rw [if_neg hc]
    have hc0 : c.natAbs ≠ 0 := by omega
    by_cases hn : c.natAbs.log2 + 1 - m.acc.prec ≤ m.acc.qmin
    · have : m.acc.quantumExp c.natAbs + (m.acc.prec - 1) = m.acc.qmin + m.acc.prec - 1 := by
        unfold Grid.quantumExp
        omega
      rw [this]
      omega
    · have : m.acc.quantumExp c.natAbs + (m.acc.prec - 1) = c.natAbs.log2 := by
        unfold Grid.quantumExp
        omega
      rw [this]
      have := Nat.log2_self_le hc0
      omega

/-! ## The chain as a summation tree -/

theorem chainTree_cons (m : Fdpa) (acc : SumTree) (b : List FdpaTerm) (bs : List (List FdpaTerm)) :
    m.chainTree acc (b :: bs) = m.chainTree
      (.node 1 (m.step acc.value b) (acc :: (b.map FdpaTerm.value).map .leaf)) bs := rfl

theorem chainTree_value (m : Fdpa) (bs : List (List FdpaTerm)) :
    ∀ acc : SumTree, (m.chainTree acc bs).value = m.chain acc.value bs := by
  induction bs with
  | nil => exact fun _ => rfl
  | cons b bs ih =>
    intro acc
    rw [chainTree_cons, ih, chain_cons]
    rfl

theorem chainTree_leaves (m : Fdpa) (bs : List (List FdpaTerm)) :
    ∀ acc : SumTree,
      (m.chainTree acc bs).leaves = acc.leaves ++ bs.flatten.map FdpaTerm.value := by
  induction bs with
  | nil => exact fun acc => (List.append_nil _).symm
  | cons b bs ih =>
    intro acc
    rw [chainTree_cons, ih, SumTree.leaves, SumTree.leavesList, SumTree.leavesList_map_leaf,
      List.flatten_cons, List.map_append, List.append_assoc]

theorem chainTree_depth (m : Fdpa) (bs : List (List FdpaTerm)) :
    ∀ acc : SumTree, (m.chainTree acc bs).depth = acc.depth + bs.length := by
  induction bs with
  | nil => exact fun acc => rfl
  | cons b bs ih =>
    intro acc
    rw [chainTree_cons, ih, SumTree.depth, SumTree.depthList, SumTree.depthList_map_leaf,
      List.length_cons, Nat.max_zero]
    omega

theorem chainTree_nodeCount (m : Fdpa) (bs : List (List FdpaTerm)) :
    ∀ acc : SumTree, (m.chainTree acc bs).nodeCount = acc.nodeCount + bs.length := by
  induction bs with
  | nil => exact fun acc => rfl
  | cons b bs ih =>
    intro acc
    rw [chainTree_cons, ih, SumTree.nodeCount, SumTree.nodeCountList,
      SumTree.nodeCountList_map_leaf, List.length_cons]
    omega

theorem chainTree_obeys {m : Fdpa} (hp : 1 ≤ m.acc.prec) {e : NodeError}
    (bs : List (List FdpaTerm)) :
    (∀ c : Int, Representable m.acc c → ∀ b ∈ bs,
        e.Admits 1 (c :: b.map FdpaTerm.value) (m.step c b)) →
      ∀ {acc : SumTree}, Representable m.acc acc.value → acc.Obeys e →
        (m.chainTree acc bs).Obeys e := by
  induction bs with
  | nil => exact fun _ _ _ h => h
  | cons b bs ih =>
    intro hstep acc hrep h
    rw [chainTree_cons]
    refine ih (fun c hc d hd => hstep c hc d (List.mem_cons_of_mem _ hd))
      (step_representable hp _ _) ⟨?_, h, SumTree.obeysList_map_leaf _ _⟩
    rw [List.map_cons, SumTree.map_value_map_leaf]
    exact hstep acc.value hrep b (List.mem_cons_self ..)

/-- The relative bound of a chain of `s` steps, each a node of unit `u`:
`|d - (c + Σp)| ≤ ((1+u)^s - 1)·(|c| + Σ|p|) + (1+u)^s·s·floor`. -/
theorem chain_gamma_bound_of_steps {m : Fdpa} (hp : 1 ≤ m.acc.prec) {e : NodeError}
    (hden : 0 < e.den) {bs : List (List FdpaTerm)}
    (hstep : ∀ c : Int, Representable m.acc c → ∀ b ∈ bs,
      e.Admits 1 (c :: b.map FdpaTerm.value) (m.step c b))
    {c : Int} (hc : Representable m.acc c) :
    e.den ^ bs.length * (m.chain c bs - (c + exactSum bs.flatten)).natAbs
      ≤ ((e.den + e.num) ^ bs.length - e.den ^ bs.length) * (c.natAbs + magnitude bs.flatten)
        + (e.den + e.num) ^ bs.length * (bs.length * e.floor) := by
  have hob := chainTree_obeys hp bs hstep (acc := .leaf c) hc trivial
  have hd := chainTree_depth m bs (.leaf c)
  have hcount := chainTree_nodeCount m bs (.leaf c)
  have hl := chainTree_leaves m bs (.leaf c)
  rw [SumTree.depth, Nat.zero_add] at hd
  rw [SumTree.nodeCount, Nat.zero_add] at hcount
  rw [SumTree.leaves] at hl
  have h := SumTree.sum_gamma_bound hden hob (Nat.le_of_eq hd)
  rw [SumTree.error, chainTree_value, hl, hcount] at h
  exact h

/-- **The relative bound of a chain** of `s` steps: with `u = (L+1)·2^-F + 2^(1-prec)`,
`|d - (c + Σp)| ≤ ((1+u)^s - 1)·(|c| + Σ|p|) + (1+u)^s·s·floor`. -/
theorem chain_gamma_bound {m : Fdpa} (hp : 1 ≤ m.acc.prec) (hF : m.acc.prec ≤ m.fraction + 1)
    {slack : Nat} (hacc : ∀ c : Int, 2 ^ m.accExp c ≤ c.natAbs + slack)
    {bs : List (List FdpaTerm)} (hbs : ∀ b ∈ bs, b.length ≤ m.group ∧ Covered slack b)
    {c : Int} (hc : Representable m.acc c) :
    (m.nodeError slack).den ^ bs.length * (m.chain c bs - (c + exactSum bs.flatten)).natAbs
      ≤ (((m.nodeError slack).den + (m.nodeError slack).num) ^ bs.length
            - (m.nodeError slack).den ^ bs.length) * (c.natAbs + magnitude bs.flatten)
        + ((m.nodeError slack).den + (m.nodeError slack).num) ^ bs.length
            * (bs.length * (m.nodeError slack).floor) :=
  chain_gamma_bound_of_steps hp (Nat.two_pow_pos _)
    (fun c _ b hb => step_admits hp hF (hbs b hb).1 (hacc c) (hbs b hb).2) hc

/-! ## The leading term is never cut -/

/-- No term has bits that a cut at its own exponent would drop. -/
def Aligned (m : Fdpa) (ts : List FdpaTerm) : Prop :=
  ∀ t ∈ ts, (2 : Int) ^ (t.exp - m.fraction) ∣ t.value

theorem accExp_aligned {m : Fdpa} (hF : m.acc.prec ≤ m.fraction + 1) {c : Int}
    (hc : Representable m.acc c) : (2 : Int) ^ (m.accExp c - m.fraction) ∣ c := by
  by_cases h0 : c = 0
  · rw [h0]
    exact Int.dvd_zero _
  · have h : m.accExp c = m.acc.quantumExp c.natAbs + (m.acc.prec - 1) := if_neg h0
    refine Int.dvd_trans (two_pow_dvd_two_pow ?_) hc
    omega

theorem maxExp_attained (m : Fdpa) (c : Int) (ts : List FdpaTerm) :
    m.maxExp c ts = m.accExp c ∨ ∃ t ∈ ts, t.exp = m.maxExp c ts := by
  induction ts with
  | nil => exact .inl rfl
  | cons t ts ih =>
    have h3 : m.maxExp c (t :: ts) = max t.exp (m.maxExp c ts) := rfl
    rcases Nat.le_total t.exp (m.maxExp c ts) with h | h
    · rw [Nat.max_eq_right h] at h3
      rw [h3]
      rcases ih with ih | ⟨s, hs, e⟩
      · exact .inl ih
      · exact .inr ⟨s, List.mem_cons_of_mem _ hs, e⟩
    · rw [Nat.max_eq_left h] at h3
      exact .inr ⟨t, List.mem_cons_self .., h3.symm⟩

theorem cutSum_error_of_uncut {q : Nat} {ts : List FdpaTerm}
    (h : ∃ t ∈ ts, (2 : Int) ^ q ∣ t.value) :
    (cutSum q ts - exactSum ts).natAbs + (2 ^ q - 1) ≤ ts.length * (2 ^ q - 1) := by
  induction ts with
  | nil =>
    obtain ⟨_, ht, _⟩ := h
    exact nomatch ht
  | cons t ts ih =>
    obtain ⟨s, hs, hd⟩ := h
    rw [cutSum_cons, exactSum_cons, List.length_cons, Nat.add_mul, Nat.one_mul]
    rcases List.mem_cons.1 hs with rfl | hs
    · have h1 := cut_of_dvd hd
      have h2 := cutSum_error q ts
      omega
    · have h1 := cut_error q t.value
      have h2 := ih ⟨s, hs, hd⟩
      omega

/-- The aligned sum is off by less than one unit of the cut for each term but the leading one. -/
theorem alignedSum_error_tight {m : Fdpa} (hF : m.acc.prec ≤ m.fraction + 1) {c : Int}
    (hc : Representable m.acc c) {ts : List FdpaTerm} (hts : m.Aligned ts) :
    (m.alignedSum c ts - (c + exactSum ts)).natAbs ≤ ts.length * (2 ^ m.cutExp c ts - 1) := by
  have h3 : m.alignedSum c ts = cut (m.cutExp c ts) c + cutSum (m.cutExp c ts) ts := rfl
  have hq : m.cutExp c ts = m.maxExp c ts - m.fraction := rfl
  rw [h3]
  rcases maxExp_attained m c ts with h | ⟨t, ht, h⟩
  · have h1 : cut (m.cutExp c ts) c = c := cut_of_dvd (by
      rw [hq, h]
      exact accExp_aligned hF hc)
    have h2 := cutSum_error (m.cutExp c ts) ts
    omega
  · have h1 := cut_error (m.cutExp c ts) c
    have h2 := cutSum_error_of_uncut (q := m.cutExp c ts) ⟨t, ht, by
      rw [hq, ← h]
      exact hts t ht⟩
    omega

/-- **The step bound with the leading term uncut**: `|d - (c + Σp)| < L·2^(e_max - F) + 2^(e_d - 23)`
for at least one term. -/
theorem step_error_lt_tight {m : Fdpa} (hp : 1 ≤ m.acc.prec) (hF : m.acc.prec ≤ m.fraction + 1)
    {c : Int} (hc : Representable m.acc c) {ts : List FdpaTerm} (hts : m.Aligned ts)
    (hlen : ts.length ≤ m.group) :
    (m.step c ts - (c + exactSum ts)).natAbs
      < m.group * 2 ^ (m.maxExp c ts - m.fraction) + m.acc.quantum (m.step c ts).natAbs := by
  have h1 := alignedSum_error_tight hF hc hts
  have h2 := roundZ_error m.acc (m.alignedSum c ts)
  have h3 : m.acc.quantum (m.step c ts).natAbs = m.acc.quantum (m.alignedSum c ts).natAbs :=
    quantum_roundZ hp _
  have h4 : m.step c ts = roundZ m.acc (m.alignedSum c ts) := rfl
  have h5 : ts.length * (2 ^ m.cutExp c ts - 1) ≤ m.group * 2 ^ m.cutExp c ts :=
    Nat.mul_le_mul hlen (Nat.sub_le _ _)
  have h6 := quantum_pos m.acc (m.alignedSum c ts).natAbs
  have h7 : m.cutExp c ts = m.maxExp c ts - m.fraction := rfl
  rw [h3, h4, ← h7]
  omega

/-- **One step with the leading term uncut is a node of relative error** `u = L·2^-F + 2^(1-prec)`. -/
theorem step_admits_tight {m : Fdpa} (hp : 1 ≤ m.acc.prec) (hF : m.acc.prec ≤ m.fraction + 1)
    {slack : Nat} {c : Int} (hrep : Representable m.acc c) {ts : List FdpaTerm}
    (hlen : ts.length ≤ m.group) (hc : 2 ^ m.accExp c ≤ c.natAbs + slack)
    (hts : Covered slack ts) (hal : m.Aligned ts) :
    (m.nodeError slack m.group).Admits 1 (c :: ts.map FdpaTerm.value) (m.step c ts) :=
  step_admits_of_cuts hp hF
    (Nat.le_trans (alignedSum_error_tight hF hrep hal) (Nat.mul_le_mul_right _ hlen)) hc hts

/-- **One step is an any-order node**: as many unit errors `u = 2^(1-prec)` as it has addends. -/
theorem step_admits_any_order {m : Fdpa} (hp : 1 ≤ m.acc.prec) (hF : m.acc.prec ≤ m.fraction + 1)
    {slack : Nat} {c : Int} (hrep : Representable m.acc c) {ts : List FdpaTerm}
    (hlen : ts.length ≤ m.group) (hc : 2 ^ m.accExp c ≤ c.natAbs + slack)
    (hts : Covered slack ts) (hal : m.Aligned ts) :
    (m.anyOrderError slack).Admits (ts.length + 1) (c :: ts.map FdpaTerm.value) (m.step c ts) := by
  have hA : absSum (c :: ts.map FdpaTerm.value) = c.natAbs + magnitude ts := rfl
  have hS : (c :: ts.map FdpaTerm.value).sum = c + exactSum ts := rfl
  have hmax : 2 ^ m.maxExp c ts ≤ c.natAbs + magnitude ts + slack :=
    two_pow_maxExp_le (by omega) fun t ht => by
      have h1 := hts t ht
      have h2 := natAbs_le_magnitude ht
      omega
  have hcut : 2 ^ (m.acc.prec - 1) * (m.alignedSum c ts - (c + exactSum ts)).natAbs
      ≤ ts.length * (c.natAbs + magnitude ts) + m.group * slack := by
    calc 2 ^ (m.acc.prec - 1) * (m.alignedSum c ts - (c + exactSum ts)).natAbs
        ≤ 2 ^ m.fraction * (ts.length * (2 ^ m.cutExp c ts - 1)) :=
          Nat.mul_le_mul (two_pow_le_two_pow (by omega)) (alignedSum_error_tight hF hrep hal)
      _ = ts.length * (2 ^ m.fraction * (2 ^ m.cutExp c ts - 1)) := Nat.mul_left_comm _ _ _
      _ ≤ ts.length * (c.natAbs + magnitude ts + slack) :=
          Nat.mul_le_mul_left _ (Nat.le_trans (fraction_mul_cut_le _ _) hmax)
      _ = ts.length * (c.natAbs + magnitude ts) + ts.length * slack := Nat.mul_add _ _ _
      _ ≤ ts.length * (c.natAbs + magnitude ts) + m.group * slack :=
          Nat.add_le_add_left (Nat.mul_le_mul_right _ hlen) _
  have hround : 2 ^ (m.acc.prec - 1) * (m.step c ts - m.alignedSum c ts).natAbs
      ≤ c.natAbs + magnitude ts + 2 ^ (m.acc.prec - 1) * 2 ^ m.acc.qmin :=
    Nat.le_trans (roundZ_relative_or_subnormal hp _)
      (Nat.add_le_add_right (natAbs_alignedSum_le m c ts) _)
  have hfloor : m.group * slack
      ≤ 2 ^ (m.acc.prec - 1) * (m.group * slack / 2 ^ (m.acc.prec - 1) + 1) :=
    Nat.le_of_lt (Nat.lt_mul_div_succ _ (Nat.two_pow_pos _))
  have htri : (m.step c ts - (c + exactSum ts)).natAbs
      ≤ (m.step c ts - m.alignedSum c ts).natAbs
        + (m.alignedSum c ts - (c + exactSum ts)).natAbs := by omega
  have htri' := Nat.mul_le_mul_left (2 ^ (m.acc.prec - 1)) htri
  rw [Nat.mul_add] at htri'
  have e1 : (ts.length + 1) * (c.natAbs + magnitude ts)
      = ts.length * (c.natAbs + magnitude ts) + (c.natAbs + magnitude ts) := by
    rw [Nat.add_mul, Nat.one_mul]
  have e2 := Nat.mul_add (2 ^ (m.acc.prec - 1)) (m.group * slack / 2 ^ (m.acc.prec - 1) + 1)
    (2 ^ m.acc.qmin)
  unfold NodeError.Admits anyOrderError
  simp only [hA, hS, Nat.mul_one]
  omega

theorem anyOrderTree_cons (m : Fdpa) (acc : SumTree) (b : List FdpaTerm)
    (bs : List (List FdpaTerm)) :
    m.anyOrderTree acc (b :: bs) = m.anyOrderTree (.node (b.length + 1) (m.step acc.value b)
      (acc :: (b.map FdpaTerm.value).map .leaf)) bs := rfl

theorem anyOrderTree_value (m : Fdpa) (bs : List (List FdpaTerm)) :
    ∀ acc : SumTree, (m.anyOrderTree acc bs).value = m.chain acc.value bs := by
  induction bs with
  | nil => exact fun _ => rfl
  | cons b bs ih =>
    intro acc
    rw [anyOrderTree_cons, ih, chain_cons]
    rfl

theorem anyOrderTree_leaves (m : Fdpa) (bs : List (List FdpaTerm)) :
    ∀ acc : SumTree,
      (m.anyOrderTree acc bs).leaves = acc.leaves ++ bs.flatten.map FdpaTerm.value := by
  induction bs with
  | nil => exact fun acc => (List.append_nil _).symm
  | cons b bs ih =>
    intro acc
    rw [anyOrderTree_cons, ih, SumTree.leaves, SumTree.leavesList, SumTree.leavesList_map_leaf,
      List.flatten_cons, List.map_append, List.append_assoc]

theorem anyOrderTree_depth (m : Fdpa) (bs : List (List FdpaTerm)) :
    ∀ acc : SumTree,
      (m.anyOrderTree acc bs).depth = acc.depth + bs.flatten.length + bs.length := by
  induction bs with
  | nil => exact fun acc => rfl
  | cons b bs ih =>
    intro acc
    rw [anyOrderTree_cons, ih, SumTree.depth, SumTree.depthList, SumTree.depthList_map_leaf,
      List.flatten_cons, List.length_append, List.length_cons, Nat.max_zero]
    omega

theorem anyOrderTree_nodeCount (m : Fdpa) (bs : List (List FdpaTerm)) :
    ∀ acc : SumTree, (m.anyOrderTree acc bs).nodeCount = acc.nodeCount + bs.length := by
  induction bs with
  | nil => exact fun acc => rfl
  | cons b bs ih =>
    intro acc
    rw [anyOrderTree_cons, ih, SumTree.nodeCount, SumTree.nodeCountList,
      SumTree.nodeCountList_map_leaf, List.length_cons]
    omega

theorem anyOrderTree_obeys {m : Fdpa} (hp : 1 ≤ m.acc.prec) (hF : m.acc.prec ≤ m.fraction + 1)
    {slack : Nat} (hacc : ∀ c : Int, 2 ^ m.accExp c ≤ c.natAbs + slack)
    (bs : List (List FdpaTerm)) :
    (∀ b ∈ bs, b.length ≤ m.group ∧ Covered slack b ∧ m.Aligned b) →
      ∀ {acc : SumTree}, Representable m.acc acc.value → acc.Obeys (m.anyOrderError slack) →
        (m.anyOrderTree acc bs).Obeys (m.anyOrderError slack) := by
  induction bs with
  | nil => exact fun _ _ _ h => h
  | cons b bs ih =>
    intro hbs acc hrep h
    have hb := hbs b (List.mem_cons_self ..)
    rw [anyOrderTree_cons]
    refine ih (fun d hd => hbs d (List.mem_cons_of_mem _ hd)) (step_representable hp _ _)
      ⟨?_, h, SumTree.obeysList_map_leaf _ _⟩
    rw [List.map_cons, SumTree.map_value_map_leaf]
    exact step_admits_any_order hp hF hrep hb.1 (hacc acc.value) hb.2.1 hb.2.2

/-! ## Blocks of a row -/

end Fdpa

theorem blocksUpTo_flatten {n : Nat} (hn : 0 < n) :
    ∀ (fuel : Nat) (xs : List α), xs.length ≤ fuel → (blocksUpTo n fuel xs).flatten = xs
  | 0, xs, h => by
    rw [List.eq_nil_of_length_eq_zero (Nat.le_zero.1 h)]
    rfl
  | _ + 1, [], _ => rfl
  | fuel + 1, x :: xs, h => by
    rw [blocksUpTo, List.flatten_cons, blocksUpTo_flatten hn fuel, List.take_append_drop]
    rw [List.length_drop]
    rw [List.length_cons] at h ⊢
    omega

/-- **Blocks lose nothing.** -/
theorem blocksOf_flatten {n : Nat} (hn : 0 < n) (xs : List α) : (blocksOf n xs).flatten = xs :=
  blocksUpTo_flatten hn _ _ (Nat.le_refl _)

theorem length_le_of_mem_blocksUpTo {n : Nat} :
    ∀ (fuel : Nat) (xs b : List α), b ∈ blocksUpTo n fuel xs → b.length ≤ n
  | 0, _, _, h => nomatch h
  | _ + 1, [], _, h => nomatch h
  | fuel + 1, x :: xs, b, h => by
    rw [blocksUpTo] at h
    rcases List.mem_cons.1 h with rfl | h
    · rw [List.length_take]
      exact Nat.min_le_left _ _
    · exact length_le_of_mem_blocksUpTo fuel _ _ h

/-- **No block is longer than `n`.** -/
theorem length_le_of_mem_blocksOf {n : Nat} {xs b : List α} (h : b ∈ blocksOf n xs) :
    b.length ≤ n := length_le_of_mem_blocksUpTo _ _ _ h

theorem mem_of_mem_blocksOf {n : Nat} (hn : 0 < n) {xs b : List α} (h : b ∈ blocksOf n xs)
    {x : α} (hx : x ∈ b) : x ∈ xs := by
  rw [← blocksOf_flatten hn xs]
  exact List.mem_flatten.2 ⟨b, h, hx⟩

/-- Enough fuel is enough. -/
theorem blocksUpTo_eq_blocksOf {n : Nat} (hn : 0 < n) :
    ∀ (fuel : Nat) (xs : List α), xs.length ≤ fuel → blocksUpTo n fuel xs = blocksOf n xs := by
  have key : ∀ (k : Nat) (f₁ f₂ : Nat) (xs : List α), xs.length ≤ k → xs.length ≤ f₁ →
      xs.length ≤ f₂ → blocksUpTo n f₁ xs = blocksUpTo n f₂ xs := by
    intro k
    induction k with
    | zero =>
      intro f₁ f₂ xs h _ _
      rw [List.eq_nil_of_length_eq_zero (Nat.le_zero.1 h)]
      cases f₁ <;> cases f₂ <;> rfl
    | succ k ih =>
      intro f₁ f₂ xs h h1 h2
      match xs, f₁, f₂ with
      | [], 0, 0 => rfl
      | [], 0, _ + 1 => rfl
      | [], _ + 1, 0 => rfl
      | [], _ + 1, _ + 1 => rfl
      | x :: xs, f₁ + 1, f₂ + 1 =>
        rw [blocksUpTo, blocksUpTo, ih f₁ f₂] <;> rw [List.length_drop, List.length_cons] <;>
          rw [List.length_cons] at h h1 h2 <;> omega
      | x :: xs, 0, _ => rw [List.length_cons] at h1; omega
      | x :: xs, _, 0 => rw [List.length_cons] at h2; omega
  exact fun fuel xs h => key _ _ _ xs (Nat.le_refl _) h (Nat.le_refl _)

/-- **A row has `⌈K/n⌉` blocks.** -/
theorem blocksOf_length {n : Nat} (hn : 0 < n) (xs : List α) :
    (blocksOf n xs).length = (xs.length + (n - 1)) / n := by
  have key : ∀ (k : Nat) (xs : List α), xs.length ≤ k →
      (blocksOf n xs).length = (xs.length + (n - 1)) / n := by
    intro k
    induction k with
    | zero =>
      intro xs h
      rw [List.eq_nil_of_length_eq_zero (Nat.le_zero.1 h), List.length_nil, Nat.zero_add,
        Nat.div_eq_of_lt (by omega)]
      rfl
    | succ k ih =>
      intro xs h
      match xs with
      | [] =>
        rw [List.length_nil, Nat.zero_add, Nat.div_eq_of_lt (by omega)]
        rfl
      | x :: xs =>
        rw [List.length_cons] at h
        have hdrop : ((x :: xs).drop n).length ≤ xs.length := by
          rw [List.length_drop, List.length_cons]
          omega
        have e : blocksOf n (x :: xs) = (x :: xs).take n :: blocksOf n ((x :: xs).drop n) := by
          rw [← blocksUpTo_eq_blocksOf hn xs.length _ hdrop]
          rfl
        rw [e, List.length_cons, ih _ (by omega), List.length_drop, List.length_cons]
        by_cases hle : xs.length + 1 ≤ n
        · have h1 : xs.length + 1 - n = 0 := by omega
          have h2 : xs.length + 1 + (n - 1) = xs.length + n := by omega
          rw [h1, Nat.zero_add, Nat.div_eq_of_lt (by omega), h2, Nat.add_div_right _ hn,
            Nat.div_eq_of_lt (by omega)]
        · have h2 : xs.length + 1 + (n - 1) = (xs.length + 1 - n + (n - 1)) + n := by omega
          rw [h2, Nat.add_div_right _ hn]
  exact key _ xs (Nat.le_refl _)

/-- **Blocks of a concatenation**, where the first part fills its blocks. -/
theorem blocksOf_append {n : Nat} (hn : 0 < n) :
    ∀ (k : Nat) (xs ys : List α), xs.length = k * n →
      blocksOf n (xs ++ ys) = blocksOf n xs ++ blocksOf n ys
  | 0, xs, ys, h => by
    rw [List.eq_nil_of_length_eq_zero (by omega : xs.length = 0)]
    rfl
  | k + 1, [], ys, h => by
    rw [List.length_nil, Nat.add_mul, Nat.one_mul] at h
    omega
  | k + 1, x :: xs, ys, h => by
    rw [Nat.add_mul, Nat.one_mul] at h
    have e : ∀ (z : α) (zs : List α),
        blocksOf n (z :: zs) = (z :: zs).take n :: blocksOf n ((z :: zs).drop n) := by
      intro z zs
      have hd : ((z :: zs).drop n).length ≤ zs.length := by
        rw [List.length_drop, List.length_cons]
        omega
      rw [← blocksUpTo_eq_blocksOf hn zs.length _ hd]
      rfl
    have hlen : n ≤ (x :: xs).length := by omega
    have ht : ((x :: xs) ++ ys).take n = (x :: xs).take n := List.take_append_of_le_length hlen
    have hdr : ((x :: xs) ++ ys).drop n = (x :: xs).drop n ++ ys := List.drop_append_of_le_length hlen
    have ih := blocksOf_append hn k ((x :: xs).drop n) ys (by rw [List.length_drop]; omega)
    rw [List.cons_append] at ht hdr ⊢
    rw [e, e, ht, hdr, ih, List.cons_append]

namespace Fdpa

/-- **A chain over whole blocks, continued, is the chain over all terms.** -/
theorem chainOf_append {m : Fdpa} (hg : 0 < m.group) (c : Int) {k : Nat} {ts : List FdpaTerm}
    (us : List FdpaTerm) (h : ts.length = k * m.group) :
    m.chainOf c (ts ++ us) = m.chainOf (m.chainOf c ts) us := by
  unfold chainOf
  rw [blocksOf_append hg k ts us h, chain_append]

/-- **The relative bound of a chain over `K` terms**, `s = ⌈K/L⌉` steps of unit `u`. -/
theorem chainOf_gamma_bound {m : Fdpa} (hg : 0 < m.group) (hp : 1 ≤ m.acc.prec) {e : NodeError}
    (hden : 0 < e.den) {ts : List FdpaTerm}
    (hstep : ∀ c : Int, Representable m.acc c → ∀ b : List FdpaTerm, b.length ≤ m.group →
      (∀ t ∈ b, t ∈ ts) → e.Admits 1 (c :: b.map FdpaTerm.value) (m.step c b))
    {c : Int} (hc : Representable m.acc c) {s : Nat}
    (hs : s = (ts.length + (m.group - 1)) / m.group) :
    e.den ^ s * (m.chainOf c ts - (c + exactSum ts)).natAbs
      ≤ ((e.den + e.num) ^ s - e.den ^ s) * (c.natAbs + magnitude ts)
        + (e.den + e.num) ^ s * (s * e.floor) := by
  have h := chain_gamma_bound_of_steps hp hden (bs := blocksOf m.group ts)
    (fun c hc b hb => hstep c hc b (length_le_of_mem_blocksOf hb)
      (fun t ht => mem_of_mem_blocksOf hg hb ht)) hc
  rw [blocksOf_length hg, ← hs, blocksOf_flatten hg] at h
  exact h

/-! ## Bits -/

end Fdpa

theorem decodeRow_forall {P : Operand → Prop} :
    ∀ {bits : List Nat}, (∀ x ∈ bits, ∃ a, decodeBf16 x = some a ∧ P a) →
      ∃ as, decodeRow bits = some as ∧ as.length = bits.length ∧ ∀ a ∈ as, P a
  | [], _ => ⟨[], rfl, rfl, fun _ h => nomatch h⟩
  | x :: bits, h => by
    obtain ⟨a, ha, hP⟩ := h x (List.mem_cons_self ..)
    obtain ⟨as, has, hl, hPs⟩ := decodeRow_forall fun y hy => h y (List.mem_cons_of_mem _ hy)
    refine ⟨a :: as, ?_, by rw [List.length_cons, List.length_cons, hl], fun b hb => ?_⟩
    · rw [decodeRow, ha, has]
      rfl
    · rcases List.mem_cons.1 hb with rfl | hb
      · exact hP
      · exact hPs b hb

namespace Fdpa

/-- The dot product of bits is the chain over the products of what they decode to. -/
theorem dotBits_eq {m : Fdpa} {a b : List Nat} {as bs : List Operand} (ha : decodeRow a = some as)
    (hb : decodeRow b = some bs) :
    m.dotBits a b = m.chain? 0 (blocksOf m.group (m.products as bs)) := by
  unfold dotBits
  rw [ha, hb]
  rfl

/-- A result on bits is the unbounded chain's. -/
theorem dot_of_dotBits_eq_some {m : Fdpa} {a b : List Nat} {as bs : List Operand}
    (ha : decodeRow a = some as) (hb : decodeRow b = some bs) {d : Int}
    (h : m.dotBits a b = some d) : d = m.dot as bs := by
  rw [dotBits_eq ha hb] at h
  exact chain_of_chain?_eq_some _ h

end Fdpa
end CertHead
