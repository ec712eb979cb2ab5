"""What comes next, and what is kept: pure functions of what was tried so far."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, prod
from typing import Literal, NamedTuple

from grpo_doctor.treat.paired import MOST_PAIRS, T_BY_PAIRS, interval
from grpo_doctor_reports.formatting import signed_percent
from grpo_doctor_reports.schema.treat import ChangeEntry, Percent, TrialEntry

# Two runs of the same settings differ by as much (`whatif.prediction`).
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
    """Judge the pairs of a change by their time alone, after as many pairs as `T_BY_PAIRS` has.

    Two pairs of which one gained are no answer yet: their interval may span from -58% to +144%.

    Args:
        ratios: logarithm of after over before, one for each pair.
    """
    if len(ratios) not in T_BY_PAIRS:
        return Judged("more", None, "")
    measured = interval(ratios)
    if measured.high < -LEAST_GAIN_PCT:
        return Judged("kept", measured, "the whole interval is a gain above 2%")
    has_gained = min(ratios) < log(1 - LEAST_GAIN_PCT / 100)
    if measured.mid > -LEAST_GAIN_PCT and not (has_gained and len(ratios) == 2):
        return Judged("rolled back", measured, "no gain above 2%")
    if len(ratios) >= MOST_PAIRS:
        return Judged("rolled back", measured, f"not certain after {len(ratios)} pairs")
    return Judged("more", measured, "")


def failures(trials: Sequence[TrialEntry], change: int) -> Judged | None:
    """Return the verdict on a change whose trials fail; None where they do not, or may recover."""
    after = [t for t in trials if t.change == change and t.side == "after"]
    failed = [t for t in after if t.state != MEASURED]
    if any(t.state == OUT_OF_MEMORY for t in failed):
        return Judged("rolled back", None, f"out of memory: {failed[-1].why}")
    if len(failed) < MOST_FAILURES:
        return None
    ended = f"{len(failed)} of {len(after)} trials ended as {failed[-1].state}"
    return Judged("rolled back", None, f"{ended}: {failed[-1].why}")


def best(changes: Sequence[ChangeEntry], start_s: float, steps_s: float) -> ChangeEntry | None:
    """Return what to try next: the most predicted gain for a minute of trial.

    Of equal ones the first, which its finding names first. What has no prediction comes after what
    has one, by what its finding costs at most.

    Args:
        changes: all of them.
        start_s: from the start of a trial to its first step.
        steps_s: what the steps of a trial take as things are.
    """

    def worth(change: ChangeEntry) -> tuple[bool, float]:
        if change.predicted is None:
            return False, change.cost_pct
        gain = round(-change.predicted.mid)
        return True, gain / max(start_s + steps_s * (1 - gain / 100), 1e-9)

    untried = [change for change in changes if change.state == "untried"]
    return max(untried, key=worth, default=None)


def as_predicted(change: ChangeEntry, measured: Percent | None) -> bool | None:
    """Return whether the measured change is within the predicted interval; None where there is no
    prediction, or where only the measured interval reaches into it."""
    if change.predicted is None or measured is None:
        return None
    low, high = change.predicted.low, change.predicted.high
    is_inside = low <= measured.mid <= high
    return is_inside if is_inside or measured.low > high or measured.high < low else None


def verdict(changes: Sequence[ChangeEntry], goal: str) -> str:
    """Return what came of all of it in a sentence or two."""
    kept = [(c.text, c.measured.mid) for c in changes if c.state == "kept" and c.measured]
    counts = {
        state: sum(change.state == state for change in changes)
        for state in ("rolled back", "refused", "tried", "untried")
    }
    listed = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    others = f" Other changes: {listed}." if listed else ""
    if not kept:
        return f"Nothing kept: no change of the command proved a gain above 2%.{others}"
    what = "step time" if goal == "step-time" else "time per token"
    together = 100 * (prod(1 + mid / 100 for _, mid in kept) - 1)
    names = " and ".join(text for text, _ in kept)
    return f"Kept {names}: {what} {signed_percent(together)}.{others}"
