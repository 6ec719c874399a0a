import CertHead.Decision.Bf16
