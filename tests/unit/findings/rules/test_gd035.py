from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, run
from tests.unit.findings.recorded import inside
from tests.unit.findings.rules.saying import named

NO_REWARD = {**HEALTHY, "reward": 0.01}


def sick() -> TraceBuilder:
    build = run(NO_REWARD, slow={2: {"reward": 2.0}})
    return inside(build, "reward/judge", lambda rank, _: 1.99 if rank == 2 else 0.0)


def uncoupled() -> TraceBuilder:
    """Ranks whose collectives nobody watched; the others' steps end with rank 1's all the same."""
    build = TraceBuilder(ranks=2)
    for step in range(6):
        at = 10.0 * step
        for rank, reward in ((0, 0.01), (1, 2.0)):
            build.step(rank, step, at, {"rollout": 3.0, "reward": reward}, end_s=at + 9.0)
    return build


def alone(reward_s: float) -> TraceBuilder:
    """Steps of ten seconds in which one of two ranks scores."""
    build = TraceBuilder(ranks=2)
    for step in range(4):
        at = 10.0 * step
        build.step(0, step, at, {"rollout": 3.0}, end_s=at + 10.0)
        build.step(1, step, at, {"rollout": 3.0, "reward": reward_s}, end_s=at + 10.0)
    return build


def well() -> TraceBuilder:
    return run({**HEALTHY, "reward": 2.0})


def slow_at_it(build: TraceBuilder) -> TraceBuilder:
    return inside(build, "reward/judge", lambda rank, _: 1.9 if rank == 1 else 0.005)


def the_host_of_the_rank_that_is_slow_is_named() -> TraceBuilder:
    build = slow_at_it(uncoupled())
    build.hosts = ["host-a", "host-b"]
    return build


RUNS = {
    "a rank that is slow at what all do is the stragglers rule": lambda: slow_at_it(
        run(NO_REWARD, slow={1: {"reward": 2.0}})
    ),
    **named(alone, 0.5, 0.49),
    "without collectives a slow rank is still told apart": lambda: slow_at_it(uncoupled()),
    "even scoring and small excess pass": lambda: run(NO_REWARD, slow={2: {"reward": 0.1}}),
    "a run without rewards is not asked": lambda: run(
        {name: s for name, s in HEALTHY.items() if name != "reward"}
    ),
}
