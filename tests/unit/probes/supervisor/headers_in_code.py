"""Headers of span files, built in code."""

from __future__ import annotations

from grpo_doctor_probes.procs.live import Header, OpenSpan
from grpo_doctor_probes.record import layout

S = 1_000_000_000


def span(name: str, start_s: float, kind: int = layout.SPAN, thread: int = 0) -> OpenSpan:
    return OpenSpan(name, round(start_s * S), thread, kind=kind)


def header(
    *spans: OpenSpan,
    rank: int = 0,
    pid: int = 100,
    names: tuple[str, ...] = (),
    closed_ns: int = 0,
    begun_s: float = 0,
) -> Header:
    """`begun_s`: when a span began that has ended."""
    return Header(
        pid=pid,
        rank=rank,
        start_monotonic_ns=0,
        start_unix_ns=0,
        dropped=0,
        segments=1,
        name_overflow=0,
        closed_ns=closed_ns,
        errors=0,
        step=None,
        names=names or tuple(s.name for s in spans),
        threads=("MainThread",),
        open_spans=spans,
        begun_ns=(max([round(begun_s * S), *(s.start_ns for s in spans if s.thread == 0)]),),
    )
