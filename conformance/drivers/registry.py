"""Drivers by name. Imports a back end only when it is asked for."""

from __future__ import annotations

import sys

from certhead.conformance.errors import BadInput

from .base import CaseByCase, Driver
from .external import TIMEOUT, ExternalDriver

NAMES = ("pyref", "torch", "interpret", "cuda", "lean")


def in_process(name: str) -> CaseByCase:
    """A driver that runs in this process."""
    if name == "pyref":
        from .pyref_driver import PyrefDriver

        return PyrefDriver()
    if name == "torch":
        from .torch_driver import TorchDriver

        return TorchDriver()
    if name in ("interpret", "cuda"):
        from .triton_driver import TritonDriver

        return TritonDriver()
    raise BadInput(f"driver {name!r} is not one of {', '.join(NAMES)}")


def make(name: str, timeout: float = TIMEOUT) -> Driver:
    """A driver by name; anything that starts with `external:` is a command to run. Raises BadInput."""
    if name.startswith("external:"):
        return ExternalDriver(name.removeprefix("external:"), timeout=timeout)
    if name == "lean":
        from .lean_driver import LeanDriver

        return LeanDriver()
    if name in ("interpret", "cuda"):
        command = [sys.executable, "-m", "certhead.conformance.drivers.serve", name]
        environment = {"TRITON_INTERPRET": "1" if name == "interpret" else "0"}
        if name == "interpret":  # infinities and NaNs are among the cases; NumPy would warn of each
            environment["PYTHONWARNINGS"] = "ignore::RuntimeWarning"
        return ExternalDriver(command, name=name, timeout=timeout, environment=environment)
    return in_process(name)


def available() -> list[str]:
    """The drivers that run here: `cuda` with a device, `lean` where its reference builds."""
    import torch

    names = ["pyref", "torch", "interpret"]
    return [*names, "cuda"] if torch.cuda.is_available() else names
