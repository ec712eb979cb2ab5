"""How large errors of predictions would have to be for nine in ten intervals to hold.

`python -m tests.frameworks.advice.errors FILE...`, where each FILE is what `--json` of
`tests.frameworks.advice` or `tests.accuracy` has kept. The error of two runs of the same settings
(`whatif.prediction.RUN_ERROR`) is chosen on the pairs of odd seeds, and judged on the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, isnan, sqrt
from pathlib import Path
from typing import Any

from grpo_doctor.whatif.prediction import RUN_ERROR

GOAL = 0.9
_TRIED_PCT = [step / 2 for step in range(101)]


@dataclass(frozen=True)
class Miss:
    """A pair in percent of the step: how far the prediction was off, and the interval's half on
    that side. An end at no change is where it was cut off, so its own half is not known."""

    seed: int
    off: float
    half: float

    def holds(self, run_error_pct: float) -> bool:
        """Whether the interval would, with another error of two runs."""
        other_variance = max(0.0, self.half**2 - (100 * RUN_ERROR) ** 2)
        return self.off <= hypot(sqrt(other_variance), run_error_pct)


def misses(pairs: Sequence[dict[str, Any]]) -> list[Miss]:
    """Of the pairs that have a prediction and a change."""
    return [
        _miss(pair, advice)
        for pair in pairs
        for advice in [pair.get("advice", pair)]
        if advice and not pair.get("problem") and pair["after_s"] and not isnan(advice["mid"])
    ]


def _miss(pair: dict[str, Any], advice: dict[str, float]) -> Miss:
    off = 100 * (pair["after_s"] / pair["before_s"] - 1) - advice["mid"]
    half = advice["high"] - advice["mid"] if off > 0 else advice["mid"] - advice["low"]
    return Miss(pair["seed"], abs(off), half)


def share(pairs: Sequence[Miss], run_error_pct: float) -> float:
    """How many of the intervals hold, 0 to 1."""
    return sum(pair.holds(run_error_pct) for pair in pairs) / max(1, len(pairs))


def least_error(pairs: Sequence[Miss]) -> float | None:
    """The smallest error of two runs, in percent, with which nine in ten hold; None above 50%."""
    return next((error_pct for error_pct in _TRIED_PCT if share(pairs, error_pct) >= GOAL), None)


def summary_of(pairs: Sequence[Miss]) -> str:
    """The answer in words."""
    odd, even = ([pair for pair in pairs if pair.seed % 2 == parity] for parity in (1, 0))
    now = f"with {100 * RUN_ERROR:.0f}% {100 * share(pairs, 100 * RUN_ERROR):.0f}% hold"
    least_pct = least_error(odd)
    if not odd or not even or least_pct is None:
        return f"{len(pairs)} pairs: {now}; no error can be chosen and judged on these"
    return (
        f"{len(pairs)} pairs: {now}; {len(odd)} of odd seeds ask for {least_pct:.1f}%, with which "
        f"{100 * share(even, least_pct):.0f}% of the other {len(even)} hold"
    )


def main(files: Sequence[str]) -> int:
    """0."""
    pairs = [pair for file in files for pair in json.loads(Path(file).read_text())]
    sys.stdout.write(summary_of(misses(pairs)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
