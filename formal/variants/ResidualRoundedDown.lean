import CertHead.Enclosure.NormsProperties
/-! A residual norm rounded down does not bound the residual: √2 becomes 1. -/
namespace CertHead.Enclosure

example : ¬ 2 ≤ floorSqrt 2 * floorSqrt 2 := by decide

theorem residual_rounded_down (n : Nat) : n ≤ floorSqrt n * floorSqrt n := by
  have h := floorSqrt_spec n
  omega -- rejected: omega could not prove the goal

end CertHead.Enclosure
