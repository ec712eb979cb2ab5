from __future__ import annotations

from grpo_doctor_reports.schema.trajectories import ToolEntry, Trajectories
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run
from tests.unit.findings.rules.saying import rows


def _failing(
    errors: int = 30, time_outs: int = 0, never: int = 0, *, calls: int = 100, name: str = "browse"
) -> TraceBuilder:
    build = run({"rollout": 6.0, "train": 2.0})
    bad = ToolEntry(
        name=name, calls=calls, errors=errors, time_outs=time_outs, open=never, failed_seconds=12.0
    )
    build.trajectories = Trajectories(count=80, tools=[ToolEntry(name="add", calls=900), bad])
    return build


def calls_that_never_end() -> TraceBuilder:
    return _failing(0, 10, 30)


def run_without_trajectories() -> TraceBuilder:
    return run({"rollout": 6.0, "train": 2.0})


RUNS = {
    "sick": _failing,
    "well": lambda: _failing(2),
    **rows("the share of failed calls grades it", _failing, 50, 49, 20, 19, 5, 4),
    **rows("five calls that failed", lambda n: _failing(n, calls=20), 5, 4),
    **rows("a tool that was hardly called is not judged", lambda n: _failing(10, calls=n), 20, 19),
    "names that the model made up are no environment": lambda: _failing(90, name="unknown name"),
}
