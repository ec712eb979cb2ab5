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

from grpo_doctor.trace import lanes
from grpo_doctor.trace.model import Kind, Series, Spans, Trace
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
        return _encode(_without_surrogates(value)).decode()


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value


def finite(value: Any, levels: int = 64) -> Any:
    """A configuration as JSON: NaN, infinities and integers past 64 bits as strings, unknown
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
    """Names of processes and tracks; `tracks` maps a pid to the lanes in use."""
    for process in trace.processes:
        label = f"rank {process.rank}" + ("" if process.role == "trainer" else f" {process.role}")
        yield from _process(process.pid, f"{label} · {process.host}", process.rank * 10)
        for lane in sorted(tracks.get(process.pid, ())):
            yield _meta(process.pid, lane, "thread_name", {"name": lanes.title(lane)})
            yield _meta(process.pid, lane, "thread_sort_index", {"sort_index": lane})
    for index, gpu in enumerate(trace.gpus):
        yield from _process(GPU_PID + index, f"GPU {gpu.index} · {gpu.host}", 100_000 + index)
    for index, host in enumerate(hosts(trace)):
        yield from _process(HOST_PID + index, f"host {host}", 200_000 + index)


def _process(pid: int, name: str, sort_index: int) -> Iterator[str]:
    yield _meta(pid, 1, "process_name", {"name": name})
    yield _meta(pid, 1, "process_sort_index", {"sort_index": sort_index})


def _meta(pid: int, tid: int, name: str, args: dict[str, Any]) -> str:
    return text({"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args})


def place(trace: Trace) -> tuple[Spans, np.ndarray[Any, np.dtype[np.int32]]]:
    """The spans with ends clamped so that each track nests, and the track of each."""
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
    """One line per span, by start."""
    names = [text(name[:MAX_NAME]) for name in trace.names]
    pids = np.array([p.pid for p in trace.processes], dtype=np.int64)
    args = [text(finite(a))[1:-1] for a in trace.args]
    values = np.where(np.isfinite(spans.value), spans.value, 0.0)  # JSON has no others
    order = np.argsort(spans.start_ns, kind="stable")
    for begin in range(0, len(order), _CHUNK):
        rows = order[begin : begin + _CHUNK]
        columns = zip(
            spans.kind[rows].tolist(),
            pids[spans.process[rows]].tolist(),
            lane[rows].tolist(),
            spans.name[rows].tolist(),
            spans.args[rows].tolist(),
            spans.depth[rows].tolist(),
            spans.start_ns[rows].tolist(),
            spans.end_ns[rows].tolist(),
            values[rows].tolist(),
            spans.open[rows].tolist(),
        )
        for kind, pid, tid, name, details, depth, start, end, value, is_open in columns:
            yield _span(
                kind, pid, tid, names[name], args[details] if details >= 0 else "",
                depth, start, end, value, is_open,
            )  # fmt: skip


def _span(  # noqa: PLR0913 - one argument per column, called a million times
    kind: int, pid: int, tid: int, name: str, args: str,
    depth: int, start: int, end: int, value: float, is_open: bool,
) -> str:  # fmt: skip
    shape = f'"ph":"X","dur":{microseconds(end - start)},'
    if is_open:
        shape = '"ph":"B",'
    elif kind == Kind.INSTANT:
        shape = '"ph":"i","s":"t",'
    # `value` and `depth` are ours; every reader of the format skips keys that it does not know.
    number = f',"value":{value!r}' if value else ""
    if kind == Kind.STEP:
        args = f'"step":{int(value)}'
    return (
        f'{{{shape}"pid":{pid},"tid":{tid},"cat":"{_CATEGORY[kind]}","name":{name},'
        f'"ts":{microseconds(start)},"depth":{depth}{number},"args":{{{args}}}}}'
    )


_CATEGORY = {int(kind): category for kind, category in lanes.CATEGORIES.items()}


def microseconds(ns: int) -> str:
    """Nanoseconds as the format's microseconds, exact: three decimals, no float in between."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def counter_lines(trace: Trace) -> Iterator[str]:
    """A thinned view of every series: minimum and maximum per interval."""
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
    """The process that a series is drawn under: a rank's, a GPU's, or its host's."""
    if series.rank is not None:
        for process in trace.processes:
            if process.rank == series.rank:
                return process.pid
    if series.gpu is not None:
        for index, gpu in enumerate(trace.gpus):
            if gpu.uuid == series.gpu:
                return GPU_PID + index
    return HOST_PID + hosts(trace).index(series.host)
