"""What the ranks of a recorded job have open, from the span files of its run directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor_probes import layout, live
from grpo_doctor_probes.bounded import within
from grpo_doctor_probes.evidence import OpenSpanSeen
from grpo_doctor_probes.printable import printable
from grpo_doctor_probes.rundir import RANKS, SPANS_SUFFIX

if TYPE_CHECKING:
    from grpo_doctor_probes.evidence import Job

_AT_MOST_S = 2.0
_COLLECTIVES = (layout.COLLECTIVE, layout.COLLECTIVE_WAIT)


def open_spans(job: Job) -> tuple[OpenSpanSeen, ...]:
    """Spans that are open now in processes of the job, outermost first in each rank.

    Empty for a job that is not recorded, or whose run directory does not answer. A file of a
    process that has ended, or one that is not readable, is left out.
    """
    if not job.run_dir:
        return ()
    pids = {member.pid for member in job.members}
    try:
        return within(_AT_MOST_S, lambda: tuple(_open_spans(Path(job.run_dir, RANKS), pids)))
    except (OSError, ValueError):  # the file system of the run directory hangs: `disks` says so
        return ()


def _open_spans(folder: Path, pids: set[int]) -> list[OpenSpanSeen]:
    now_ns = time.monotonic_ns()
    found: list[OpenSpanSeen] = []
    for path in sorted(folder.glob(f"*{SPANS_SUFFIX}")):
        try:
            header = live.read_header(path)
        except (OSError, ValueError):  # of an older process, or half-written: tells nothing of now
            continue
        if header.pid in pids:
            found += _seen(header, now_ns)
    return found


def _seen(header: live.Header, now_ns: int) -> list[OpenSpanSeen]:
    spans = sorted(header.open_spans, key=lambda span: span.start_ns)
    return [
        OpenSpanSeen(
            pid=header.pid,
            rank=header.rank,
            name=printable(span.name),
            age_s=max(0.0, (now_ns - span.start_ns) / 1e9),
            collective=span.kind in _COLLECTIVES,
            sequence=span.sequence,
            step=header.step,
        )
        for span in spans
    ]
