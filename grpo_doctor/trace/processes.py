"""One process's recording, its span file and its rank file, and the rows that they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.errors import TraceError
from grpo_doctor.trace import columns, spanfile
from grpo_doctor.trace.jsonfile import MAX_TIME_NS, moment, read_object, whole
from grpo_doctor.trace.model import STEP_ROLES, Kind, Process, Spans
from grpo_doctor_probes.procs.live import OpenSpan, name_of
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.record.rundir import DRIVER, SPANS_SUFFIX, TRAJECTORIES_SUFFIX

# Imports of a training stack from a slow disk take minutes. A process that began to record later
# than this was doing something else before, such as a notebook's kernel.
_MAX_INIT_NS = 3600 * 1_000_000_000


@dataclass(frozen=True)
class Recording:
    """What one process left: records with local times, `trajectories`, and `facts`, its rank file.

    `joined` marks a server, which starts and ends independently of the run.
    """

    stem: str
    content: spanfile.SpanRecords
    facts: Mapping[str, Any]
    role: str = "trainer"
    joined: bool = False
    trajectories: spanfile.SpanRecords | None = None

    @property
    def rank(self) -> int:
        """The rank as the process knew it when it began."""
        return self.content.header.rank

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.content.header.pid

    @property
    def parent_pid(self) -> int | None:
        """The process that started it."""
        return whole(self.facts.get("parent_pid"))

    @property
    def host(self) -> str:
        """Its host's name."""
        return str(self.facts.get("host") or "unknown")

    @property
    def local_rank(self) -> int | None:
        """Its rank within the host, if recorded."""
        return whole(self.facts.get("local_rank"))

    @property
    def clock(self) -> Mapping[str, Any]:
        """Its clock, for `clocks.align`; where the rank file is lost, the header's one reading."""
        if self.facts.get("clock_id") or self.facts.get("clocks"):
            return self.facts
        header = self.content.header
        reading = {"monotonic_ns": header.start_monotonic_ns, "unix_ns": header.start_unix_ns}
        return {"clocks": [reading]}

    @property
    def stated_role(self) -> str | None:
        """What the process itself said it is; None for a rank and for what a rank forked."""
        role = self.facts.get("role")
        return role if isinstance(role, str) and role else None

    @property
    def state(self) -> str:
        """`finished` if it ended in order; `open` if it was killed or still runs."""
        return "finished" if self.content.header.closed_ns else "open"

    @cached_property
    def main_thread(self) -> int:
        """The thread that carries the steps; without steps the one that recorded first."""
        records = self.content.records
        steps = np.flatnonzero(records["kind"] == layout.STEP)
        if len(steps):
            return int(records["thread"][steps[0]])
        return next((o.thread for o in self.open_spans if o.kind == layout.STEP), 0)

    @cached_property
    def open_spans(self) -> tuple[OpenSpan, ...]:
        """Spans without an end. Of a process that ended in order nothing is open."""
        header = self.content.header
        if header.closed_ns:
            return ()
        times = range(header.start_monotonic_ns, MAX_TIME_NS)
        return tuple(o for o in header.open_spans if o.start_ns in times)

    @property
    def begun_ns(self) -> int:
        """Local time at which it began to record."""
        return self.content.header.start_monotonic_ns

    @property
    def first_ns(self) -> int:
        """Local time at which the process was started, or began to record if that is unknown."""
        started = moment(self.facts.get("process_start_ns"))
        begin = self.begun_ns
        return begin if started is None or begin - started > _MAX_INIT_NS else min(started, begin)

    @cached_property
    def last_ns(self) -> int:
        """Local time of the last thing that the process itself wrote."""
        header, records = self.content.header, self.content.records
        latest = int(records["end_ns"].max()) if len(records) else 0
        opened = max((o.start_ns for o in self.open_spans), default=0)
        return max(header.closed_ns, latest, opened, header.start_monotonic_ns)

    def name(self, name_id: int) -> str:
        """Return a name of this process by its id, without arguments."""
        return _split(name_of(self.content.header.names, name_id))[0]


class Recorded(NamedTuple):
    """A span file by its name: what is in it if it can be read, and what is wrong with it."""

    name: str
    recording: Recording | None
    problems: tuple[str, ...] = ()


def read_recording(path: Path) -> Recorded:
    """Read a span file, and the rank file and trajectories next to it."""
    content, problems = _read(path, spanfile.SPAN_KINDS)
    if content is None:
        return Recorded(path.name, None, tuple(problems))
    facts, problem = read_object(path.with_name(path.name.removesuffix(SPANS_SUFFIX) + ".json"))
    problems += [problem] if problem else []
    beside, trajectories = path.with_suffix(TRAJECTORIES_SUFFIX), None
    if beside.exists():
        trajectories, more = _read(beside, spanfile.TRAJECTORY_KINDS)
        problems += more
    recording = Recording(path.stem, content, facts, trajectories=trajectories)
    return Recorded(path.name, recording, tuple(problems))


def _read(path: Path, kinds: range) -> tuple[spanfile.SpanRecords | None, list[str]]:
    try:
        content = spanfile.read_span_file(path, kinds)
    except TraceError as error:
        return None, [str(error)]
    problems = []
    if content.truncated:
        problems.append(f"{path.name}: cut off; the records that are there are used")
    if content.damaged:
        problems.append(f"{path.name}: {content.damaged} damaged records left out")
    return content, problems


def by_rank(recordings: Sequence[Recording]) -> list[Recording]:
    """Return all recordings of a run by rank, each with its role."""
    # A rank's forked children record under its rank; a restarted rank has another parent.
    ranks = {(r.host, r.pid) for r in recordings}
    driven = any(r.stated_role == DRIVER for r in recordings)
    roles = [replace(r, role=_role(r, ranks, driven=driven)) for r in recordings]
    return sorted(roles, key=lambda r: (r.rank, r.role not in STEP_ROLES, r.begun_ns, r.stem))


def _role(recording: Recording, ranks: set[tuple[str, int]], *, driven: bool) -> str:
    if recording.stated_role:
        return recording.stated_role
    forked = (recording.host, recording.parent_pid) in ranks
    return "worker" if forked or driven else "trainer"


class NameTable:
    """All names and all argument objects (JSON text) of a run, without duplicates."""

    def __init__(self) -> None:
        self.names, self.args = columns.Interned(), columns.Interned()

    def ids(self, name: str, args: str) -> tuple[int, int]:
        """Return the ids of a name and of its arguments, -1 without any."""
        return self.names[name], self.args[args] if args else -1

    def translation(self, recording: Recording) -> NDArray[np.int32]:
        """Name and argument ids (n, 2) of the run by the name id of one file, 0 included."""
        entries = (name_of((), 0), *recording.content.header.names)
        return np.array([self.ids(*_split(entry)) for entry in entries], dtype=np.int32)


def _split(entry: str) -> tuple[str, str]:
    name, _, args = entry.partition(layout.ARGS_SEPARATOR)
    return name, args


_COLLECTIVES = (Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT)


def rows_of(recording: Recording, process: Process, table: NameTable, shift_ns: int) -> Spans:
    """Return all spans of a process; `shift_ns` takes its clock to the trace's."""
    ids = table.translation(recording)
    closed = _closed(recording, process, ids, shift_ns)
    opened = _open(recording, process, table, shift_ns)
    return _from_process_start(columns.join([closed, opened]), process, table.names.names)


def _closed(recording: Recording, process: Process, ids: NDArray[np.int32], shift_ns: int) -> Spans:
    records = recording.content.records
    records = records[records["kind"] != layout.COUNTER]
    return columns.spans_from(
        {
            "kind": records["kind"],
            "process": np.full(len(records), process.index),
            "thread": _main_first(records["thread"].astype(np.int32), recording.main_thread),
            "depth": records["depth"],
            "name": ids[records["name"], 0],
            "args": ids[records["name"], 1],
            "start_ns": records["start_ns"] + shift_ns,
            "end_ns": records["end_ns"] + shift_ns,
            "value": records["value"],
            "open": np.zeros(len(records), dtype=np.bool_),
        }
    )


def _open(recording: Recording, process: Process, table: NameTable, shift_ns: int) -> Spans:
    rows = columns.Rows()
    depths: dict[int, int] = {}
    for span in recording.open_spans:
        kind = Kind(span.kind) if span.kind in (Kind.STEP, *_COLLECTIVES) else Kind.SPAN
        depth = depths[span.thread] = depths.get(span.thread, -1) + 1
        name, args = table.ids(span.name, span.args)
        value = float(span.sequence)
        if kind == Kind.STEP:
            value = float(recording.content.header.step or 0)
        thread = int(_main_first(np.array([span.thread]), recording.main_thread)[0])
        start_ns = span.start_ns + shift_ns
        end_ns = max(process.end_ns or 0, start_ns)
        own = {"process": process.index, "thread": thread, "depth": depth, "args": args}
        rows.add(kind, name, start_ns, end_ns, value=value, open=True, **own)
    return rows.spans()


def _main_first(threads: NDArray[Any], main: int) -> NDArray[Any]:
    """Thread slots renumbered so that the step's thread is 0."""
    if main == 0:
        return threads
    return np.where(threads == main, 0, np.where(threads == 0, main, threads))


def _from_process_start(spans: Spans, process: Process, names: tuple[str, ...]) -> Spans:
    """The first `init` begins with the process: interpreter and recorder imports are part of it."""
    if len(spans) == 0 or process.start_ns is None:
        return spans
    if names[spans.name[0]] != "init" or spans.depth[0] != 0:
        return spans
    start_ns = spans.start_ns.copy()
    start_ns[0] = process.start_ns
    return replace(spans, start_ns=start_ns)
