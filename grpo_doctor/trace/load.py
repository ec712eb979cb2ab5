"""Opens whatever the user points at: a trace file or a run directory."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor.errors import TraceError
from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.model import Trace
from grpo_doctor.trace.read import read_trace
from grpo_doctor_probes.record.rundir import TRACE_JSON


def load(path: str | Path) -> Trace:
    """The trace at `path`. A run directory is merged afresh, so that a live run can be looked at;
    one from which only the trace was kept is read from that.

    Raises:
        TraceError: nothing there, or nothing readable.
    """
    path = Path(path)
    try:
        present, folder = path.exists(), path.is_dir()
    except OSError as problem:
        raise TraceError(f"can't read {path}: {problem.strerror or problem}.") from problem
    if not present:
        raise TraceError(
            f"{path} does not exist. Give a run directory or a trace.json; "
            "`grpo-doctor run` prints both when it ends."
        )
    if not folder:
        return read_trace(path)
    try:
        return merge(path)
    except TraceError:
        for name in (TRACE_JSON, f"{TRACE_JSON}.gz"):
            if (path / name).exists():
                return read_trace(path / name)
        raise
