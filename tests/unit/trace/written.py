"""The lines of a small recording, so that a change of what is written shows.

`python -m tests.unit.trace.written` writes them down again; read the diff of `written.txt`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from grpo_doctor.trace import events
from grpo_doctor.trace.model import Series, Trace
from tests.unit.analysis.recordings import recording

RECORDED = Path(__file__).with_name("written.txt")


def small_recording() -> Trace:
    """Two steps of a driver and two ranks, one of them a rollout worker; samples of every scope."""
    trace = recording(1, steps=2)
    roles = ("driver", "actor", "trainer")
    processes = [
        replace(process, role=role) for process, role in zip(trace.processes, roles, strict=True)
    ]
    t_ns, values = np.array([0, 1, 1_000_000_007]), np.array([1.0, np.nan, 2.0])
    of_ranks = [
        Series("rank.cpu", "", "rank", "host-b", t_ns, values, rank=rank) for rank in (2, 9)
    ]
    server = Series(
        "vllm.running", "requests", "server", "host-a", t_ns, values, pid=processes[1].os_pid
    )
    gpu = Series("gpu.util", "percent", "gpu", "host-b", t_ns, values, gpu="GPU-1")
    thread = trace.spans.thread + (np.arange(len(trace.spans)) % 7 == 0)
    return replace(
        trace,
        processes=tuple(processes),
        series=(*of_ranks, server, gpu, trace.series[-1]),
        spans=replace(trace.spans, thread=thread.astype(trace.spans.thread.dtype)),
    )


def written() -> list[str]:
    """Each line of Chrome's format."""
    trace = small_recording()
    spans, lane = events.nested(trace)
    tracks = {
        process.pid: set(lane[spans.process == process.index].tolist())
        for process in trace.processes
    }
    return [
        *events.metadata_lines(trace, tracks),
        *events.span_lines(trace, spans, lane),
        *events.counter_lines(trace),
    ]


if __name__ == "__main__":
    RECORDED.write_text("\n".join(written()) + "\n")
