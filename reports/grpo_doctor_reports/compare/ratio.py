"""A large change of time as a ratio: a step that takes 59% less time is 2.4x as fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# From here on a percentage of the time is far from one of the speed: -33% is 1.5x as fast.
LARGE: Final = 1.5
_WHOLE_FROM: Final = 10.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """`2.4x` with its interval: of the speed where `is_faster`, else of the time."""

    is_faster: bool
    low: str
    mid: str
    high: str


def change_ratio(
    change_pct: float | None, low_pct: float | None, high_pct: float | None
) -> Ratio | None:
    """Return a change of time in percent as a ratio; None where it is small, or may be none."""
    if change_pct is None or low_pct is None or high_pct is None:
        return None
    if min(change_pct, low_pct, high_pct) <= -100:  # no time at all is left: no ratio says that
        return None
    is_faster = change_pct < 0
    mid, *ends = (
        1 / times if is_faster else times
        for times in (1 + pct / 100 for pct in (change_pct, low_pct, high_pct))
    )
    if mid < LARGE or min(ends) < 1:
        return None
    return Ratio(is_faster, _shown(min(ends)), _shown(mid), _shown(max(ends)))


def _shown(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= _WHOLE_FROM else f"{ratio:.1f}x"
