"""Data comes in bursts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.findings import signals
from grpo_doctor.findings.loading import LOADER_COUNTERS, replayed_wait
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, integer, timed_rule
from grpo_doctor.whatif import Edit, Replay, WhatIf

RULE = timed_rule("data", signals.SETTINGS, uses=(LOADER_COUNTERS,))
# What all bursts together take of the run; less is lost in the spread of generation lengths.
MIN_SHARE = 0.03
# A burst is this many times the usual wait, and a twentieth of a step.
BURST_FACTOR = 3.0
BURST_SHARE = 0.05
# One long wait is an accident; and what more than half of the steps have is not a burst.
MIN_BURSTS = 2
MIN_STEPS = 8
# Batches ready per process: one that fills host memory helps nobody.
TARGETS = (4, 8, 16)
_WORKERS, _AHEAD = "dataload.num_workers", "dataload.prefetch_factor"
_PERSISTENT = "dataload.persistent_workers"


@dataclass(frozen=True, slots=True)
class _Bursts:
    numbers: tuple[int, ...]
    steps: int
    usual_s: float
    excess_s: float  # per step, over all steps
    share: float
    distance: int | None  # in steps, where it is always the same


def check(view: RunView) -> Answer:
    """Look for few steps with far more than the usual wait."""
    workers = integer(view.now(_WORKERS))
    if workers == 0:
        return NotApplicable("there are no loader processes; GD002 shows the cost")
    bursts = _bursts(view)
    if bursts is None:
        return Passed("data loading is even, as far as measured")
    if bursts.share < MIN_SHARE or len(bursts.numbers) < MIN_BURSTS:
        return Passed(f"waits above the usual take {percent(bursts.share, 1)} of the run")
    restarts = _restarts(view, bursts, workers)
    why = (
        f"every {bursts.distance} steps, as when loader processes are restarted for each pass "
        f"over the data"
        if restarts
        else "while the data of the other steps is ready"
    )
    return Finding(
        confidence=0.8 if restarts else 0.7,
        cost=bursts.share,
        phases=("dataload",),
        evidence=_evidence(view, bursts),
        cause=f"{len(bursts.numbers)} of {bursts.steps} steps wait much longer for data than the "
        f"usual {bursts.usual_s:.2g} s, {why}.",
        fixes=(_persistent(view, bursts) if restarts else _prefetch(view),),
        headline="Loader processes are restarted for each pass over the data" if restarts else "",
        steps=bursts.numbers,
    )


def _bursts(view: RunView) -> _Bursts | None:
    analysis = view.analysis
    waits: NDArray[np.float64] = analysis.phase_work("dataload").mean(axis=1)
    fetching = np.flatnonzero(waits > 0)
    if len(fetching) < MIN_STEPS:
        return None
    usual = float(np.median(waits[fetching]))
    step_s = view.step_s
    limit = max(BURST_FACTOR * usual, usual + BURST_SHARE * step_s)
    rows = np.flatnonzero(waits > limit)
    excess = float((waits[rows] - usual).sum()) / len(waits)
    numbers = analysis.steps.numbers[analysis.steps.used[rows]]
    gaps = np.diff(numbers)
    same = len(gaps) >= MIN_BURSTS and int(gaps.max() - gaps.min()) <= 1
    return _Bursts(
        tuple(int(number) for number in numbers),
        len(waits),
        usual,
        excess,
        excess / step_s,
        round(float(gaps.mean())) if same else None,
    )


def _restarts(view: RunView, bursts: _Bursts, workers: int | None) -> bool:
    # Processes that are too slow make every batch of one of them late: a distance of their number.
    slow = bursts.distance is None or bursts.distance <= (workers or 1)
    if view.fact(_PERSISTENT) is not False or slow:
        return False
    # Where batches were timed and their queue gives these waits, it is the batches.
    ahead = integer(view.now(_AHEAD)) or 2
    return replayed_wait(view, workers=workers or 1, prefetch=ahead) is None


def _evidence(view: RunView, bursts: _Bursts) -> tuple[Evidence, ...]:
    source = f"dataload spans, {bursts.steps} steps"
    workers, ahead = (integer(view.fact(knob)) for knob in (_WORKERS, _AHEAD))
    return (
        Evidence("steps that wait long for data", len(bursts.numbers), "", source),
        Evidence("wait above the usual, mean per step", bursts.excess_s, "s", source),
        Evidence("usual wait", bursts.usual_s, "s", source),
        Evidence("interval between them", bursts.distance, "steps", source),
        Evidence("loader processes per rank", workers, "", "settings"),
        Evidence("most batches that each has ready", ahead, "", "settings"),
    )


def _persistent(view: RunView, bursts: _Bursts) -> Fix:
    share = bursts.excess_s / view.seconds("dataload")
    scenario = "with the usual wait for data where processes are restarted"
    change = Replay((Edit(("dataload",), 1 - share),), scenario, half=True)
    risk = "Keeps the processes and their memory for the whole run."
    return view.setting(_PERSISTENT, True, change, risk=risk)


def _prefetch(view: RunView) -> Fix:
    ahead = integer(view.now(_AHEAD)) or 2
    target, edits = _longer_queue(view)
    change: WhatIf = "the time of each batch was not recorded"
    if edits:
        scenario = f"with {target} instead of {ahead} batches ready per loader process"
        change = Replay(edits, scenario, half=True)
    risk = f"Takes host memory for {target} batches per loader process."
    return view.setting(_AHEAD, target, change, risk=risk)


def _longer_queue(view: RunView) -> tuple[int, tuple[Edit, ...]]:
    """Return the smallest queue that takes at least half of the wait away, and what it leaves."""
    ahead, workers = integer(view.now(_AHEAD)) or 2, integer(view.now(_WORKERS)) or 1
    wait_now = view.seconds("dataload")
    larger = [target for target in TARGETS if target > ahead] or [2 * ahead]
    for target in larger:
        wait = replayed_wait(view, workers=workers, prefetch=target)
        if wait is not None and wait <= wait_now / 2:
            return target, (Edit(("dataload",), wait / wait_now),)
    return larger[-1 if len(larger) == 1 else 1], ()
