"""What rows of `nvidia-smi` show: who computes, who spins, who does nothing."""

from __future__ import annotations

import re

_ROW = re.compile(r"(\d+)W +/ +(\d+)W \| +\d+MiB +/ +\d+MiB \| +(\d+)%")
_BUSY, _IDLE = 90, 5  # percent of utilization
_SPINS_BELOW = 0.4  # of the power limit: a kernel that waits for its peers draws little


def shown(text: str) -> list[str]:
    """Return the state of the GPUs in a text, which is one moment alone."""
    rows = [tuple(map(int, row.groups())) for row in _ROW.finditer(text)] if "MiB /" in text else []
    if not rows:
        return []
    low, high = (end(percent for *_, percent in rows) for end in (min, max))
    span = f"{low}%" if low == high else f"{low} to {high}%"
    facts = [f"{len(rows)} {'GPUs' if rows[1:] else 'GPU'} at {span} utilization"]
    spins = [row for row in rows if row[2] >= _BUSY and row[0] < _SPINS_BELOW * row[1]]
    if spins:
        facts.append(
            f"{len(spins)} of them draw{'s' * (len(spins) == 1)} at most {max(spins)[0]} of "
            f"{spins[0][1]} W: a kernel that waits for other ranks, as NCCL's, looks like that"
        )
    idle = sum(percent <= _IDLE for *_, percent in rows)
    if idle and high >= _BUSY:
        facts.append(f"{idle} {'GPUs do' if idle > 1 else 'GPU does'} nothing, others are busy")
    return facts
