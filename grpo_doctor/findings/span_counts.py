"""What happens in a step how often and in which order: spans, gathers, micro-batches.

In which phases a rank works longer than the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.rows import CODES, UNATTRIBUTED_CODE
from grpo_doctor.analysis.sampled import mean_over
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.analysis.stragglers import work_above_others
from grpo_doctor.findings.rule import Evidence
from grpo_doctor.findings.signals import LENGTHS_LOGGED, Signal, any_of, logged, sampled
from grpo_doctor.findings.view import RunView, integer
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.intervals import Intervals, covers, intersect
from grpo_doctor.trace.model import Kind


def stepping_columns(view: RunView) -> list[int]:
    """Return the columns of the ranks that have steps."""
    return [int(column) for column in np.flatnonzero(view.analysis.steps.stepping)]


def phase_windows(view: RunView, column: int, phase: str) -> Intervals:
    """Return one rank's pieces of a phase within the used steps."""
    steps, track = view.analysis.steps, view.analysis.tracks[column]
    windows, _ = steps.windows(column, used=True)
    return intersect(windows, track.of(CODES[phase]))


def gpu_means(view: RunView, name: str, *phases: str) -> list[tuple[float, str]]:
    """Return a series' mean on each rank's own GPU within each of some phases, with the phase."""
    means = [
        (mean_over(series, phase_windows(view, column, phase)), phase)
        for series in view.series(name)
        for column in stepping_columns(view)
        if view.gpu_of_rank.get(view.analysis.ranks[column]) == series.gpu
        for phase in phases
    ]
    return [(mean, phase) for mean, phase in means if mean is not None]


def times_per_step(view: RunView, name: str) -> float:
    """Return how many spans of this name a rank begins per step, the mean over steps and ranks."""
    steps, ranks = view.analysis.used_seconds.shape[:2]
    return float(len(span_lengths(view, name)) / max(1, steps * ranks))


def collectives_per_step(view: RunView, phase: str) -> float:
    """How many collectives a rank enters within a phase per step, the mean over steps and ranks."""
    spans, count = view.trace.spans, 0
    for column in stepping_columns(view):
        rows = view.analysis.mains[column].rows
        start = spans.start_ns[rows[spans.kind[rows] == Kind.COLLECTIVE]]
        count += int(covers(phase_windows(view, column, phase), start).sum())
    steps, ranks = view.analysis.used_seconds.shape[:2]
    return float(count / max(1, steps * ranks))


def seconds_beside(view: RunView, phase: str, *, before: str = "", after: str = "") -> float:
    """Seconds per step in pieces of a phase that come next `before` one of another phase, or next
    `after` one; the mean."""
    per_rank_ns = []
    for column in stepping_columns(view):
        track = view.analysis.tracks[column]
        in_phase, in_other = track.phase == CODES[phase], track.phase == CODES[before or after]
        windows, _ = view.analysis.steps.windows(column, used=True)
        step = np.searchsorted(windows.start_ns, track.pieces.start_ns, side="right")
        same = step[1:] == step[:-1]  # what another step begins with is not a neighbour
        beside = np.r_[in_other[1:] & same, False] if before else np.r_[False, in_other[:-1] & same]
        per_rank_ns.append(intersect(windows, track.pieces.select(in_phase & beside)).total_ns)
    steps = len(view.analysis.steps.used)
    if not steps or not per_rank_ns:
        return 0.0
    return float(np.mean(per_rank_ns)) / NS_PER_S / steps


def span_lengths(view: RunView, name: str) -> NDArray[np.float64]:
    """Seconds of each span of this name that begins in a used step, of all ranks, shape (n,)."""
    trace, lengths = view.trace, [np.empty(0)]
    code = trace.names.index(name) if name in trace.names else -1
    for column in stepping_columns(view):
        spans, rows = trace.spans, view.analysis.mains[column].rows
        rows = rows[(spans.name[rows] == code) & (spans.kind[rows] == Kind.SPAN)]
        windows, _ = view.analysis.steps.windows(column, used=True)
        rows = rows[covers(windows, spans.start_ns[rows])]
        lengths.append((spans.end_ns[rows] - spans.start_ns[rows]) / NS_PER_S)
    return np.concatenate(lengths)


GATHER = "sync/gather"
# A gather's fixed part is what even the smallest take; the 5th percentile is not an outlier.
_SMALLEST = 5


@dataclass(frozen=True, slots=True)
class Gathers:
    """Per step: how many gathers, the seconds in them, and the part that grows with the number."""

    count: float
    seconds: float
    fixed_s: float
    source: str


def gathers(view: RunView) -> Gathers:
    """From `sync/gather` spans; without them the collectives within `sync` are counted, and of
    those no time is known."""
    gather_seconds = span_lengths(view, GATHER)
    if not len(gather_seconds):
        count = collectives_per_step(view, "sync")
        return Gathers(count, 0.0, 0.0, "collectives within sync")
    count = times_per_step(view, GATHER)
    fixed = count * float(np.percentile(gather_seconds, _SMALLEST))
    return Gathers(count, view.span_seconds(GATHER), fixed, f"{GATHER} spans")


def gather_evidence(view: RunView, gathering: Gathers) -> tuple[Evidence, ...]:
    """Return the numbers, and the phase's own."""
    fixed = "fixed cost of the gathers, per step (from the smallest)"
    timed = (
        (
            Evidence("gathering, per step", gathering.seconds, "s", gathering.source),
            Evidence(fixed, gathering.fixed_s, "s", gathering.source),
        )
        if gathering.seconds
        else ()
    )
    return (
        Evidence("gathers per step", round(gathering.count, 1), "", gathering.source),
        *timed,
        *view.phase_evidence("sync"),
    )


MICRO_BATCH_SPAN = "train/micro_batch"
TOKENS: Signal = sampled(
    "train/tokens",
    "counters with the tokens of a step, without padding, and train/token_places with padding; "
    "the bundled trainer records both",
)
LENGTHS: Signal = any_of(
    "lengths: counters `train/tokens` and `train/token_places`, or metrics "
    "`completions/mean_length` and `completions/max_length`",
    TOKENS,
    logged(*LENGTHS_LOGGED),
)


def micro_batches_per_step(view: RunView) -> float:
    """Micro-batches per step: their spans, else the setting; 0 where neither is known."""
    spans = times_per_step(view, MICRO_BATCH_SPAN)
    return spans or float(integer(view.knob("train.grad_accumulation")) or 0)


@dataclass(frozen=True, slots=True)
class Padding:
    """The share of padding in what is trained on; `counted`, or else guessed from lengths."""

    share: float
    counted: bool
    source: str


def padding(view: RunView) -> Padding | None:
    """Return how much of what is trained on is padding; None where unknown.

    From metrics it is that of the completions alone, as if each micro-batch were as wide as the
    longest of its rollout.
    """
    tokens = view.counted_mean("train/tokens")
    places = view.counted_mean("train/token_places")
    if tokens is not None and places:
        source = "train/tokens and train/token_places"
        return Padding(max(0.0, 1 - tokens / places), counted=True, source=source)
    mean, longest = (view.metric_values(key) for key in LENGTHS_LOGGED)
    if mean is None or longest is None:
        return None
    valid = (mean > 0) & (longest > 0)
    if not valid.any():
        return None
    share = 1 - float((mean[valid] / longest[valid]).mean())
    source = "completions/mean_length and max_length"
    return Padding(max(0.0, share), counted=False, source=source)


# Phases that make up less of the rank's extra work are not named.
MIN_PHASE_PART = 0.25


def slow_phases(view: RunView, rank: int) -> dict[str, float]:
    """Return the phases in which a rank works longer than the median of the others, by how much."""
    excess = work_above_others(view.analysis.used_own_work, view.model.ranks.index(rank))
    extra = np.maximum(excess[:UNATTRIBUTED_CODE], 0)
    order = [code for code in np.argsort(-extra) if extra[code] > MIN_PHASE_PART * extra.sum()]
    return {PHASES[code]: float(extra[code]) for code in order}
