"""Drivers by name. Imports a back end only when it is asked for."""

from __future__ import annotations

import sys

from certhead.conformance.errors import BadInput

from .base import CaseByCase, Driver
from .external import TIMEOUT, ExternalDriver

NAMES = ("pyref", "torch", "interpret", "cuda", "lean")
START_TIMEOUT = 900.0  # seconds until a built-in driver is ready; the Lean reference may have to be compiled


def in_process(name: str) -> CaseByCase:
    """A driver that runs in this process."""
    if name == "pyref":
        from .pyref_driver import PyrefDriver

        return PyrefDriver()
    if name == "torch":
        from .torch_driver import TorchDriver

        return TorchDriver()
    if name in ("interpret", "cuda"):
        if name == "interpret":
            from .interpreter import patch_once

            patch_once()
        from .triton_driver import TritonDriver

        return TritonDriver()
    if name == "lean":
        from .lean_driver import LeanDriver

        return LeanDriver()
    raise BadInput(f"driver {name!r} is not one of {', '.join(NAMES)}")


def make(name: str, timeout: float = TIMEOUT) -> Driver:
    """A driver by name; anything that starts with `external:` is a command to run. Raises BadInput."""
    if name.startswith("external:"):
        return ExternalDriver(name.removeprefix("external:"), timeout=timeout)
    if name not in NAMES:
        raise BadInput(f"driver {name!r} is not one of {', '.join(NAMES)}, external:COMMAND")
    # one thread a program: torch's threads wait by spinning, and several programs run at a time
    environment = {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "0" if name == "cuda" else "1"}
    if name == "interpret":  # infinities and NaNs are among the cases; NumPy would warn of each
        environment["PYTHONWARNINGS"] = "ignore::RuntimeWarning"
    command = [sys.executable, "-m", "certhead.conformance.drivers.serve", name]
    return ExternalDriver(
        command, name=name, timeout=timeout, start_timeout=START_TIMEOUT, environment=environment
    )


def available() -> list[str]:
    """The drivers that run everywhere, and `cuda` with a device."""
    import torch

    names = ["pyref", "torch", "interpret"]
    return [*names, "cuda"] if torch.cuda.is_available() else names
