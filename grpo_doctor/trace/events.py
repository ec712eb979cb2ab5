"""A trace as Chrome Trace Event lines, for `trace.json`.

Rules kept here were found by running Perfetto's engine: pid and tid never 0, `ts` relative and
exact to the nanosecond, UTF-8 instead of escapes, no NaN, `B` without `E` for what never ended, and
spans of a track that nest: Perfetto 51 to 58 drops a child that ends one nanosecond after its
parent (google/perfetto issues 4280 and 6277).

Tracks (`tid`) of a process: 1 phases of the step's thread, 2 its collectives, 3 its GPU time; 10
and up other threads' spans, 200 and up their collectives, 300 and up their GPU time; 1000 and up
overflow of the track below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.model import Kind, Process, Spans, Trace

PHASES, COLLECTIVES, GPU_TIME = 1, 2, 3
THREADS, THREAD_COLLECTIVES, THREAD_GPU_TIME = 10, 200, 300
OVERFLOW = 1000
CATEGORIES = {
    Kind.SPAN: "grpo.phase",
    Kind.STEP: "grpo.step",
    Kind.INSTANT: "grpo.instant",
    Kind.COLLECTIVE: "grpo.collective",
    Kind.COLLECTIVE_WAIT: "grpo.wait",
    Kind.CUDA_SPAN: "grpo.gpu",
}


def lanes_of(kind: NDArray[np.uint8], thread: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the track of each row, before overflow."""
    collective = (kind == Kind.COLLECTIVE) | (kind == Kind.COLLECTIVE_WAIT)
    gpu = kind == Kind.CUDA_SPAN
    main = np.select([collective, gpu], [COLLECTIVES, GPU_TIME], PHASES)
    other = np.select([collective, gpu], [THREAD_COLLECTIVES, THREAD_GPU_TIME], THREADS)
    return np.where(thread == 0, main, other + thread).astype(np.int32)


def title(lane: int) -> str:
    """Return what a track is called in Perfetto."""
    base, overflow = lane % OVERFLOW, lane // OVERFLOW
    if base >= THREAD_GPU_TIME:
        name = f"thread {base - THREAD_GPU_TIME} GPU time"
    elif base >= THREAD_COLLECTIVES:
        name = f"thread {base - THREAD_COLLECTIVES} collectives"
    elif base >= THREADS:
        name = f"thread {base - THREADS}"
    else:
        name = {PHASES: "steps and phases", COLLECTIVES: "collectives", GPU_TIME: "GPU time"}[base]
    return f"{name} (overlapping {overflow})" if overflow else name


# A child may end this much after its parent through clock reading alone; more is an overlap of
# its own (interleaved coroutines, a shared thread slot) and gets a lane of its own.
CLAMP_NS = 50_000
# A thousand coroutines at once are seen in agentic rollouts. What finds no place on this many lanes
# goes on the last one as it is: drawn wrongly there, read back by us unharmed.
MAX_LANES = 256


def nest(
    start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """End and overflow lanes for one lane's spans.

    Args:
        start_ns: ascending; of equal starts the longest first.
        end_ns: not before `start_ns`.

    Returns:
        The ends, children clamped into their parents, and per span the lane it fits on: 0 is the
        lane itself, 1 and up are overflow lanes. Within a lane spans nest, but for those beyond
        the capacity of MAX_LANES, which are on the last one.
    """
    if (end_ns[:-1] <= start_ns[1:]).all():  # the common case: none overlaps the next
        return end_ns, np.zeros(len(end_ns), dtype=np.int32)
    ends = end_ns.copy()
    lanes = np.zeros(len(ends), dtype=np.int32)
    stacks: list[list[int]] = [[]]
    for row, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist())):
        lanes[row], ends[row] = _lane_of(stacks, start, end)
    return ends, lanes


def _lane_of(stacks: list[list[int]], start: int, end: int) -> tuple[int, int]:
    """The lane of the next span and its end there; `stacks` has the open ends of each lane."""
    for lane, stack in enumerate(stacks):
        while stack and stack[-1] <= start:
            stack.pop()
        if not stack or end <= stack[-1] + CLAMP_NS:
            inner = min(end, stack[-1]) if stack else end
            stack.append(inner)
            return lane, inner
    if len(stacks) < MAX_LANES:
        stacks.append([end])
        return len(stacks) - 1, end
    return MAX_LANES - 1, end


GPU_PID, HOST_PID = 10_000_000, 20_000_000
# `C` events are for the eye; the full rate is in grpoDoctorSeries. 84 bytes each.
MAX_COUNTER_EVENTS = 500
MAX_NAME = 200
_CHUNK = 50_000
_MAX_INTEGER = 1 << 62  # what every reader of JSON takes for a 64-bit integer
_encode = msgspec.json.Encoder().encode


def text(value: Any) -> str:
    """JSON in UTF-8, without escapes that Perfetto would show as they are; lone surrogates, as
    in file names that are not UTF-8, become question marks."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        return _encode(_without_surrogates(msgspec.to_builtins(value))).decode()


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value


def finite(value: Any, levels: int = 64) -> Any:
    """Return a configuration as JSON: NaN, infinities and integers past 64 bits as strings, unknown
    objects and what is nested deeper than `levels` as their text."""
    if isinstance(value, (Mapping, list, tuple)) and levels:
        if isinstance(value, Mapping):
            return {str(k): finite(v, levels - 1) for k, v in value.items()}
        return [finite(v, levels - 1) for v in value]
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, int) and abs(value) <= _MAX_INTEGER:
        return value
    return str(value)


def metadata_lines(trace: Trace, tracks: dict[int, set[int]]) -> Iterator[str]:
    """Yield names of processes and tracks; `tracks` maps a pid to the lanes in use."""
    for process in trace.processes:
        label = _label(process)
        yield from _process(process.pid, f"{label} · {process.host}", process.rank * 10)
        for lane in sorted(tracks.get(process.pid, ())):
            yield _meta(process.pid, lane, "thread_name", {"name": title(lane)})
            yield _meta(process.pid, lane, "thread_sort_index", {"sort_index": lane})
    for index, gpu in enumerate(trace.gpus):
        yield from _process(GPU_PID + index, f"GPU {gpu.index} · {gpu.host}", 100_000 + index)
    for index, host in enumerate(hosts(trace)):
        yield from _process(HOST_PID + index, f"host {host}", 200_000 + index)


def _label(process: Process) -> str:
    if process.role == "driver":
        return process.role
    return f"rank {process.rank}" + ("" if process.role == "trainer" else f" {process.role}")


def _process(pid: int, name: str, sort_index: int) -> Iterator[str]:
    yield _meta(pid, 1, "process_name", {"name": name})
    yield _meta(pid, 1, "process_sort_index", {"sort_index": sort_index})


def _meta(pid: int, tid: int, name: str, args: dict[str, Any]) -> str:
    return text({"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args})


def nested(trace: Trace) -> tuple[Spans, np.ndarray[Any, np.dtype[np.int32]]]:
    """Return the spans with ends clamped so that each track nests, and the track of each."""
    spans = trace.spans
    lane = lanes_of(spans.kind, spans.thread)
    ends = spans.end_ns.copy()
    key = spans.process.astype(np.int64) * OVERFLOW + lane
    order = np.argsort(key, kind="stable")  # keeps starts ascending within a track
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        if len(rows):
            ends[rows], overflow = nest(spans.start_ns[rows], ends[rows])
            lane[rows] += overflow * OVERFLOW
    clamped = {name: getattr(spans, name) for name in spans.__dataclass_fields__}
    return Spans(**{**clamped, "end_ns": ends}), lane


def span_lines(trace: Trace, spans: Spans, lane: Any) -> Iterator[str]:
    """Yield one line per span, by start."""
    texts = _Texts(trace)
    order = np.argsort(spans.start_ns, kind="stable")
    for begin in range(0, len(order), _CHUNK):
        rows = order[begin : begin + _CHUNK]
        yield from _lines(spans.select(rows), lane[rows], texts)


class _Texts:
    """The parts of lines that many spans share, as JSON."""

    def __init__(self, trace: Trace) -> None:
        self.names = [text(name[:MAX_NAME]) for name in trace.names]
        self.pids = np.array([p.pid for p in trace.processes], dtype=np.int64)
        # The last is that of -1: no arguments.
        self.args = [*(f'"args":{{{text(finite(a))[1:-1]}}}}}' for a in trace.args), '"args":{}}']


def _lines(spans: Spans, lane: NDArray[Any], texts: _Texts) -> list[str]:
    start_us, start_ns = np.divmod(spans.start_ns, 1000)
    dur_us, dur_ns = np.divmod(spans.end_ns - spans.start_ns, 1000)
    columns = zip(
        _shapes(spans), dur_us.tolist(), dur_ns.tolist(),
        texts.pids[spans.process].tolist(), lane.tolist(),
        spans.kind.tolist(), spans.name.tolist(),
        start_us.tolist(), start_ns.tolist(), spans.depth.tolist(), _tails(spans, texts),
    )  # fmt: skip
    names, category = texts.names, _CATEGORY
    # One expression and no call per line: 10 million lines take 20 s and not 45.
    return [
        f'{{{shape or f"{_COMPLETE}{us}.{ns:03d},"}"pid":{pid},"tid":{tid},'
        f'"cat":"{category[kind]}","name":{names[name]},"ts":{ts}.{ts_ns:03d},"depth":{depth},{tail}'
        for shape, us, ns, pid, tid, kind, name, ts, ts_ns, depth, tail in columns
    ]


def _shapes(spans: Spans) -> list[str]:
    """Return what kind of event each span is; "" for complete ones, which have a duration."""
    shapes = np.where(spans.kind == Kind.INSTANT, 1, 0)
    shapes[spans.open] = 2
    return [_SHAPES[shape] for shape in shapes.tolist()]


def _tails(spans: Spans, texts: _Texts) -> list[str]:
    """Return the end of each line: its value, if it has one, and its arguments."""
    # `value` and `depth` are ours; every reader of the format skips keys that it does not know.
    tails = [texts.args[row] for row in spans.args.tolist()]
    values = np.where(np.isfinite(spans.value), spans.value, 0.0)  # JSON has no others
    steps = spans.kind == Kind.STEP
    rows = np.flatnonzero((values != 0) | steps)
    for row, is_step, value in zip(rows.tolist(), steps[rows].tolist(), values[rows].tolist()):
        if is_step:
            tails[row] = f'"args":{{"step":{int(value)}}}}}'
        if value:
            tails[row] = f'"value":{value!r},{tails[row]}'
    return tails


_CATEGORY = {int(kind): category for kind, category in CATEGORIES.items()}
_COMPLETE = '"ph":"X","dur":'
_SHAPES = ("", '"ph":"i","s":"t",', '"ph":"B",')


def microseconds(ns: int) -> str:
    """Nanoseconds as the format's microseconds, exact: three decimals, no float in between."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def counter_lines(trace: Trace) -> Iterator[str]:
    """Yield a thinned view of every series, finite values only."""
    for series, pid in zip(trace.series, series_pids(trace)):
        name = series.name if series.scope != "rank" else f"{series.name} rank {series.rank}"
        label, unit = text(name[:MAX_NAME]), text(series.unit or "value")
        known = np.isfinite(series.values)
        times, values = thinned(series.t_ns[known], series.values[known], MAX_COUNTER_EVENTS)
        for t_ns, value in zip(times.tolist(), values.tolist()):
            yield (
                f'{{"ph":"C","pid":{pid},"tid":1,"name":{label},"ts":{microseconds(t_ns)},'
                f'"args":{{{unit}:{value!r}}}}}'
            )


def thinned(
    t_ns: NDArray[np.int64], values: NDArray[np.float64], limit: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """At most `limit` points: the smallest and the largest of each stretch of samples."""
    if len(values) <= limit:
        return t_ns, values
    edges = np.linspace(0, len(values), limit // 2 + 1).astype(np.intp)[:-1]
    size = np.diff(np.r_[edges, len(values)])
    bucket = np.repeat(np.arange(len(edges)), size)
    # Unknown values sort last, so the largest known one is the last before them.
    order = np.lexsort((values, bucket))
    finite = np.add.reduceat(np.isfinite(values).astype(np.intp), edges)
    lowest, highest = order[edges], order[edges + np.maximum(finite - 1, 0)]
    rows = np.unique(np.concatenate([lowest, highest]))
    return t_ns[rows], values[rows]


def hosts(trace: Trace) -> list[str]:
    """Hosts in the order of their first process or series."""
    names = [p.host for p in trace.processes] + [s.host for s in trace.series]
    return list(dict.fromkeys(names))


def series_pids(trace: Trace) -> list[int]:
    """The process that each series is drawn under: a rank's, a server's, a GPU's, or its host's."""
    ranks = {process.rank: process.pid for process in reversed(trace.processes)}
    gpus = {gpu.uuid: GPU_PID + index for index, gpu in reversed([*enumerate(trace.gpus)])}
    host_pids = {host: HOST_PID + index for index, host in enumerate(hosts(trace))}
    pids = []
    for series in trace.series:
        server = trace.server_of(series)
        own = ranks.get(series.rank) if series.rank is not None else None
        if server is not None:
            own = server.pid
        if own is None and series.gpu is not None:
            own = gpus.get(series.gpu)
        pids.append(host_pids[series.host] if own is None else own)
    return pids
