"""How findings and the verdict write numbers."""

from __future__ import annotations

# How a reader sees what Python does, of a run whose processes may be gone by then.
STACKS = "`grpo-doctor attach` shows every rank's stack while the job runs"
PROFILE = "run `py-spy record --subprocesses -d 30 -o profile.svg --pid PID`"


def percent(share: float, digits: int = 0) -> str:
    """A share as `12%`."""
    return f"{100 * share:.{digits}f}%"
