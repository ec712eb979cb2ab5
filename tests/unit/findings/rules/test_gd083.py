from __future__ import annotations

import pytest

from grpo_doctor_reports.schema.trajectories import Syncs, Trajectories
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run
from tests.unit.findings.rules.saying import finding_in, rows


def _syncing(waiting_s: float = 80.0, sync_s: float = 2.0) -> TraceBuilder:
    """Of a hundred seconds of weight syncs."""
    build = run({"rollout": 5.0, "train": 3.0, "sync": sync_s})
    syncs = Syncs(seconds=100.0, waiting_s=waiting_s, transfer_s=15.0)
    build.trajectories = Trajectories(count=80, syncs=syncs)
    return build


def sick() -> TraceBuilder:
    return _syncing()


def well() -> TraceBuilder:
    return _syncing(10.0)


def run_without_syncs() -> TraceBuilder:
    build = _syncing()
    build.trajectories = Trajectories(count=80)
    return build


RUNS = {
    **rows("most of the sync waits", _syncing, 50.0, 49.0),
    **rows("the wait has to matter", lambda s: _syncing(80.0, s), 0.56, 0.5),
}


def test_the_wait_is_a_share_of_the_step() -> None:
    found = finding_in(sick(), "GD083")
    assert found.cost == pytest.approx(0.8 * 2.0 / 10.05, rel=0.02)
    predicted = found.fixes[0].predicted
    assert predicted is not None
    assert predicted.mid < 0
