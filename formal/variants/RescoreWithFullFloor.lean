import CertHead.Decision.RescoreProperties
/-! The enclosed rescore for accumulators that use the screen's whole floor of `2^-90`: refuted by
`full_floor_is_not_enclosed`. -/
namespace CertHead
open Enclosure

theorem rescore_with_full_floor {gammaNum : Nat} {w h : List Nat} {y : Int} (columns : h.length ≤ 2 ^ 16)
    (gamma_le_one : gammaNum ≤ 2 ^ 40) (within : WithinGamma gammaNum (floorTerm headScale) (integersOf w) (integersOf h) y) :
    (rescoreEnclosed gammaNum w h).Contains y := by
  refine enclosed_rescore_encloses columns gamma_le_one ?_
  have floor : floorTerm headScale = 2 ^ 208 := by decide
  unfold WithinGamma at within ⊢
  omega -- rejected: omega could not prove the goal

end CertHead
