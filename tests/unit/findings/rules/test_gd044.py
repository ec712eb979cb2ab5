from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import inside


def evaluating(every: int, seconds: float, steps: int = 12) -> TraceBuilder:
    build = TraceBuilder(
        knobs={**SETTINGS, "eval.steps": every}, framework="trl", framework_version="1.16.0"
    )
    now = 0.0
    for step in range(steps):
        phases = {"rollout": 3.0, "train": 1.0}
        if step % every == every - 1:
            phases["eval"] = seconds
        build.step(0, step, now, phases)
        now += sum(phases.values())
    return build


def logging_on_one_rank_costs_all_of_them() -> TraceBuilder:
    slow = run({"rollout": 5.0, "reward": 1.0, "train": 3.0})
    inside(slow, "reward/log_completions", lambda rank, _: 0.8 if rank == 0 else 0.0)
    return slow


def logging_on_one_rank_costs_all_of_them_2() -> TraceBuilder:
    build = run(knobs={**SETTINGS, "log.completions": True})
    inside(build, "reward/log_completions", lambda rank, _: 0.19 if rank == 0 else 0.0)
    return build


RUNS = {
    "sick": lambda: evaluating(3, 6.0),
    "well": lambda: evaluating(6, 1.0),
    "a rare or a single evaluation is none too many": lambda: evaluating(12, 30.0),
    "without either nothing is said": run,
}
