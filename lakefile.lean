import Lake
open Lake DSL

package certhead where
  srcDir := "formal"

@[default_target]
lean_lib CertHead

@[default_target]
lean_exe «certhead-ref» where
  root := `CertHead.Ref.Main
