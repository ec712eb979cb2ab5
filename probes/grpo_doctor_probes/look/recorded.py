"""What the ranks of a recorded job have open, from the span files of its run directory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_doctor_probes.evidence import Job, Member, OpenSpanSeen
from grpo_doctor_probes.procs import live
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.procs.procfs import own_number
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.record.rundir import RANKS, SPANS_SUFFIX

_AT_MOST_S = 2.0
_COLLECTIVES = (layout.COLLECTIVE, layout.COLLECTIVE_WAIT)


def open_spans(job: Job, proc: Path = Path("/proc")) -> tuple[OpenSpanSeen, ...]:
    """Return spans that are open now in processes of the job, outermost first in each rank.

    Empty for a job that is not recorded, or whose run directory does not answer. A file of a
    process that has ended, or one that is not readable, is left out.
    """
    if not job.run_dir:
        return ()
    members: dict[int, list[Member]] = {}  # by the number that each writes, that of its container
    for member in job.members:
        members.setdefault(own_number(proc / str(member.pid)) or member.pid, []).append(member)
    folder = Path(job.run_dir, RANKS)
    try:
        return within(_AT_MOST_S, lambda: tuple(_open_spans(folder, members)))
    except (OSError, ValueError):  # the file system of the run directory hangs: `disks` says so
        return ()


def _open_spans(folder: Path, members: Mapping[int, Sequence[Member]]) -> list[OpenSpanSeen]:
    now_ns = time.monotonic_ns()
    spans: list[OpenSpanSeen] = []
    for path in sorted(folder.glob(f"*{SPANS_SUFFIX}")):
        try:
            header = live.read_header(path)
        except (OSError, ValueError):  # of an older process, or half-written: tells nothing of now
            continue
        # Other containers and hosts have processes of the same number.
        wrote = (
            m.pid
            for m in members.get(header.pid, ())
            if header.rank == m.rank or header.pid == m.pid
        )
        if (pid := next(wrote, None)) is not None:
            spans += _spans_of(header, pid, now_ns)
    return spans


def _spans_of(header: live.Header, pid: int, now_ns: int) -> list[OpenSpanSeen]:
    return [
        OpenSpanSeen(
            pid=pid,
            rank=header.rank,
            name=printable(span.name),
            age_s=max(0.0, (now_ns - span.start_ns) / 1e9),
            collective=span.kind in _COLLECTIVES,
        )
        for span in sorted(header.open_spans, key=lambda span: span.start_ns)
    ]
