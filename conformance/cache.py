"""Where certhead keeps what it need not do twice."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """`$CERTHEAD_CACHE`, else `~/.cache/certhead`."""
    return Path(os.environ.get("CERTHEAD_CACHE") or Path.home() / ".cache" / "certhead")
