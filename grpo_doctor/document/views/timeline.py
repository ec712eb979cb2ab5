"""The run over time: every span where those fit, means of neighboring steps elsewhere, samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.collectives import collective_keys
from grpo_doctor.document.numbers import SECONDS_DIGITS, seconds, significant_column
from grpo_doctor.document.views.steps import rank_buckets
from grpo_doctor.trace.columns import Interned
from grpo_doctor.trace.events import thinned
from grpo_doctor.trace.intervals import Intervals, Rows, overlaps, union
from grpo_doctor.trace.model import Kind, Process, Series, Trace
from grpo_doctor_reports.schema.views import Exact, ExactLane, ExactWindow, Timeline, TrackEntry


def timeline_view(analysis: Analysis, named_steps: Sequence[Sequence[int]] = ()) -> Timeline:
    """Return every rank; nothing in it stands for something else."""
    last_ns = max((int(t.pieces.end_ns[-1]) for t in analysis.tracks if len(t.pieces)), default=0)
    tracks, left_out = track_entries(analysis.trace)
    return Timeline(
        end_s=seconds(max(analysis.trace.run.duration_ns, last_ns)),
        tracks=[*role_tracks(analysis.trace), *tracks],
        tracks_left_out=left_out,
        ranks=rank_buckets(analysis),
        exact=exact(analysis, exact_windows(analysis, named_steps)),
    )


# A span is about five bytes of the page.
MAX_SPANS = 15_000
# As many worst steps can be stepped through in the page.
MAX_WINDOWS = 100
# Of one finding, its longest; others of it look alike.
_STEPS_OF_A_FINDING = 2
_NAMED_STEPS = 8
_CALLS = (Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT)
_DRAWN = (Kind.SPAN, *_CALLS)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time to draw exactly; see `ExactWindow`."""

    why: str
    step: int | None
    start_ns: int
    end_ns: int


def exact_windows(analysis: Analysis, named_steps: Sequence[Sequence[int]] = ()) -> list[Window]:
    """The whole run if its spans are few enough; else as many windows as are, the median step and
    the worst always.

    Args:
        analysis: the run.
        named_steps: numbers of the steps that each finding is about, the most severe first.
    """
    rows = _drawn_rows(analysis)
    moments = [analysis.trace.spans.start_ns[lane] for lane in rows]
    if sum(len(lane) for lane in moments) <= MAX_SPANS:
        any_at_all = any(len(lane) for lane in rows)
        return [Window("whole", None, 0, max(1, _end_ns(analysis)))] if any_at_all else []
    chosen: list[Window] = []
    spans = 0
    for window in _candidates(analysis, named_steps):
        edges = [window.start_ns, window.end_ns]
        spans += sum(int(np.diff(np.searchsorted(lane, edges))[0]) for lane in moments)
        if len(chosen) == MAX_WINDOWS or (spans > MAX_SPANS and window.why in {"named", "slow"}):
            break
        chosen.append(window)
    return sorted(chosen, key=lambda window: window.start_ns)


def exact(analysis: Analysis, windows: list[Window]) -> Exact:
    """Return all spans that touch a window; of too many the longest."""
    spans = analysis.trace.spans
    inside = union(
        np.array([window.start_ns for window in windows], dtype=np.int64),
        np.array([window.end_ns for window in windows], dtype=np.int64),
    )
    rows = [_touching(analysis, lane, inside) for lane in _drawn_rows(analysis)]
    lengths = [spans.end_ns[lane] - spans.start_ns[lane] for lane in rows]
    together = np.concatenate(lengths) if lengths else np.empty(0, dtype=np.int64)
    left_out = np.sort(together)[: max(0, len(together) - MAX_SPANS)]
    shortest = int(left_out[-1]) if len(left_out) else -1
    rows = [lane[length > shortest] for lane, length in zip(rows, lengths, strict=True)]
    meetings = _meetings(analysis, rows)
    names = Interned()
    lanes = [
        _lane(analysis, column, lane, meetings[column], names, inside)
        for column, lane in enumerate(rows)
    ]
    drawn = np.concatenate(rows) if rows else np.empty(0, dtype=np.intp)
    calls = drawn[np.isin(spans.kind[drawn], _CALLS)]
    return Exact(
        windows=[
            ExactWindow(
                why=window.why,
                step=window.step,
                start_s=seconds(window.start_ns),
                end_s=seconds(window.end_ns),
            )
            for window in windows
        ],
        names=[analysis.trace.names[name] for name in names.names],
        collectives=sorted({analysis.trace.names[n] for n in spans.name[calls]}),
        lanes=lanes,
        spans_left_out=int((together <= shortest).sum()),
        longest_left_out_s=seconds(max(0, shortest)),
    )


def _drawn_rows(analysis: Analysis) -> list[Rows]:
    """Phases, sub-spans and collectives of each rank's main thread, by start."""
    kind = analysis.trace.spans.kind
    return [main.rows[np.isin(kind[main.rows], _DRAWN)] for main in analysis.mains]


def _touching(analysis: Analysis, rows: Rows, inside: Intervals) -> Rows:
    """Return those that share time with a window, or are a moment in it."""
    start = analysis.trace.spans.start_ns[rows]
    end = np.maximum(analysis.trace.spans.end_ns[rows], start + 1)
    first = np.searchsorted(inside.end_ns, start, side="right")
    beyond = np.searchsorted(inside.start_ns, end, side="left")
    return rows[beyond > first]


def _candidates(analysis: Analysis, named_steps: Sequence[Sequence[int]]) -> list[Window]:
    """Return what is worth a window, the most important first."""
    steps = analysis.steps
    is_started = steps.start_ns >= 0
    rows = np.flatnonzero(is_started.any(axis=1))
    if not len(rows):
        return [Window("whole", None, 0, max(1, _end_ns(analysis)))]
    start, end = steps.bounds_ns

    def of_step(why: str, row: int) -> Window:
        return Window(why, int(steps.numbers[row]), int(start[row]), int(end[row]))

    never_ended = rows[(is_started & ~steps.closed)[rows].any(axis=1)]
    windows = [of_step("open", int(row)) for row in never_ended[-1:]]
    order = np.argsort(analysis.step_seconds, kind="stable")
    if len(order):
        windows.append(of_step("median", int(steps.used[order[len(order) // 2]])))
        windows.append(of_step("worst", int(steps.used[analysis.step_seconds.argmax()])))
    windows += [of_step("named", row) for row in _named_rows(analysis, named_steps)]
    windows.append(Window("start", None, 0, int(start[rows].min())))
    windows.append(Window("end", None, int(end[rows].max()), _end_ns(analysis)))
    windows += [of_step("slow", int(steps.used[at])) for at in order[::-1]]
    unique: dict[int | None, Window] = {}
    for window in windows:
        key = window.step if window.step is not None else -len(unique) - 1
        if window.end_ns > window.start_ns:
            unique.setdefault(key, window)
    return list(unique.values())


def _named_rows(analysis: Analysis, named_steps: Sequence[Sequence[int]]) -> list[int]:
    used = analysis.steps.used
    numbers = analysis.steps.numbers[used]
    rows: list[int] = []
    for steps in named_steps:
        mine = np.flatnonzero(np.isin(numbers, steps))
        longest = mine[np.argsort(-analysis.step_seconds[mine], kind="stable")]
        rows += [int(used[row]) for row in longest[:_STEPS_OF_A_FINDING]]
    return list(dict.fromkeys(rows))[:_NAMED_STEPS]


def _end_ns(analysis: Analysis) -> int:
    spans = analysis.trace.spans
    return max((int(spans.end_ns[main.rows].max(initial=0)) for main in analysis.mains), default=0)


def _meetings(analysis: Analysis, rows: list[Rows]) -> list[NDArray[np.int64]]:
    """Per lane a number per span, equal where ranks meet; -1 for a span that is not a meeting."""
    together = np.concatenate(rows) if rows else np.empty(0, dtype=np.intp)
    calls = np.flatnonzero(np.isin(analysis.trace.spans.kind[together], _CALLS))
    keys = collective_keys(analysis.trace, together[calls])
    met = np.isin(keys, analysis.waits.arrivals.key)
    meetings = np.full(len(together), -1, dtype=np.int64)
    meetings[calls[met]] = np.unique(keys[met], return_inverse=True)[1]
    return np.split(meetings, np.cumsum([len(lane) for lane in rows])[:-1])


def _lane(  # noqa: PLR0913 - what one lane is made of
    analysis: Analysis,
    column: int,
    rows: Rows,
    meetings: NDArray[np.int64],
    names: Interned,
    inside: Intervals,
) -> ExactLane:
    spans = analysis.trace.spans
    start, end = spans.start_ns[rows], spans.end_ns[rows]
    waits = overlaps(analysis.waits.per_rank[column], inside).intervals
    edges = np.stack([waits.start_ns, waits.end_ns], axis=1).ravel()
    return ExactLane(
        rank=analysis.ranks[column],
        name=[names[int(name)] for name in spans.name[rows]],
        depth=_depths(start, end),
        start_s=np.round(start / 1e9, SECONDS_DIGITS).tolist(),
        end_s=np.round(end / 1e9, SECONDS_DIGITS).tolist(),
        meeting=meetings.tolist(),
        open=np.flatnonzero(spans.open[rows]).tolist(),
        wait_s=np.round(edges / 1e9, SECONDS_DIGITS).tolist(),
    )


def _depths(start: NDArray[np.int64], end: NDArray[np.int64]) -> list[int]:
    """Return how many spans lie around each; rows are by start, the longest first."""
    open_ends: list[int] = []
    depths = []
    for start_ns, own_end_ns in zip(start.tolist(), end.tolist(), strict=True):
        open_ends = [end_ns for end_ns in open_ends if end_ns > start_ns]
        depths.append(len(open_ends))
        open_ends.append(own_end_ns)
    return depths


MAX_POINTS = 500
# A page with 64 GPUs would hold 500 tracks; a reader looks at these few, in this order.
MAX_TRACKS = 48
_ORDER = (
    "gpu.util", "gpu.sm_active", "gpu.memory_used", "host.cpu", "rank.cpu", "host.memory_available",
    "gpu.power", "gpu.sm_clock", "host.psi_cpu", "host.psi_io", "host.psi_memory",
)  # fmt: skip
_GROUPS = {"gpu": "gpu", "host": "host", "rank": "rank", "counter": "rank"}


def track_entries(trace: Trace) -> tuple[list[TrackEntry], int]:
    """Return the series to draw, and how many were left out."""
    sampled = [s for s in trace.series if np.isfinite(s.values).any()]
    first = {name: at for at, name in enumerate(_ORDER)}
    sampled.sort(key=lambda s: (first.get(s.name, len(_ORDER)), s.name))
    chosen = sampled[:MAX_TRACKS]
    several_hosts = len({s.host for s in chosen}) > 1
    index = {gpu.uuid: gpu.index for gpu in trace.gpus}
    entries = []
    for series in chosen:
        t_ns, values = thinned(series.t_ns, series.values, MAX_POINTS)
        entries.append(
            TrackEntry(
                name=series.name,
                label=_label_of_server(trace, series)
                if series.of_joined_server
                else _label(series, index, several_hosts),
                unit=series.unit,
                group="rank" if series.of_joined_server else _GROUPS.get(series.scope, "host"),
                t_s=np.round(t_ns / 1e9, min(3, SECONDS_DIGITS)).tolist(),
                v=significant_column(values),
            )
        )
    return entries, len(sampled) - len(chosen)


def _label_of_server(trace: Trace, series: Series) -> str:
    server = trace.server_of(series)
    role = "server" if server is None else server.role
    return f"{role} of {series.host}, pid {series.pid}: {series.name}"


def _label(series: Series, index: dict[str, int], several_hosts: bool) -> str:
    words = [series.name]
    if series.gpu is not None:
        words.append(f"GPU {index.get(series.gpu, series.gpu)}")
    if series.rank is not None:
        words.append(f"rank {series.rank}")
    elif series.pid is not None:
        words.append(f"pid {series.pid}")
    if several_hosts and series.host:
        words.append(series.host)
    return " ".join(words)


# What generates. A Ray job's actors carry the phases of the ranks themselves.
_ROLES = ("rollout", "engine", "rollout-loop")
# Beyond them a reader compares no curves; of a hundred engines the first ones stand for the rest.
MAX_PROCESSES = 8
_BUCKETS = 200
_SHORTEST_NS = 100_000_000
# Spans in which a process waits for others: not busy.
_WAITS = ("rollout/wait", "rollout/queue", "sync/pause")


def role_tracks(trace: Trace) -> list[TrackEntry]:
    """Return the share of time in which each such process was in any span of work, over the run."""
    processes = [p for p in trace.processes if p.role in _ROLES][:MAX_PROCESSES]
    tracks = [_track(trace, process) for process in processes]
    return [track for track in tracks if track is not None]


def _track(trace: Trace, process: Process) -> TrackEntry | None:
    busy = _busy(trace, process)
    duration_ns = trace.run.duration_ns
    if not len(busy) or duration_ns <= 0:
        return None
    count = max(1, min(_BUCKETS, duration_ns // _SHORTEST_NS))
    edges = np.linspace(0, duration_ns, count + 1).astype(np.int64)
    buckets = Intervals(edges[:-1], edges[1:])
    share = _share(busy, buckets)
    return TrackEntry(
        name=f"{process.role}.busy",
        label=f"{process.role} of {process.host}, pid {process.os_pid}: busy",
        unit="%",
        group="rank",
        t_s=np.round(buckets.start_ns / 1e9, min(3, SECONDS_DIGITS)).tolist(),
        v=significant_column(100 * share),
    )


def _busy(trace: Trace, process: Process) -> Intervals:
    spans = trace.spans
    block = spans.of_process(process.index)
    waits = [trace.names.index(name) for name in _WAITS if name in trace.names]
    works = (spans.kind[block] == Kind.SPAN) & ~np.isin(spans.name[block], waits)
    return union(spans.start_ns[block][works], spans.end_ns[block][works])


def _share(busy: Intervals, buckets: Intervals) -> NDArray[np.float64]:
    pieces = overlaps(busy, buckets)
    covered = np.bincount(pieces.right, weights=pieces.length_ns, minlength=len(buckets))
    return covered / (buckets.end_ns - buckets.start_ns)
