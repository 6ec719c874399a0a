"""Settings that every test shares."""

import os

import torch
from hypothesis import settings

# A busy machine is no reason to fail: examples carry no time limit.
settings.register_profile("certhead", deadline=None)
settings.load_profile("certhead")

# Triton reads this when it is first imported: without a GPU its kernels run under the interpreter.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# The workers of a parallel run share the cores.
torch.set_num_threads(1)
