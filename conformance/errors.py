"""What a user can put right: commands print these as one line and exit with code 2."""

from __future__ import annotations


class BadInput(ValueError):
    """An option, a file or an environment that a command cannot work with; the message names it."""
