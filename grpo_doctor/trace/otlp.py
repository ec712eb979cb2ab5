"""A recording as OpenTelemetry's protocol in JSON lines: a request of spans per line.

Names follow an open proposal and change with it; what it has no name for is `grpo_doctor.<phase>`:
https://github.com/open-telemetry/semantic-conventions-genai/issues/88
The encoding: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from grpo_doctor import __version__
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.model import Kind, Process, Spans, Trace

LOOP = "rl.loop"
PHASES = {"rollout": "rl.sample", "reward": "rl.reward", "train": "rl.train", "sync": "rl.sync"}
_OURS = "grpo_doctor"
_SCOPE = {"name": "grpo-doctor", "version": __version__}
_SPANS_PER_LINE = 2000
_INTERNAL = 1  # SpanKind
_RANKS, _SPANS = 6, 10  # hexadecimal digits of a span's id


def otlp_lines(trace: Trace) -> Iterator[bytes]:
    """Yield the spans of every process: steps, phases and what is in them."""
    roots = _Roots(trace)
    for process in trace.processes:
        spans = list(_spans(trace, process, roots))
        resource = _resource(trace, process)
        for begin in range(0, len(spans), _SPANS_PER_LINE):
            scope = {"scope": _SCOPE, "spans": spans[begin : begin + _SPANS_PER_LINE]}
            request = {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}
            yield msgspec.json.encode(request) + b"\n"


class _Roots:
    """The steps of the first process that has any: the roots, one trace each."""

    def __init__(self, trace: Trace) -> None:
        spans = trace.spans
        rows = np.flatnonzero(spans.kind == Kind.STEP)
        rows = rows[spans.process[rows] == spans.process[rows[0]]] if len(rows) else rows
        first = int(spans.process[rows[0]]) if len(rows) else 0
        base = spans.of_process(first).start
        self._trace = trace
        self._start_ns, self._end_ns = spans.start_ns[rows].tolist(), spans.end_ns[rows].tolist()
        self._numbers = spans.value[rows].astype(int).tolist()
        self._ids = {n: _span_id(first, int(r) - base) for n, r in zip(self._numbers, rows)}

    def of(self, spans: Spans, row: int) -> tuple[str, str]:
        """Return the trace of a span that has none around it, and the step it is in."""
        number = int(spans.value[row]) if spans.kind[row] == Kind.STEP else None
        if number is None:
            index = bisect_right(self._start_ns, int(spans.start_ns[row])) - 1
            if index >= 0 and spans.start_ns[row] < self._end_ns[index]:
                number = self._numbers[index]
        # Before the first step or after the last: the run's own trace.
        part = "run" if number not in self._ids else str(number)
        text = f"{self._trace.run.id}/{self._trace.run.started_unix_ns}/{part}"
        trace_id = hashlib.sha256(text.encode()).hexdigest()[:32]
        return trace_id, self._ids.get(number, "")


def _spans(trace: Trace, process: Process, roots: _Roots) -> Iterator[dict[str, Any]]:
    """Yield spans; a parent is what is open around a span in its thread, else a root."""
    spans = trace.spans.select(trace.spans.of_process(process.index))
    open_by_thread: dict[int, list[tuple[int, str, str]]] = {}
    for row in np.flatnonzero(np.isin(spans.kind, (Kind.STEP, Kind.SPAN))).tolist():
        start_ns, end_ns = int(spans.start_ns[row]), int(spans.end_ns[row])
        stack = open_by_thread.setdefault(int(spans.thread[row]), [])
        while stack and stack[-1][0] <= start_ns:
            stack.pop()
        identity = _span_id(process.index, row)
        trace_id, parent = stack[-1][1:] if stack else roots.of(spans, row)
        stack.append((end_ns, trace_id, identity))
        yield {
            "traceId": trace_id,
            "spanId": identity,
            **({"parentSpanId": parent} if parent not in ("", identity) else {}),
            "name": _name(trace, spans, row),
            "kind": _INTERNAL,
            "startTimeUnixNano": str(trace.run.started_unix_ns + start_ns),
            "endTimeUnixNano": str(trace.run.started_unix_ns + end_ns),
            "attributes": _attributes(_span_facts(trace, spans, row)),
        }


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


def _span_id(process: int, row: int) -> str:
    return f"{process + 1:0{_RANKS}x}{row:0{_SPANS}x}"
