"""The bench's arithmetic, and its section of benchmarks/results/accuracy.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from statistics import median

from tests.accuracy.bench import Pair

SECTION = "predictions"
MOST_ERROR, LEAST_COVERAGE, MOST_REPLAY = 10.0, 0.80, 3.0
# What is less than that was not made faster or slower by any measure of this bench.
NO_CHANGE = 1.0


@dataclass(frozen=True)
class Row:
    """A fix over its pairs: medians, in percent of the step time before; `relative` is of the step
    time after.

    `inside` counts pairs whose interval has the median change of all pairs, `inside_own` those
    whose interval has what this very pair measured.
    """

    name: str
    pairs: int
    before_s: float
    low: float
    mid: float
    high: float
    measured: float
    error: float
    relative: float
    sign_right: bool
    inside: int
    inside_own: int
    reason: str


def rows(pairs: Sequence[Pair]) -> list[Row]:
    """One row per fix, in the order in which they ran."""
    return [
        _row([p for p in pairs if p.fix == name]) for name in dict.fromkeys(p.fix for p in pairs)
    ]


def _row(pairs: Sequence[Pair]) -> Row:
    predictions = [p for p in pairs if not isnan(p.mid)]
    measured = median(p.measured for p in pairs)
    nan = float("nan")
    low, mid, high = (
        median(getattr(p, end) for p in predictions) if predictions else nan
        for end in ("low", "mid", "high")
    )
    error = median(abs(p.mid - measured) for p in predictions) if predictions else nan
    return Row(
        name=pairs[0].fix,
        pairs=len(pairs),
        before_s=median(p.before_s for p in pairs),
        low=low, mid=mid, high=high,
        measured=measured,
        error=error,
        relative=100 * error / (100 + measured),
        sign_right=bool(predictions) and _sign(mid) * _sign(measured) >= 0 and (
            _sign(mid) == _sign(measured) or abs(mid - measured) < 2 * NO_CHANGE
        ),
        inside=sum(p.low <= measured <= p.high for p in predictions),
        inside_own=sum(p.low <= p.measured <= p.high for p in predictions),
        reason=next((p.reason for p in pairs if p.reason), ""),
    )  # fmt: skip


def _sign(change: float) -> int:
    return 0 if abs(change) < NO_CHANGE else 1 if change > 0 else -1


def totals(pairs: Sequence[Pair]) -> dict[str, float]:
    """The numbers that have goals."""
    fix_rows = rows(pairs)
    predicted_rows = [row for row in fix_rows if not isnan(row.mid)]
    predicted = sum(not isnan(p.mid) for p in pairs)
    return {
        "fixes": float(len(fix_rows)),
        "predicted": float(len(predicted_rows)),
        "error": median(row.relative for row in predicted_rows) if predicted_rows else float("nan"),
        "points": median(row.error for row in predicted_rows) if predicted_rows else float("nan"),
        "sign": sum(row.sign_right for row in predicted_rows) / max(1, len(predicted_rows)),
        "inside": sum(row.inside for row in predicted_rows) / max(1, predicted),
        "inside_own": sum(row.inside_own for row in predicted_rows) / max(1, predicted),
        "replay": 100 * max(p.replay_off for p in pairs),
        "replay_median": 100 * median(p.replay_off for p in pairs),
    }


def missed(pairs: Sequence[Pair]) -> list[str]:
    """Goals that were missed, in words."""
    scores = totals(pairs)
    goals = (
        (scores["error"] <= MOST_ERROR, f"median error {scores['error']:.1f}%"),
        (scores["sign"] >= 1, f"sign right in {100 * scores['sign']:.0f}%"),
        (scores["inside"] >= LEAST_COVERAGE, f"{100 * scores['inside']:.0f}% inside the interval"),
        (scores["replay"] <= MOST_REPLAY, f"an unchanged replay is {scores['replay']:.1f}% off"),
    )
    return [text for met, text in goals if not met]


def section(pairs: Sequence[Pair], command: str, minutes: float) -> str:
    """The section in Markdown, without its markers."""
    scores = totals(pairs)
    lines = [
        "# How right predictions are",
        "",
        (
            f"Written by `{command}` in {minutes:.0f} minutes on {os.cpu_count()} cores, "
            f"Python {platform.python_version()}. Each fix is applied to real runs of the bundled "
            "trainer (two gloo ranks, recorded by the recorder), in pairs of the same seed. The "
            "prediction is made from the run before alone. Steps are those after the warm-up; the "
            "measured change is the median over the pairs."
        ),
        "",
        (
            "The models' own errors, and that of two runs of the same settings, are guesses: none "
            "was fitted to runs. Slow storage and services are waits, so that two cores can show "
            "what more processes bring. A sign is right where both changes are on the same side, "
            f"or one is below {NO_CHANGE:.0f}% and they differ by less than "
            f"{2 * NO_CHANGE:.0f} points."
        ),
        "",
        "|  |  |",
        "|---|---|",
        f"| fixes, with a prediction | {scores['fixes']:.0f}, {scores['predicted']:.0f} |",
        f"| error of the predicted step time, median | {scores['error']:.1f}% |",
        f"| error in points of the step time before, median | {scores['points']:.1f} |",
        f"| sign right | {100 * scores['sign']:.0f}% |",
        f"| measured change inside the interval | {100 * scores['inside']:.0f}% of predictions |",
        f"| each pair's own change inside | {100 * scores['inside_own']:.0f}% of predictions |",
        (
            f"| unchanged replay off by, median / most | {scores['replay_median']:.1f} / "
            f"{scores['replay']:.1f}% |"
        ),
        "",
        (
            "| fix | pairs | step before | predicted | interval | measured | error, points | "
            "error of step time | sign | inside |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_line, rows(pairs))]) + "\n"


def _line(row: Row) -> str:
    start = f"| {row.name} | {row.pairs} | {1e3 * row.before_s:.0f} ms | "
    if isnan(row.mid):
        return f"{start}none: {row.reason} | | {row.measured:+.1f}% | | | | |"
    return (
        f"{start}{row.mid:+.1f}% | {row.low:+.1f} to {row.high:+.1f}% | {row.measured:+.1f}% | "
        f"{row.error:.1f} | {row.relative:.1f}% | {'✓' if row.sign_right else '✗'} | "
        f"{row.inside} of {row.pairs} |"
    )
