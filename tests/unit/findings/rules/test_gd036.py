from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run
from tests.unit.findings.recorded import count, inside
from tests.unit.findings.rules.saying import rows

BUNDLED: dict[str, Any] = {"framework": "bundled", "framework_version": "0.1.0"}


def calls(seconds: list[float], limit: float = 60.0) -> TraceBuilder:
    build = TraceBuilder(knobs={"reward.timeout_s": limit}, **BUNDLED)
    now = 0.0
    for step, reward in enumerate(seconds):
        build.step(0, step, now, {"rollout": 3.0, "reward": reward + 0.01, "train": 2.0})
        now += reward + 5.01
    inside(build, "reward/judge", lambda _, step: seconds[step])
    return count(build, "reward/judge_s", lambda _, step: seconds[step])


LIMITED = [0.2, 0.3, 5.0, 0.2, 0.25, 5.02, 0.3, 0.2, 5.01, 0.2]


def a_rank_that_is_always_slow_has_no_limit() -> TraceBuilder:
    build = run(ranks=2, slow={1: {"reward": 2.0}})
    inside(build, "reward/judge", lambda rank, _: 2.1 if rank else 0.1)
    return build


RUNS = {
    "sick": lambda: calls(LIMITED),
    "well": lambda: calls([0.2, 0.3, 0.9, 0.2, 0.25, 0.4, 0.3, 0.2, 0.6, 0.2]),
    "calls of one usual length are no limit": lambda: calls([2.0] * 10),
    "calls of every length up to the longest are no limit": lambda:
        calls([0.2] * 12 + [2.7, 3.1, 3.9, 4.4, 5.0, 5.01, 5.02]),
    "two long calls are no limit": lambda: calls([0.2] * 8 + [5.0, 5.0]),
    **rows("a call near the trainers limit may end the run",
        lambda limit: calls([0.2, 0.3, 5.0, 0.2, 0.3, 0.2], limit), 9.0, 6.0),
    "timeouts that are counted are shown": lambda: count(
        calls(LIMITED), "reward/timeouts", lambda _, step: float(step in (2, 5, 8))),
    **rows("a call is near a limit from half of it on",
        lambda limit: calls([0.2, 0.3, 5.0, 0.2, 0.3, 0.2], limit), 6.25, 6.26, 10.0, 10.1),
    **rows(
        "a limit is a length at which long calls end",
        calls,
        ([0.2] * 7 + [5.0, 5.0, 4.85],),
        ([0.2] * 7 + [5.0, 5.0, 4.84],),
        ([2.5] * 7 + [5.0] * 3,),
        ([2.51] * 7 + [5.0] * 3,),
        ([0.2] * 9 + [5.0] * 3 + [4.0],),
        ([0.2] * 9 + [5.0] * 3 + [4.0, 3.0],),
        ([0.2] * 9 + [5.0] * 3 + [2.5] * 2,),
        ([0.05] * 7 + [0.5] * 3,),
        ([0.05] * 7 + [0.49] * 3,),
    ),
    "calls that end at a limit have to cost something": lambda: calls([0.2] * 60 + [0.6] * 3),
}  # fmt: skip
