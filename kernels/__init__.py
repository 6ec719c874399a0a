"""The certified head, fast: `CertifiedHead` and what its decisions mean."""

from .decision import Decision, Reason, State
from .head import CertifiedHead

__all__ = ["CertifiedHead", "Decision", "Reason", "State"]
