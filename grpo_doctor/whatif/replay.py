"""Carries changes out on a step model: how long its steps, and their phases, would have taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import Rows
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor.whatif.edits import Add, AsOthers, Change, Edit, Hide, Overlap
from grpo_doctor.whatif.step_model import StepModel

Seconds = NDArray[np.float64]


def replay(model: StepModel, changes: Sequence[Change] = ()) -> Seconds:
    """The length of each step under the model and some changes, in seconds; shape (steps,)."""
    return _replayed(model, changes)[0]


def _replayed(model: StepModel, changes: Sequence[Change]) -> tuple[Seconds, Seconds]:
    """Lengths of the steps (steps,), and the work of each row (n,); new work is in no row."""
    seconds, extra = model.seconds, np.zeros((len(model.measured_s), max(1, len(model.ranks))))
    for change in changes:
        seconds, extra = _changed(model, change, seconds, extra)
    hidden = [change for change in changes if isinstance(change, Hide)]
    for change in hidden:
        seconds = np.where(model.part(change.phase), 0.0, seconds)
    steps = _lengths(model, seconds, extra)
    for change in changes:
        if isinstance(change, Overlap):
            steps = steps - _saved_by_overlap(model, change, seconds)
    for change in hidden:
        steps = steps + _still_seen(model, change, seconds, steps)
    return steps, seconds


def _lengths(model: StepModel, seconds: Seconds, extra: Seconds) -> Seconds:
    """The sum over stretches of the longest rank's work; `extra` is work before the first one."""
    ranks, stretches = max(1, len(model.ranks)), len(model.step_of)
    cell = model.stretch * ranks + model.rank
    flat = np.bincount(cell, weights=seconds, minlength=stretches * ranks).astype(np.float64)
    work: Seconds = flat.reshape(stretches, ranks)
    if extra.any():
        of_step, first = np.unique(model.step_of, return_index=True)
        work[first] = work[first] + extra[of_step]
    longest = work[np.arange(stretches), _last(model.between, work)]
    steps = np.bincount(model.step_of, weights=longest, minlength=len(model.measured_s))
    return steps.astype(np.float64)


def _last(between: Rows, work: Seconds) -> Rows:
    """Of each stretch the rank that comes last to the barrier at whose way the stretch lies."""
    if not len(between):
        return between
    _, interval = np.unique(between, return_inverse=True)
    total = np.zeros((int(interval.max()) + 1, work.shape[1]))
    np.add.at(total, interval, work)
    last: Rows = total.argmax(axis=1)[interval]
    return last


def _changed(
    model: StepModel, change: Change, seconds: Seconds, extra: Seconds
) -> tuple[Seconds, Seconds]:
    match change:
        case Edit():
            chosen = _rows_of(model, change.phases) & _columns(model, change.ranks)[model.rank]
            return np.where(chosen, seconds * change.factor, seconds), extra
        case AsOthers():
            return _as_others(model, change, seconds), extra
        case Add():
            return _added(model, change, seconds, extra)
        case _:
            return seconds, extra


def _rows_of(model: StepModel, phases: Sequence[str]) -> NDArray[np.bool_]:
    chosen = np.zeros(len(model.seconds), dtype=np.bool_)
    for phase in phases:
        chosen |= model.part(phase)
    return chosen


def _columns(model: StepModel, ranks: Sequence[int] | None) -> NDArray[np.bool_]:
    """Return which of the model's ranks are meant, shape (ranks,)."""
    return np.array([ranks is None or rank in ranks for rank in model.ranks], dtype=np.bool_)


def work_of(model: StepModel, chosen: NDArray[np.bool_], seconds: Seconds) -> Seconds:
    """Work of some rows by step and rank, shape (steps, ranks)."""
    ranks = max(1, len(model.ranks))
    cell = model.step_of[model.stretch] * ranks + model.rank
    size = len(model.measured_s) * ranks
    total = np.bincount(cell[chosen], weights=seconds[chosen], minlength=size)
    return total.reshape(len(model.measured_s), ranks).astype(np.float64)


def _as_others(model: StepModel, change: AsOthers, seconds: Seconds) -> Seconds:
    if change.rank not in model.ranks or len(model.ranks) < 2:
        return seconds
    column = model.ranks.index(change.rank)
    for phase in change.phases:
        chosen = model.part(phase)
        work = work_of(model, chosen, seconds)
        own, usual = work[:, column], np.median(np.delete(work, column, axis=1), axis=1)
        factor = np.minimum(1.0, usual / np.maximum(own, 1e-12))
        mine = chosen & (model.rank == column)
        seconds = np.where(mine, seconds * factor[model.step_of[model.stretch]], seconds)
    return seconds


def _added(
    model: StepModel, change: Add, seconds: Seconds, extra: Seconds
) -> tuple[Seconds, Seconds]:
    """Grow what is there in proportion; where nothing is, the step begins with it."""
    chosen, columns = model.part(change.phase), _columns(model, change.ranks)
    work = work_of(model, chosen, seconds)
    factor = np.maximum(0.0, 1 + change.seconds / np.maximum(work, 1e-12))
    factor = np.where((work > 0) & columns, factor, 1.0)
    grown = np.where(chosen, seconds * factor[model.step_of[model.stretch], model.rank], seconds)
    new = np.where((work <= 0) & columns, max(0.0, change.seconds), 0.0)
    return grown, extra + new


def _saved_by_overlap(model: StepModel, change: Overlap, seconds: Seconds) -> Seconds:
    none = np.zeros((len(model.measured_s), max(1, len(model.ranks))))
    first, second = (
        _lengths(model, np.where(_rows_of(model, side), seconds, 0.0), none)
        for side in (change.first, change.second)
    )
    # Rollouts of one step meet the training of the one before: means, not single steps, overlap.
    shorter = min(first.mean(), second.mean()) if len(first) else 0.0
    return np.full(len(first), shorter)


def _still_seen(model: StepModel, change: Hide, seconds: Seconds, steps: Seconds) -> Seconds:
    if not len(steps):
        return steps
    step_s = float(steps.mean())
    waited = max(0.0, change.effort_s / max(1, change.workers) - step_s)
    # What other changes took off the ranks, they need no longer compute.
    removed = model.seconds.sum() - seconds.sum() - model.seconds[model.part(change.phase)].sum()
    computed = change.computed_s - max(0.0, removed) / len(steps) / change.cores
    return np.full(len(steps), max(waited, computed - step_s, 0.0))


WAIT = "waits"


def by_phase(model: StepModel, changes: Sequence[Change]) -> dict[str, tuple[float, float]]:
    """Seconds per step before and after: own work of each phase that there is, the mean over ranks.

    `WAIT` is what the step takes beyond: waits for other ranks, and after the change for loader
    processes; below zero where two sides of the step run at once.
    """
    cells = max(1, len(model.ranks)) * max(1, len(model.measured_s))
    steps_after, changed = _replayed(model, changes)
    seconds_of: dict[str, tuple[float, float]] = {}
    for phase in (*PHASES, UNATTRIBUTED):
        chosen = model.part(phase)
        before, after = float(model.seconds[chosen].sum()), float(changed[chosen].sum())
        if before or after:
            seconds_of[phase] = before / cells, after / cells
    before, after = (
        float(steps.mean()) - sum(pair[side] for pair in seconds_of.values())
        for side, steps in enumerate((replay(model), steps_after))
    )
    return {**seconds_of, WAIT: (before, after)}
