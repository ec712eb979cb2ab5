from __future__ import annotations

from grpo_doctor_reports.schema.trajectories import ToolEntry, Trajectories
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run
from tests.unit.findings.rules.saying import rows

PHASES = {"rollout": 6.0, "train": 2.0}


def _calling(
    tail_s: float = 60.0,
    p99_s: float = 12.0,
    saved_s: float | None = 2.0,
    *,
    count: int = 80,
    phases: dict[str, float] = PHASES,
) -> TraceBuilder:
    """A hundred seconds are in the slowest tenth of trajectories."""
    build = run(phases, framework="verl", framework_version="0.9.1")
    slow = ToolEntry(
        name="search", calls=400, seconds=600.0, p50_s=1.0, p99_s=p99_s, longest_s=40.0,
        tail_seconds=tail_s, saved_s=saved_s,
    )  # fmt: skip
    other = ToolEntry(name="look_up", calls=900, seconds=900.0, p50_s=0.9, p99_s=1.1)
    build.trajectories = Trajectories(count=count, tail_seconds=100.0, tools=[other, slow])
    return build


def trainer_that_takes_single_trajectories() -> TraceBuilder:
    return _calling(saved_s=None)


def run_without_tools() -> TraceBuilder:
    build = _calling()
    build.trajectories = Trajectories(count=80, tail_seconds=100.0)
    return build


RUNS = {
    "sick": _calling,
    "well": lambda: _calling(20.0),
    **rows("a third of the tail is much of it", _calling, 35.0, 34.9),
    **rows("a slow call is three times as long", lambda s: _calling(60.0, s), 3.0, 2.9),
    **rows("what is saved has to matter", lambda s: _calling(60.0, 12.0, s), 0.26, 0.2),
    **rows("a tail is of fifty trajectories", lambda n: _calling(count=n), 50, 49),
    "no more is saved than the rollout takes": lambda: _calling(saved_s=90.0),
    "a run without a rollout phase has no prediction": lambda: _calling(phases={"train": 4.0}),
}
