"""One process's recording: its span file and its rank file, put on the run's common clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from grpo_doctor_probes import layout
from grpo_doctor_probes.live import OpenSpan, name_of
from grpo_doctor_probes.rundir import SPANS_SUFFIX
from numpy.typing import NDArray

from grpo_doctor.errors import TraceError
from grpo_doctor.trace.clocks import Alignment, align
from grpo_doctor.trace.jsonfile import read_object
from grpo_doctor.trace.spanfile import SpanRecords, read_span_file


@dataclass(frozen=True, slots=True)
class Recording:
    """What one process left: records with local times, and `facts`, its rank file."""

    path: Path
    content: SpanRecords
    facts: Mapping[str, Any]
    role: str = "trainer"

    @property
    def rank(self) -> int:
        """The rank as the process knew it when it began."""
        return self.content.header.rank

    @property
    def state(self) -> str:
        """`finished` if it ended in order; `open` if it was killed or still runs."""
        return "finished" if self.content.header.closed_ns else "open"

    @property
    def main_thread(self) -> int:
        """The thread that carries the steps; without steps the one that recorded first."""
        records = self.content.records
        steps = records[records["kind"] == layout.STEP]
        if len(steps):
            return int(steps["thread"][0])
        step_open = [o.thread for o in self.open_spans if o.name == "step"]
        return step_open[0] if step_open else 0

    @property
    def open_spans(self) -> tuple[OpenSpan, ...]:
        """Spans without an end. Of a process that ended in order nothing is open."""
        header = self.content.header
        return () if header.closed_ns else header.open_spans

    @property
    def first_ns(self) -> int:
        """Local time at which the process was started, or began to record if that is unknown."""
        started = self.facts.get("process_start_ns")
        begun = self.content.header.start_monotonic_ns
        return min(int(started), begun) if isinstance(started, int) else begun

    @property
    def last_ns(self) -> int:
        """Local time of the last thing that the process itself wrote."""
        header, records = self.content.header, self.content.records
        latest = int(records["end_ns"].max()) if len(records) else 0
        opened = max((o.start_ns for o in header.open_spans), default=0)
        return max(header.closed_ns, latest, opened, header.start_monotonic_ns)

    def alignment(self, reference: Recording) -> Alignment:
        """How this process's clock relates to the reference's."""
        return align(reference.facts, self.facts)

    def name(self, name_id: int) -> str:
        """A name of this process by its id."""
        return name_of(self.content.header.names, name_id)


def read_recordings(folder: Path) -> tuple[list[Recording], list[str]]:
    """Every readable recording in `folder`, by rank, and what is wrong with the others."""
    recordings: list[Recording] = []
    problems: list[str] = []
    for path in sorted(folder.glob(f"*{SPANS_SUFFIX}")):
        try:
            content = read_span_file(path)
        except TraceError as error:
            problems.append(str(error))
            continue
        facts, problem = read_object(path.with_name(path.name.removesuffix(SPANS_SUFFIX) + ".json"))
        if problem:
            problems.append(problem)
        if content.truncated:
            problems.append(f"{path.name}: cut off; the records that are there are used")
        if content.damaged:
            problems.append(f"{path.name}: {content.damaged} damaged records left out")
        recordings.append(Recording(path, content, facts))
    # A rank's forked children record under its rank; a restarted rank has another parent.
    pids = {r.content.header.pid for r in recordings}
    recordings = [
        replace(r, role="worker" if r.facts.get("parent_pid") in pids else "trainer")
        for r in recordings
    ]
    recordings.sort(key=lambda r: (r.rank, r.role != "trainer", r.path.name))
    return recordings, problems


def name_table(recordings: list[Recording]) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
    """All names and all argument objects (JSON text) used by any process, without duplicates."""
    names: dict[str, None] = {}
    args: dict[bytes, None] = {}
    for recording in recordings:
        for entry in (*recording.content.header.names, "(unnamed)"):
            name, _, details = entry.partition(layout.ARGS_SEPARATOR)
            names.setdefault(name)
            if details:
                args.setdefault(details.encode())
    return tuple(names), tuple(args)


def translation(
    recording: Recording, names: Mapping[str, int], args: Mapping[bytes, int]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Arrays from a file's name id to the run's name and argument ids (-1: no arguments)."""
    entries = ("(unnamed)", *recording.content.header.names)
    split = [entry.partition(layout.ARGS_SEPARATOR) for entry in entries]
    name_ids = np.array([names[name] for name, _, _ in split], dtype=np.int32)
    args_ids = np.array(
        [args[details.encode()] if details else -1 for _, _, details in split], dtype=np.int32
    )
    return name_ids, args_ids
