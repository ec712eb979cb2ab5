"""A recording as OpenTelemetry's protocol in JSON lines: a request of spans or metrics per line.

Names follow an open proposal and change with it; what it has no name for is `grpo_doctor.<phase>`:
https://github.com/open-telemetry/semantic-conventions-genai/issues/88
The encoding: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from grpo_doctor import __version__
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.model import Kind, Process, Spans, Trace

LOOP = "rl.loop"
PHASES = {"rollout": "rl.sample", "reward": "rl.reward", "train": "rl.train", "sync": "rl.sync"}
_OURS = "grpo_doctor"
_SPANS_PER_LINE = 2000
_INTERNAL = 1  # SpanKind
_CUMULATIVE = 2  # AggregationTemporality
_RANKS, _SPANS = 6, 10  # hexadecimal digits of a span's id


def otlp_lines(trace: Trace) -> Iterator[bytes]:
    """Yield spans of every process, then the durations of loops and phases as histograms."""
    loops = _Loops.of(trace)
    for process in trace.processes:
        spans = list(_spans(trace, process, loops))
        resource = _resource(trace, process)
        for begin in range(0, len(spans), _SPANS_PER_LINE):
            scope = {"scope": _SCOPE, "spans": spans[begin : begin + _SPANS_PER_LINE]}
            yield _line({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})
    for process in trace.processes:
        metrics = list(_histograms(trace, process))
        if metrics:
            scope = {"scope": _SCOPE, "metrics": metrics}
            resource = _resource(trace, process)
            yield _line({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]})


_SCOPE = {"name": "grpo-doctor", "version": __version__}


@dataclass(frozen=True)
class _Loops:
    """The steps of the first process that has any: the roots, one trace each."""

    numbers: Sequence[int]
    start_ns: Any
    end_ns: Any
    ids: Sequence[str]

    @classmethod
    def of(cls, trace: Trace) -> _Loops:
        spans = trace.spans
        rows = np.flatnonzero(spans.kind == Kind.STEP)
        rows = rows[spans.process[rows] == spans.process[rows[0]]] if len(rows) else rows
        first = int(spans.process[rows[0]]) if len(rows) else 0
        base = spans.of_process(first).start
        return cls(
            numbers=[int(value) for value in spans.value[rows]],
            start_ns=spans.start_ns[rows],
            end_ns=spans.end_ns[rows],
            ids=[_span_id(first, int(row) - base) for row in rows],
        )

    def at(self, start_ns: int) -> int | None:
        """Return the index of the step that is running at a moment."""
        index = int(np.searchsorted(self.start_ns, start_ns, side="right")) - 1
        return index if index >= 0 and start_ns < self.end_ns[index] else None

    @cached_property
    def index_by_number(self) -> Mapping[int, int]:
        """The index of each step by its number."""
        return {number: index for index, number in enumerate(self.numbers)}


def _spans(trace: Trace, process: Process, loops: _Loops) -> Iterator[dict[str, Any]]:
    """Steps, phases and what is in them; a span's parent is what is open around it in its thread,
    without such the step that the first rank was in."""
    spans = trace.spans.select(trace.spans.of_process(process.index))
    open_by_thread: dict[int, list[tuple[int, str, str]]] = {}
    for row in np.flatnonzero(np.isin(spans.kind, (Kind.STEP, Kind.SPAN))).tolist():
        start_ns, end_ns = int(spans.start_ns[row]), int(spans.end_ns[row])
        stack = open_by_thread.setdefault(int(spans.thread[row]), [])
        while stack and stack[-1][0] <= start_ns:
            stack.pop()
        identity = _span_id(process.index, row)
        trace_id, parent = stack[-1][1:] if stack else ("", "")
        if not stack:
            trace_id, parent = _of_loop(trace, loops, spans, row)
        parent = "" if parent == identity else parent
        stack.append((end_ns, trace_id, identity))
        yield {
            "traceId": trace_id,
            "spanId": identity,
            **({"parentSpanId": parent} if parent else {}),
            "name": _name(trace, spans, row),
            "kind": _INTERNAL,
            "startTimeUnixNano": str(trace.run.started_unix_ns + start_ns),
            "endTimeUnixNano": str(trace.run.started_unix_ns + end_ns),
            "attributes": _attributes(_span_facts(trace, spans, row)),
        }


def _of_loop(trace: Trace, loops: _Loops, spans: Spans, row: int) -> tuple[str, str]:
    if spans.kind[row] == Kind.STEP:
        index = loops.index_by_number.get(int(spans.value[row]))
    else:
        index = loops.at(int(spans.start_ns[row]))
    if index is None:  # before the first step or after the last: the run's own trace
        return _trace_id(trace, "run"), ""
    return _trace_id(trace, str(loops.numbers[index])), loops.ids[index]


def _name(trace: Trace, spans: Spans, row: int) -> str:
    if spans.kind[row] == Kind.STEP:
        return LOOP
    name = trace.names[spans.name[row]]
    return PHASES.get(name, f"{_OURS}.{name}")


def _span_facts(trace: Trace, spans: Spans, row: int) -> dict[str, Any]:
    if spans.kind[row] == Kind.STEP:
        facts: dict[str, Any] = {"rl.loop.iteration": int(spans.value[row])}
    else:
        facts = {f"{_OURS}.phase": phase_of(trace.names[spans.name[row]])}
    return {**facts, **({f"{_OURS}.open": True} if spans.open[row] else {})}


def _histograms(trace: Trace, process: Process) -> Iterator[dict[str, Any]]:
    """Yield one point per process: how many, the sum and the extremes, in seconds."""
    spans = trace.spans.select(trace.spans.of_process(process.index))
    closed = ~spans.open
    chosen = {LOOP: closed & (spans.kind == Kind.STEP)}
    for phase, name in PHASES.items():
        if phase in trace.names:
            is_phase = (spans.kind == Kind.SPAN) & (spans.name == trace.names.index(phase))
            chosen[name] = closed & is_phase
    for name, rows in chosen.items():
        if rows.any():
            seconds = (spans.end_ns[rows] - spans.start_ns[rows]) / 1e9
            point = {
                "startTimeUnixNano": str(trace.run.started_unix_ns),
                "timeUnixNano": str(trace.run.started_unix_ns + trace.run.duration_ns),
                "count": str(len(seconds)),
                "sum": float(seconds.sum()),
                "min": float(seconds.min()),
                "max": float(seconds.max()),
                "bucketCounts": [str(len(seconds))],
                "explicitBounds": [],
            }
            histogram = {"aggregationTemporality": _CUMULATIVE, "dataPoints": [point]}
            yield {"name": f"{name}.duration", "unit": "s", "histogram": histogram}


def _resource(trace: Trace, process: Process) -> dict[str, Any]:
    run = trace.run
    return {
        "attributes": _attributes(
            {
                "service.name": run.id,
                "service.instance.id": f"{process.host}-{process.os_pid}",
                "host.name": process.host,
                "process.pid": process.os_pid,
                "rl.system": run.framework,
                "rl.system.version": run.framework_version,
                "rl.run.id": run.id,
                "rl.algorithm": "GRPO",
                "rl.model.name": run.facts.get("model.name"),
                f"{_OURS}.role": process.role,
                f"{_OURS}.rank": process.rank,
            }
        )
    }


def _attributes(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(fact)} for key, fact in facts.items() if fact is not None]


def _value(fact: object) -> dict[str, Any]:
    if isinstance(fact, bool):
        return {"boolValue": fact}
    if isinstance(fact, int):
        return {"intValue": str(fact)}
    return {"stringValue": str(fact)}


def _trace_id(trace: Trace, part: str) -> str:
    text = f"{trace.run.id}/{trace.run.started_unix_ns}/{part}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _span_id(process: int, row: int) -> str:
    return f"{process + 1:0{_RANKS}x}{row:0{_SPANS}x}"


def _line(request: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(request) + b"\n"
