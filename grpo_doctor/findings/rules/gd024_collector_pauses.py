"""Python's garbage collector pauses the ranks."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.sampled import values_in
from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.span_counts import stepping_columns
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.phases import PHASES
from grpo_doctor.whatif import Edit, Replay

_SECONDS, _LONGEST = "gc/seconds", "gc/longest_s"
RULE = timed_rule(
    "system",
    signals.sampled(_SECONDS, "the recorder writes it per step since this version"),
    uses=(_LONGEST,),
)
# Runs of the bundled trainer spend 0.1-0.4% of a step collecting; five times that is a process
# of too many objects, and eight ranks that collect at different moments may lose several times it.
MIN_SHARE = 0.02
_CODE = """import gc; gc.collect(); gc.freeze(); gc.disable()  # after model and data load
gc.collect(1)  # after each step"""
_RISK = "Cycles that outlive their step are never collected: watch memory use."


def check(view: RunView) -> Answer:
    """Add up the collections of the used steps."""
    seconds = _by_rank(view)
    share = float(np.mean([*seconds.values()])) / view.step_s if seconds else 0.0
    if share < MIN_SHARE:
        return Passed(f"collections take {percent(share, 1)} of the step")
    mean, in_line = float(np.mean([*seconds.values()])), view.found("GD023")
    source = f"counter {_SECONDS}, mean of {len(seconds)} rank{'s' * (len(seconds) != 1)}"
    return Finding(
        # What a pause waits for a CPU in the thread that collects is not the collector's.
        severity=severity_of(share * (1 - in_line.cost) if in_line is not None else share),
        confidence=0.9,
        cost=share,
        evidence=(
            Evidence("garbage collection, per step and rank", mean, "s", source),
            Evidence("in collections", round(100 * share, 2), "% of the step", source),
            Evidence("longest collection", _longest(view), "s", f"counter {_LONGEST}"),
        ),
        cause=f"Each rank is paused for {mean:.3g} s of each {view.step_s:.3g} s step while "
        f"Python collects garbage, for up to {_longest(view):.2g} s at a time.",
        fixes=(view.edit(_CODE, _change(view, seconds), safety="needs-code", risk=_RISK),),
    )


def _by_rank(view: RunView) -> dict[int, float]:
    """Seconds per step in collections, of each rank, less those that an offload asked for."""
    windows, steps = view.analysis.used_windows, max(1, len(view.analysis.steps.used))
    offload_s = view.span_seconds("offload/collect")
    seconds_of = {view.analysis.ranks[column]: 0.0 for column in stepping_columns(view)}
    for series in view.series(_SECONDS):
        if series.rank in seconds_of:
            seconds_of[series.rank] += float(values_in(series, windows).sum()) / steps
    return {rank: max(0.0, seconds - offload_s) for rank, seconds in seconds_of.items()}


def _longest(view: RunView) -> float:
    windows = view.analysis.used_windows
    longest = [
        float(values_in(series, windows).max(initial=0.0)) for series in view.series(_LONGEST)
    ]
    return max(longest, default=0.0)


def _change(view: RunView, seconds: dict[int, float]) -> Replay:
    shares = {rank: min(0.9, s / view.step_s) for rank, s in seconds.items()}
    return Replay(
        tuple(Edit(PHASES, 1 - share, (rank,)) for rank, share in shares.items()),
        "with each rank's work shorter by its collections (cautious end: half of them stay)",
        half=True,
    )
