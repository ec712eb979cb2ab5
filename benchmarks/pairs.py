"""Runs in pairs: two plain ones for the noise, and a plain one beside what is measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

Run = TypeVar("Run")
Side = TypeVar("Side")
# Student's t at 97.5%, by the number of pairs less one.
_T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14)


def in_turn(pair: int, sides: Iterable[Side]) -> list[Side]:
    """The sides of a pair, by its index, in the order to run: drift shall favour neither."""
    order = list(sides)
    return order[::-1] if pair % 2 else order


def paired(
    pairs: int, parent: Path, run: Callable[[Path, bool], Run]
) -> Iterator[tuple[int, str, Run, Run]]:
    """The pair's number, its kind (`off_off` or `on_off`), and what its two runs gave.

    Args:
        pairs: how many of each kind.
        parent: where each run gets a folder of its own.
        run: one run, with what is measured switched on or not.

    Yields:
        The second of the results is the plain run's. Which of the two goes first alternates.
    """
    for pair in range(pairs):
        for kind, switched_on in (("off_off", False), ("on_off", True)):
            results = {}
            for side, on in in_turn(pair, (("plain", False), ("measured", switched_on))):
                folder = parent / f"{kind}-{pair}-{side}"
                folder.mkdir()
                results[side] = run(folder, on)
            yield pair + 1, kind, results["measured"], results["plain"]


def mean_ratio(ratios: Sequence[float]) -> str:
    """The geometric mean of the pairs' ratios, with its 95% interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if not 1 < len(logs) <= len(_T_975) + 1:
        return f"mean {math.exp(mean):.2f}"
    half = _T_975[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half)
    return f"mean {math.exp(mean):.2f} (95%: {low:.2f} to {high:.2f})"
