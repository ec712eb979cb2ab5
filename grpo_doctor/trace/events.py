"""A trace as Chrome Trace Event lines, for `trace.json`.

Rules kept here were found by running Perfetto's engine: pid and tid never 0, `ts` relative and
exact to the nanosecond, UTF-8 instead of escapes, no NaN, `B` without `E` for what never ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace import lanes
from grpo_doctor.trace.model import Kind, Process, Series, Spans, Trace
from grpo_doctor.trace.nesting import nest

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
            yield _meta(process.pid, lane, "thread_name", {"name": lanes.title(lane)})
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
    lane = lanes.lanes_of(spans.kind, spans.thread)
    ends = spans.end_ns.copy()
    key = spans.process.astype(np.int64) * lanes.OVERFLOW + lane
    order = np.argsort(key, kind="stable")  # keeps starts ascending within a track
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        if len(rows):
            ends[rows], overflow = nest(spans.start_ns[rows], ends[rows])
            lane[rows] += overflow * lanes.OVERFLOW
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


_CATEGORY = {int(kind): category for kind, category in lanes.CATEGORIES.items()}
_COMPLETE = '"ph":"X","dur":'
_SHAPES = ("", '"ph":"i","s":"t",', '"ph":"B",')


def microseconds(ns: int) -> str:
    """Nanoseconds as the format's microseconds, exact: three decimals, no float in between."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def counter_lines(trace: Trace) -> Iterator[str]:
    """Yield a thinned view of every series: minimum and maximum per interval."""
    for series in trace.series:
        pid = series_pid(trace, series)
        name = series.name if series.scope != "rank" else f"{series.name} rank {series.rank}"
        label, unit = text(name[:MAX_NAME]), text(series.unit or "value")
        for t_ns, value in thin(series, MAX_COUNTER_EVENTS):
            yield (
                f'{{"ph":"C","pid":{pid},"tid":1,"name":{label},"ts":{microseconds(t_ns)},'
                f'"args":{{{unit}:{value!r}}}}}'
            )


def thin(series: Series, at_most: int) -> list[tuple[int, float]]:
    """(time, value) pairs, finite only; of each interval the lowest and the highest."""
    finite = np.isfinite(series.values)
    t_ns, values = series.t_ns[finite], series.values[finite]
    if len(t_ns) > at_most:
        edges = np.linspace(0, len(t_ns), at_most // 2 + 1).astype(np.intp)[:-1]
        keep: set[int] = set()
        for begin, end in zip(edges, [*edges[1:], len(t_ns)]):
            if end > begin:
                part = values[begin:end]
                keep |= {int(begin + part.argmin()), int(begin + part.argmax())}
        rows = np.array(sorted(keep), dtype=np.intp)
        t_ns, values = t_ns[rows], values[rows]
    return list(zip(t_ns.tolist(), values.tolist()))


def hosts(trace: Trace) -> list[str]:
    """Hosts in the order of their first process or series."""
    names = [p.host for p in trace.processes] + [s.host for s in trace.series]
    return list(dict.fromkeys(names))


def series_pid(trace: Trace, series: Series) -> int:
    """The process that a series is drawn under: a rank's, a server's, a GPU's, or its host's."""
    server = trace.server_of(series)
    if server is not None:
        return server.pid
    if series.rank is not None:
        for process in trace.processes:
            if process.rank == series.rank:
                return process.pid
    if series.gpu is not None:
        for index, gpu in enumerate(trace.gpus):
            if gpu.uuid == series.gpu:
                return GPU_PID + index
    return HOST_PID + hosts(trace).index(series.host)
