"""Settings as numbers, and whether a host has room for more processes."""

from __future__ import annotations

import math
from typing import Any

from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif import Withheld

# Above it more processes would take the CPU from each other and from the ranks.
MAX_HOST_CPU_PCT = 85.0


def busy_host(view: RunView) -> Withheld | None:
    """Return why more processes have no prediction: the host is busy with an unknown load."""
    cpu = view.highest_mean("host.cpu")
    if cpu is None or cpu <= MAX_HOST_CPU_PCT or view.series("rank.cpu"):
        return None
    return Withheld(f"the host's CPUs are {cpu:.0f}% busy without them")


def number(value: Any) -> float | None:
    """Return a setting that must be a number; None where it is something else, such as `auto`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def integer(value: Any) -> int | None:
    """Return a setting that must be a whole number; None where it is something else."""
    value = number(value)
    return value if isinstance(value, int) else None
