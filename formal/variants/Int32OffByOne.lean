import CertHead.Enclosure.Int32Properties
/-! The int32 range with its upper end included: `2^31` wraps to `−2^31`. -/
namespace CertHead.Enclosure

example : wrap32 (2 ^ 31) = -(2 ^ 31) := by decide

theorem int32_off_by_one {n : Int} (low : -(2 ^ 31) ≤ n) (high : n ≤ 2 ^ 31) : wrap32 n = n := by
  unfold wrap32
  omega -- rejected: omega could not prove the goal

end CertHead.Enclosure
