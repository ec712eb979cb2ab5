from __future__ import annotations

from grpo_doctor_reports.schema.trajectories import Syncs, Trajectories
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run
from tests.unit.findings.rules.saying import rows


def _syncing(waiting_s: float = 80.0, sync_s: float = 2.0) -> TraceBuilder:
    """Of a hundred seconds of weight syncs."""
    build = run({"rollout": 5.0, "train": 3.0, "sync": sync_s})
    syncs = Syncs(seconds=100.0, waiting_s=waiting_s, transfer_s=15.0)
    build.trajectories = Trajectories(count=80, syncs=syncs)
    return build


def run_without_syncs() -> TraceBuilder:
    build = _syncing()
    build.trajectories = Trajectories(count=80)
    return build


RUNS = {
    "sick": _syncing,
    "well": lambda: _syncing(10.0),
    **rows("most of the sync waits", _syncing, 50.0, 49.0),
    **rows("the wait has to matter", lambda s: _syncing(80.0, s), 0.56, 0.5),
}
