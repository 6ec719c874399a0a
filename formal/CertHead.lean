import CertHead.Basic
import CertHead.Decision.Bf16
import CertHead.Decision.Certify
import CertHead.Decision.Code
import CertHead.Decision.EndToEnd
import CertHead.Decision.FirstMax
import CertHead.Decision.Head
import CertHead.Decision.Interval
import CertHead.Decision.Reduce
import CertHead.Decision.Rescore
import CertHead.Decision.RescoreProperties
import CertHead.Decision.Rounding
import CertHead.Decision.Select
import CertHead.Enclosure.Int32
import CertHead.Enclosure.Int32Properties
import CertHead.Enclosure.Limbs
import CertHead.Enclosure.LimbsProperties
import CertHead.Enclosure.Norms
import CertHead.Enclosure.NormsProperties
import CertHead.Enclosure.Quantize
import CertHead.Enclosure.QuantizeProperties
import CertHead.Enclosure.Refutations
import CertHead.Enclosure.Screen
import CertHead.Enclosure.ScreenProperties
import CertHead.Enclosure.ScreenRange
import CertHead.Float.Bf16Codes
import CertHead.Float.Codec
import CertHead.Float.CodecProperties
import CertHead.Float.Format
import CertHead.Float.Instances
import CertHead.Float.OverflowProperties
import CertHead.Float.Round
import CertHead.Float.RoundProperties
import CertHead.Float.ScaleProperties
import CertHead.Ref.Main
import CertHead.Sampling.Code
import CertHead.Sampling.Properties
import CertHead.State.Code
import CertHead.State.Properties
import CertHead.Sum.Fdpa
import CertHead.Sum.FdpaBits
import CertHead.Sum.FdpaProperties
import CertHead.Sum.Models
import CertHead.Sum.Tree
import CertHead.Sum.TreeProperties

/-!
# certhead: the theorems

Where to start reading, from the end backwards:

* `Decision/EndToEnd`: `certified_token_is_the_stock_token` (nothing assumed about the arithmetic) and
  `token_is_right_for_every_kernel_in_the_model` (any stock kernel inside the error model).
* `Decision/RescoreProperties`: the enclosed rescore encloses, and the end-to-end theorem of enclosed mode.
* `Decision/Head`: the stock head and the certified head as programs on BF16 bits.
* `Decision/Certify`: `certify_is_sound`, from enclosures to the token.
* `Enclosure/ScreenProperties`: the screen encloses the stock accumulator.
* `Sum/Models`, `Sum/FdpaProperties`, `Sum/TreeProperties`: the fused adder and the `γ` of every summation tree.
* `Float/RoundProperties`: rounding on integers at a common scale.

Values are integers at a common scale throughout. Files without `Properties` in their name that define programs
hold no theorems. `Ref/Main` runs those programs; `formal/variants` holds statements that must not check.
-/
