import CertHead.State.Properties
/-! Prefixes without epochs: after a rollback an old proposal fits again. -/
namespace CertHead

example : ¬ ([] : List Nat).length < ((⟨0, [7]⟩ : Stream).step (.rollback 0)).tokens.length := by decide

theorem outgrown_without_epochs {s : Stream} {given : List Nat} (old : given.length < s.tokens.length)
    (e : StreamEvent) : given.length < (s.step e).tokens.length := by
  cases e with
  | propose other =>
    by_cases h : fresh s other = true
    · have now : s.step (.propose other) = ⟨s.epoch, s.tokens ++ [other.token]⟩ := if_pos h
      rw [now]
      show given.length < (s.tokens ++ [other.token]).length
      rw [List.length_append]
      omega
    · have now : s.step (.propose other) = s := if_neg h
      rw [now]
      exact old
  | rollback keep =>
    show given.length < (s.tokens.take keep).length
    rw [List.length_take]
    omega -- rejected: omega could not prove the goal

end CertHead
