import CertHead.Decision.Code

/-!
# Sampled tokens, as programs

Seeded sampling is deterministic once the noise is fixed, so it can be certified like greedy decoding: races
(largest score plus noise), acceptance tests of speculative decoding, and draws from a residual distribution.
Probabilities are integers at a common scale; a uniform number is `u / steps` with `0 ≤ u < steps`.
Source of the acceptance rule: speculative sampling (accept a draft token with probability `min(1, p/q)`,
else draw from `max(p − q, 0)`).
-/

namespace CertHead

/-- A verdict on a draft token. -/
inductive Verdict where
  | accept
  | reject
  | undecided
  deriving DecidableEq, Repr

/-- The test that exact arithmetic makes: accept when `u / steps < p / q`. -/
def accepts (u steps p q : Int) : Prop := u * q < p * steps

/-- The guards: accept if the test holds for every target and draft probability inside the enclosures,
reject if it fails for every one. -/
def guardVerdict (u steps : Int) (p q : Interval) : Verdict :=
  if u * q.hi < p.lo * steps then .accept
  else if p.hi * steps ≤ u * q.lo then .reject
  else .undecided

/-- What remains of the target after the draft: `max(p − q, 0)`. -/
def residual (p q : Int) : Int := max (p - q) 0

/-- An enclosure of the residual. -/
def residualInterval (p q : Interval) : Interval := ⟨max (p.lo - q.hi) 0, max (p.hi - q.lo) 0⟩

/-- Sum of the weights of rows `0, …, n − 1`. -/
def cumulative (weight : Nat → Int) : Nat → Int
  | 0 => 0
  | n + 1 => cumulative weight n + weight n

/-- The row drawn by inverting the distribution function: the uniform number falls into row `k`'s share. -/
def Drawn (weight : Nat → Int) (n : Nat) (u steps : Int) (k : Nat) : Prop :=
  k < n ∧ cumulative weight k * steps ≤ u * cumulative weight n ∧
    u * cumulative weight n < cumulative weight (k + 1) * steps

/-- The draw is certified when the number falls into row `k`'s share for every choice inside the enclosures. -/
def drawCertified (weight : Nat → Interval) (n : Nat) (u steps : Int) (k : Nat) : Bool :=
  decide (k < n) &&
    decide (cumulative (fun i => (weight i).hi) k * steps ≤ u * cumulative (fun i => (weight i).lo) n) &&
    decide (u * cumulative (fun i => (weight i).hi) n < cumulative (fun i => (weight i).lo) (k + 1) * steps)

end CertHead
