"""What every chart hands to the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.thinning import Line


@dataclass(frozen=True, slots=True)
class Chart:
    """`data` goes to the script (JSON), `summary` and `note` to the reader.

    The summary says in one line what the chart shows, for those who cannot see it; the note says
    what was left out of the drawing, empty where nothing was.
    """

    data: dict[str, Any]
    summary: str
    note: str = ""


def rounded(value: float) -> float:
    """Return a number with the six digits that no chart shows more of."""
    return float(f"{value:.6g}")


def line_values(line: Line, pool: NumberPool) -> dict[str, int]:
    """Return where in the pool a line's values are, with its bounds where points were merged."""
    bounds = {"low": pool.add(line.lows), "high": pool.add(line.highs)} if line.is_merged else {}
    return {"v": pool.add(line.values), **bounds}
