"""What comes next, and what is kept: pure functions of what was tried so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from grpo_doctor.treat.paired import MOST_PAIRS, interval
from grpo_doctor_reports.formatting import signed_percent
from grpo_doctor_reports.schema.treat import ChangeEntry, Percent, TrialEntry

# A gain below is less than two runs of the same settings differ by (`whatif.prediction`).
LEAST_GAIN_PCT = 2.0
ORDER = ("before", "after", "after", "before")
# A change whose trials fail this often is not what a user wants, whatever it gains.
MOST_FAILURES = 2
MEASURED, OUT_OF_MEMORY = "measured", "out of memory"
ALGORITHM = "changes-algorithm"


class Judged(NamedTuple):
    """`more` trials are needed, or the change is `kept` or `rolled back`, and why."""

    state: Literal["more", "kept", "rolled back"]
    measured: Percent | None
    why: str


def of_change(trials: Sequence[TrialEntry], change: int) -> list[TrialEntry]:
    """Return the trials of a change that were measured, in the order in which they were run."""
    return [t for t in trials if t.change == change and t.state == MEASURED]


def next_side(trials: Sequence[TrialEntry], change: int) -> str:
    """Return which side is next: before, after, after, before; a failed one is run again."""
    return ORDER[len(of_change(trials, change)) % len(ORDER)]


def pairs_of(trials: Sequence[TrialEntry], change: int) -> list[tuple[TrialEntry, TrialEntry]]:
    """Return before and after of each pair that is complete; neighbors in time."""
    own = of_change(trials, change)
    sides = ([t for t in own if t.side == side] for side in ("before", "after"))
    return list(zip(*sides, strict=False))


def judge(ratios: Sequence[float]) -> Judged:
    """Judge the pairs of a change by their time alone; only whole blocks of two pairs count.

    Args:
        ratios: logarithm of after over before, one for each pair.
    """
    if len(ratios) < 2 or len(ratios) % 2:
        return Judged("more", None, "")
    measured = interval(ratios)
    words = f"{signed_percent(measured.mid)} ({_range(measured)})"
    if measured.high < -LEAST_GAIN_PCT:
        return Judged("kept", measured, f"measured {words}")
    if measured.mid > -LEAST_GAIN_PCT:
        return Judged("rolled back", measured, f"measured {words}: no gain above 2%")
    if len(ratios) >= MOST_PAIRS:
        many = f"after {len(ratios)} pairs"
        return Judged("rolled back", measured, f"measured {words}: not certain {many}")
    return Judged("more", measured, f"measured {words} so far")


def _range(change: Percent) -> str:
    return f"95% interval {signed_percent(change.low)} to {signed_percent(change.high)}"


def failures(trials: Sequence[TrialEntry], change: int) -> Judged | None:
    """Return the verdict on a change whose trials fail; None where they do not, or may recover."""
    failed = [t for t in trials if t.change == change and t.side == "after" and t.state != MEASURED]
    out = next((t for t in failed if t.state == OUT_OF_MEMORY), None)
    if out is not None:
        return Judged("rolled back", None, f"out of memory: {out.why}")
    if len(failed) < MOST_FAILURES:
        return None
    tries = sum(t.change == change and t.side == "after" for t in trials)
    last = failed[-1]
    return Judged(
        "rolled back", None, f"{len(failed)} of {tries} trials ended as {last.state}: {last.why}"
    )


def best(changes: Sequence[ChangeEntry], start_s: float, steps_s: float) -> ChangeEntry | None:
    """Return what to try next: the most predicted gain for a minute of trial.

    What has no prediction comes after what has one, by what its finding costs at most.

    Args:
        changes: all of them.
        start_s: from the start of a trial to its first step.
        steps_s: what the steps of a trial take as things are.
    """

    def worth(change: ChangeEntry) -> tuple[bool, float]:
        if change.predicted is None:
            return False, change.cost_pct
        minutes = (start_s + steps_s * (1 + change.predicted.mid / 100)) / 60
        return True, -change.predicted.mid / max(minutes, 1e-9)

    untried = [change for change in changes if change.state == "untried"]
    return max(untried, key=worth, default=None)


def as_predicted(change: ChangeEntry, measured: Percent | None) -> bool | None:
    """Return whether the measured change is within the predicted interval; None: no prediction."""
    if change.predicted is None or measured is None:
        return None
    return change.predicted.low <= measured.mid <= change.predicted.high


def verdict(changes: Sequence[ChangeEntry], goal: str) -> str:
    """Return what came of all of it in a sentence or two."""
    kept = [change for change in changes if change.state == "kept" and change.measured]
    what = "step time" if goal == "step-time" else "time per token"
    rest = [
        f"{count} {state}"
        for state in ("rolled back", "refused", "tried", "untried")
        if (count := sum(change.state == state for change in changes))
    ]
    others = f" Other changes: {', '.join(rest)}." if rest else ""
    if not kept:
        found = "none of the changes proved" if changes else "no finding has a flag that is worth"
        return f"Nothing kept: {found} a gain above 2%.{others}"
    factor = 1.0
    for change in kept:
        factor *= 1 + (change.measured.mid if change.measured else 0.0) / 100
    names = " and ".join(change.text for change in kept)
    return f"Kept {names}: {what} {signed_percent(100 * (factor - 1))}.{others}"
