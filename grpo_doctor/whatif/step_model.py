"""A run's own steps as work between barriers, so that a change can be replayed.

The model: ranks work by themselves until all of them have entered a collective; the slowest decides
when that is. So a step takes the sum, over its stretches between barriers, of the largest rank's
work in the stretch::

    step = sum over stretches k of  max over ranks r of  sum over spans s of work[k, r, s]

Waiting is not work: it follows from the maximum. Transfer, the time from the last arrival to the
end of a collective, is work of the span it lies in. Without recorded collectives a step is one
stretch. Asynchronous collectives and those of a part of the ranks are not barriers; what that costs
in accuracy shows when the unedited model is replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor.trace.intervals import Intervals, Rows, covers, cut, gaps, innermost, overlaps
from grpo_doctor.trace.model import Kind


@dataclass(frozen=True, slots=True)
class Edit:
    """Multiplies the work of `phases` on `ranks` (None: all) by `factor`; 0 removes it."""

    phases: tuple[str, ...]
    factor: float
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """Adds `seconds` of work per step to `phase` on `ranks`; negative ones take it away.

    Work is never less than none. What a step did not have is put at its beginning.
    """

    phase: str
    seconds: float
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AsOthers:
    """Brings the work of `phases` on one rank down to the median of the other ranks, each step."""

    phases: tuple[str, ...]
    rank: int


@dataclass(frozen=True, slots=True)
class Hide:
    """Takes `phase` off the ranks' way: `workers` helpers do it during the rest of the step.

    `effort_s` is what one step needs of it on the slowest rank. What does not fit into the rest is
    still waited for: max(0, effort_s / workers - rest), with buffers between steps, so on average
    over steps. A step is not shorter than what its host computes for it: `computed_s` with all
    its `cores`, less what other changes took off the ranks.
    """

    phase: str
    effort_s: float
    workers: int
    computed_s: float = 0.0
    cores: float = float("inf")


@dataclass(frozen=True, slots=True)
class Overlap:
    """Runs two sides of a step at once: it takes as long as the longer one, and the rest."""

    first: tuple[str, ...]
    second: tuple[str, ...]


# A part of a step is a phase, with all of its spans, or one span, such as `sync/gather`. The first
# three change work where it lies, in any order but that of their list; the others change what waits
# for what, and so look at the steps that all others have left.
Change = Edit | Add | AsOthers | Hide | Overlap


def without(*phases: str) -> Edit:
    """Remove phases, or single spans of them, from every rank."""
    return Edit(phases, 0.0)


def every(phases: tuple[str, ...], before: float, after: float) -> Edit:
    """Something that is done once every `before` steps, done once every `after` steps instead.

    As every step pays its share, means are right and single steps are not.
    """
    return Edit(phases, before / after)


def halved(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return half of what each change does, where that is known."""

    def half(change: Change) -> Change:
        match change:
            case Edit():
                return replace(change, factor=(1 + change.factor) / 2)
            case Add():
                return replace(change, seconds=change.seconds / 2)
        return change

    return tuple(map(half, changes))


def belongs(part: str, name: str) -> bool:
    """Whether a span's name belongs to a part of a step: `sync/gather` to itself and to `sync`."""
    return name == part or name.startswith(f"{part}/")


def only_removes(changes: Iterable[Change]) -> bool:
    """Whether none of the changes adds work; `Hide` moves it, and may leave more to wait for."""
    return not any(
        (isinstance(change, Edit) and change.factor > 1)
        or (isinstance(change, Add) and change.seconds > 0)
        for change in changes
    )


# 127 sets of fixes are replayed for one report; a replay of so many rows takes some milliseconds.
MOST_ROWS = 100_000
# Of so many steps the mean is known to two percent where they differ by a tenth.
LEAST_STEPS = 30


@dataclass(frozen=True, slots=True)
class StepModel:
    """Work of U steps and R stepping ranks, in K stretches.

    Rows (n,): `stretch`, `rank` (column), `name` (of the innermost span, an index into `names`)
    and `seconds` of work. `step_of` (K,) says which step a stretch belongs to, and `between` (K,)
    between which barriers it lies: a step's end is none, so two steps may share the time between
    two barriers. `measured_s` (U,) is how long each step really took. `rows` are the steps' rows
    in the analysis; in a long run a sample.
    """

    ranks: tuple[int, ...]
    names: tuple[str, ...]
    measured_s: NDArray[np.float64]
    stretch: Rows
    rank: Rows
    name: Rows
    seconds: NDArray[np.float64]
    step_of: Rows
    between: Rows
    rows: Rows

    def part(self, phase: str) -> NDArray[np.bool_]:
        """Return which rows are of a phase, or of one span; shape (n,)."""
        chosen = np.array([belongs(phase, name) for name in self.names], dtype=np.bool_)
        return np.asarray(chosen[self.name])

    def work_s(self, phase: str) -> float:
        """Return seconds of work per step in a phase or span, the mean over ranks."""
        total = float(self.seconds[self.part(phase)].sum())
        return total / max(1, len(self.measured_s)) / max(1, len(self.ranks))

    @property
    def step_s(self) -> float:
        """The mean length of the steps; 0 without any."""
        return float(self.measured_s.mean()) if len(self.measured_s) else 0.0


def build_model(analysis: Analysis) -> StepModel:
    """Cut each rank's work in the used steps, or in a sample of them, at the barriers."""
    steps = analysis.steps
    columns = np.flatnonzero(steps.stepping)
    chosen = _sample(analysis)
    barriers, windows = analysis.waits.barriers_ns, analysis.used_windows
    # A step may end with its last barrier.
    pieces = cut(barriers[covers(windows, barriers) | np.isin(barriers, windows.end_ns)])
    names = (*analysis.trace.names, UNATTRIBUTED)
    works = [_rank_work(analysis, int(column), pieces, chosen, names) for column in columns]
    count = len(steps.numbers) + 1
    cells = [interval * count + step for interval, step, _, _ in works]
    stretches, every = np.unique(np.concatenate([*cells, _NO_ROWS]), return_inverse=True)
    used = np.full(count, -1, dtype=np.intp)
    used[chosen] = np.arange(len(chosen))
    sampled = np.searchsorted(steps.used, chosen)
    return StepModel(
        ranks=tuple(analysis.ranks[column] for column in columns),
        names=names,
        measured_s=analysis.step_seconds[sampled],
        stretch=every,
        rank=np.repeat(np.arange(len(works)), [len(cell) for cell in cells]),
        name=np.concatenate([*(name for _, _, name, _ in works), _NO_ROWS]),
        seconds=np.concatenate([*(seconds for _, _, _, seconds in works), np.empty(0)]),
        step_of=used[stretches % count],
        # Without a barrier nothing ties one step's ranks to the next step's.
        between=stretches // count if len(pieces) > 1 else np.arange(len(stretches)),
        rows=chosen,
    )


_NO_ROWS = np.empty(0, dtype=np.intp)


def _sample(analysis: Analysis) -> Rows:
    """Return the used steps, or as many drawn ones as keep the rows below `MOST_ROWS`."""
    used: Rows = analysis.steps.used
    spans = sum(len(main.rows) for main in analysis.mains)
    per_step = spans / max(1, len(analysis.steps.numbers))
    limit = max(LEAST_STEPS, int(MOST_ROWS / max(1.0, per_step)))
    if len(used) <= limit:
        return used
    drawn = np.random.default_rng(0).choice(len(used), limit, replace=False)
    return used[np.sort(drawn)]


def _rank_work(
    analysis: Analysis, column: int, pieces: Intervals, chosen: Rows, names: tuple[str, ...]
) -> tuple[Rows, Rows, Rows, NDArray[np.float64]]:
    """Return one rank's work by stretch: (piece, step row, name, seconds), each shape (n,)."""
    windows, row = analysis.steps.windows(column, used=True)
    sampled = np.isin(row, chosen)
    windows, row = windows.select(sampled), row[sampled]
    work = overlaps(windows, gaps(analysis.waits.per_rank[column]))
    stretches = overlaps(work.intervals, pieces)
    step = row[work.left[stretches.left]]
    spans, name_of = _named_pieces(analysis, column, windows)
    inside = overlaps(stretches.intervals, spans)
    length = np.bincount(inside.left, weights=inside.length_ns, minlength=len(step))
    outside_ns = stretches.length_ns - length
    outside = np.flatnonzero(outside_ns > 0)
    pieces_at = np.concatenate([inside.left, outside])
    name = np.concatenate([name_of[inside.right], np.full(len(outside), len(names) - 1)])
    nanoseconds = np.concatenate([inside.length_ns, outside_ns[outside]])
    # Many pieces of one span's name lie in one stretch: they are one row.
    count, width = len(analysis.steps.numbers) + 1, len(names)
    cell = (stretches.right[pieces_at] * count + step[pieces_at]) * width + name
    cells, group = np.unique(cell, return_inverse=True)
    seconds = np.bincount(group, weights=nanoseconds, minlength=len(cells)) / NS_PER_S
    where = cells // width
    return where // count, where % count, cells % width, seconds


def _named_pieces(analysis: Analysis, column: int, windows: Intervals) -> tuple[Intervals, Rows]:
    """The main thread's time by the innermost span of a phase, and that span's name; at least
    where the windows are."""
    spans, main = analysis.trace.spans, analysis.mains[column]
    rows = main.rows[(spans.kind[main.rows] == Kind.SPAN) & (main.phase >= 0)]
    if not len(windows):
        rows = rows[:0]
    window = np.searchsorted(windows.end_ns, spans.start_ns[rows], side="right")
    begins = np.r_[windows.start_ns, np.iinfo(np.int64).max]
    rows = rows[begins[window] < spans.end_ns[rows]]
    pieces, owner = innermost(spans.start_ns[rows], spans.end_ns[rows])
    return pieces, spans.name[rows][owner].astype(np.intp)


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
