/-!
# Replay and publication, as programs

A worker's state is what its log makes of it. Tokens are published into a shared stream only by a proposal that
names the epoch and the prefix that it was computed for; a rollback opens a new epoch.
-/

namespace CertHead

/-- The state after a log of events. -/
def replay {State Event : Type} (step : State → Event → State) (start : State) (log : List Event) : State :=
  log.foldl step start

/-- `n` tokens, each chosen from everything before it. -/
def generate (next : List Nat → Nat) : Nat → List Nat → List Nat
  | 0, text => text
  | n + 1, text => generate next n (text ++ [next text])

/-- The certified head in the loop: its token where it vouches for one, the stock head's elsewhere. -/
def withFallback (certified : List Nat → Option Nat) (stock : List Nat → Nat) (text : List Nat) : Nat :=
  (certified text).getD (stock text)

/-- A published stream. -/
structure Stream where
  epoch : Nat
  tokens : List Nat
  deriving DecidableEq, Repr

/-- A token, and the epoch and prefix that it was computed for. -/
structure Proposal where
  epoch : Nat
  given : List Nat
  token : Nat
  deriving DecidableEq, Repr

/-- The guard: the proposal was computed for exactly this epoch and these tokens. -/
def fresh (s : Stream) (p : Proposal) : Bool := decide (p.epoch = s.epoch) && decide (p.given = s.tokens)

/-- What can happen to a stream. -/
inductive StreamEvent where
  | propose (p : Proposal)
  /-- Drop all but the first `keep` tokens; this opens a new epoch. -/
  | rollback (keep : Nat)

/-- One event. A proposal that is not fresh changes nothing. -/
def Stream.step (s : Stream) : StreamEvent → Stream
  | .propose p => if fresh s p then ⟨s.epoch, s.tokens ++ [p.token]⟩ else s
  | .rollback keep => ⟨s.epoch + 1, s.tokens.take keep⟩

end CertHead
