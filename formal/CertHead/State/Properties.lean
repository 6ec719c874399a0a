import CertHead.State.Code

/-!
# Replay is deterministic, and stale work cannot be published
-/

namespace CertHead

/-! ## Replay -/

/-- **Replay over concatenation.** Replaying two logs one after the other is replaying their concatenation, so
a verifier may start from any checkpoint. -/
theorem replay_of_concatenation {State Event : Type} (step : State → Event → State) (start : State)
    (first second : List Event) :
    replay step start (first ++ second) = replay step (replay step start first) second := by
  unfold replay
  rw [List.foldl_append]

/-- **Replays that agree at a checkpoint agree ever after on the same log**. -/
theorem replays_that_agree_stay_agreed {State Event : Type} {step : State → Event → State} {a b : State}
    {first₁ first₂ : List Event} (agree : replay step a first₁ = replay step b first₂) (rest : List Event) :
    replay step a (first₁ ++ rest) = replay step b (first₂ ++ rest) := by
  rw [replay_of_concatenation, replay_of_concatenation, agree]

/-- Two step functions that agree on the events of a log replay it alike. -/
theorem replay_depends_on_steps_only {State Event : Type} {f g : State → Event → State}
    (agree : ∀ s e, f s e = g s e) (start : State) (log : List Event) : replay f start log = replay g start log := by
  have : f = g := funext fun s => funext fun e => agree s e
  rw [this]

/-- **Generation continues**: `m + n` tokens are `m` tokens and then `n` more. -/
theorem generation_continues (next : List Nat → Nat) (m n : Nat) (text : List Nat) :
    generate next (m + n) text = generate next n (generate next m text) := by
  induction m generalizing text with
  | zero => rw [Nat.zero_add]; rfl
  | succ m ih =>
    rw [Nat.succ_add]
    show generate next (m + n) (text ++ [next text]) = generate next n (generate next m (text ++ [next text]))
    exact ih _

/-- **The certified engine writes the stock engine's text.** If every vouched token is the stock head's, then
with fallback elsewhere the whole generation is identical, however often the certificate fails. -/
theorem certified_generation_is_stock_generation {certified : List Nat → Option Nat} {stock : List Nat → Nat}
    (sound : ∀ text k, certified text = some k → k = stock text) (n : Nat) (text : List Nat) :
    generate (withFallback certified stock) n text = generate stock n text := by
  have same : withFallback certified stock = stock := by
    funext text
    unfold withFallback
    cases h : certified text with
    | none => rfl
    | some k => exact sound text k h
  rw [same]

/-! ## Publication -/

/-- What the guard lets through was computed for this epoch and these tokens. -/
theorem fresh_means_same_epoch_and_prefix {s : Stream} {p : Proposal} :
    fresh s p = true ↔ p.epoch = s.epoch ∧ p.given = s.tokens := by
  unfold fresh
  rw [Bool.and_eq_true, decide_eq_true_iff, decide_eq_true_iff]

/-- **A stale epoch cannot publish.** -/
theorem stale_epoch_cannot_publish {s : Stream} {p : Proposal} (stale : p.epoch ≠ s.epoch) :
    s.step (.propose p) = s := by
  show (if fresh s p = true then _ else s) = s
  rw [if_neg]
  intro h
  exact stale (fresh_means_same_epoch_and_prefix.1 h).1

/-- **A stale prefix cannot publish.** -/
theorem stale_prefix_cannot_publish {s : Stream} {p : Proposal} (stale : p.given ≠ s.tokens) :
    s.step (.propose p) = s := by
  show (if fresh s p = true then _ else s) = s
  rw [if_neg]
  intro h
  exact stale (fresh_means_same_epoch_and_prefix.1 h).2

/-- A proposal that the stream has outgrown: its epoch is over, or the epoch's text is longer by now. -/
def Outgrown (s : Stream) (p : Proposal) : Prop :=
  p.epoch < s.epoch ∨ (p.epoch = s.epoch ∧ p.given.length < s.tokens.length)

/-- An outgrown proposal stays outgrown, whatever happens: rolling back to its prefix opens another epoch. -/
theorem outgrown_is_forever {s : Stream} {p : Proposal} (old : Outgrown s p) (events : List StreamEvent) :
    Outgrown (replay Stream.step s events) p := by
  induction events generalizing s with
  | nil => exact old
  | cons e rest ih =>
    refine ih (s := s.step e) ?_
    unfold Outgrown at old ⊢
    cases e with
    | propose other =>
      by_cases h : fresh s other = true
      · have now : s.step (.propose other) = ⟨s.epoch, s.tokens ++ [other.token]⟩ := if_pos h
        rw [now]
        show p.epoch < s.epoch ∨ p.epoch = s.epoch ∧ p.given.length < (s.tokens ++ [other.token]).length
        rw [List.length_append]
        omega
      · have now : s.step (.propose other) = s := if_neg h
        rw [now]
        exact old
    | rollback keep =>
      show p.epoch < s.epoch + 1 ∨ p.epoch = s.epoch + 1 ∧ p.given.length < (s.tokens.take keep).length
      omega

/-- **An outgrown proposal is never published**, in any later state. -/
theorem outgrown_cannot_publish {s : Stream} {p : Proposal} (old : Outgrown s p) (events : List StreamEvent) :
    (replay Stream.step s events).step (.propose p) = replay Stream.step s events := by
  rcases outgrown_is_forever old events with h | h
  · exact stale_epoch_cannot_publish (by omega)
  · refine stale_prefix_cannot_publish ?_
    intro e
    rw [e] at h
    omega

/-- **Publish once.** After a proposal is published, no proposal for the same epoch and prefix (not even itself
again) can be published, in any later state. -/
theorem one_token_per_epoch_and_prefix {s : Stream} {p q : Proposal} (published : fresh s p = true)
    (same_epoch : q.epoch = p.epoch) (same_prefix : q.given = p.given) (events : List StreamEvent) :
    (replay Stream.step (s.step (.propose p)) events).step (.propose q) =
      replay Stream.step (s.step (.propose p)) events := by
  refine outgrown_cannot_publish ?_ events
  have now : s.step (.propose p) = ⟨s.epoch, s.tokens ++ [p.token]⟩ := by
    show (if fresh s p = true then _ else s) = _
    rw [if_pos published]
  have was := fresh_means_same_epoch_and_prefix.1 published
  rw [now]
  refine Or.inr ⟨by rw [same_epoch]; exact was.1, ?_⟩
  rw [same_prefix, was.2, List.length_append]
  show s.tokens.length < s.tokens.length + 1
  omega

/-- **What is published was computed from what precedes it**: a stream whose proposals all come from `next` on
their own prefix extends its text by `next` of it. -/
theorem published_tokens_follow_from_their_prefix {s : Stream} {p : Proposal} {next : List Nat → Nat}
    (honest : p.token = next p.given) (published : fresh s p = true) :
    (s.step (.propose p)).tokens = generate next 1 s.tokens := by
  have was := (fresh_means_same_epoch_and_prefix.1 published).2
  show (if fresh s p = true then (⟨s.epoch, s.tokens ++ [p.token]⟩ : Stream) else s).tokens = s.tokens ++ [next s.tokens]
  rw [if_pos published, honest, was]

end CertHead
