from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, inside
from tests.unit.findings.rules.saying import named, rows


def functions(*seconds: float, waited: float | None = None, **facts: Any) -> TraceBuilder:
    total_s = sum(seconds) if waited is None else waited
    build = run({**HEALTHY, "reward": total_s}, **facts)
    begin = 0.0
    for index, own in enumerate(seconds):
        waited_s = own * total_s / sum(seconds)
        inside(build, f"reward/f{index}", waited_s, begin=begin)
        count(build, f"reward/f{index}_s", own)
        begin += waited_s
    return build


def what_is_not_the_functions_is_not_saved() -> TraceBuilder:
    build = run({**HEALTHY, "reward": 2.0})
    inside(build, "reward/f0", 0.1)
    inside(build, "reward/f1", 0.1, begin=0.1)
    return build


def completions_that_are_scored_one_at_a_time() -> TraceBuilder:
    build = run({**HEALTHY, "reward": 2.0})
    inside(build, "reward/judge", 1.9, times=16)
    return build


def busy_cores_get_no_prediction() -> TraceBuilder:
    build = functions(1.0, 1.0, 0.8)
    build.series("host.cpu", "%", [0.0, 100.0], [97.0, 97.0])
    return build


def milliseconds_of_a_short_step_are_not_worth_a() -> TraceBuilder:
    build = run({"rollout": 0.04, "train": 0.04, "reward": 0.04}, idle=0.001)
    inside(build, "reward/f0", 0.02)
    inside(build, "reward/f1", 0.02, begin=0.02)
    return build


def in_calls(times: int, judge_s: float = 1.9, other_s: float = 0.0, **facts: Any) -> TraceBuilder:
    """A judge that is called so many times per step, and another function once."""
    build = run({**HEALTHY, "reward": judge_s + other_s + 0.01}, **facts)
    inside(build, "reward/judge", judge_s, times=times)
    return inside(build, "reward/other", other_s, begin=judge_s)


def cores_are_busy_above_a_limit_and_what_could(cpu: float, own: float = 50.0) -> TraceBuilder:
    build = functions(1.0, 1.0, 0.8)
    build.series("host.cpu", "%", [0.0, 100.0], [cpu, cpu])
    build.series("rank.cpu", "%", [0.0, 100.0], [own - 10, own - 10], scope="rank", rank=0)
    return build.series("rank.cpu_wait", "%", [0.0, 100.0], [10, 10], scope="rank", rank=0)


RUNS = {
    "sick": lambda: functions(1.0, 1.0, 0.8),
    "well": lambda: functions(1.0, 1.0, 0.8, waited=1.05),
    "the bundled trainer is given its flag": lambda: functions(1.0, 1.0,
        knobs={**SETTINGS, "reward.num_workers": 1}, framework="bundled",
        framework_version="0.1.0"),
    "one long function has nothing to run beside 1": lambda: functions(3.0),
    "one long function has nothing to run beside 2": lambda: functions(3.0, 0.01),
    **rows("only single calls are spread over a pool", lambda times,
        other_s: in_calls(times, 1.2, other_s), (8, 0.6), (7, 0.6), (8, 0.01)),
    **rows(
        "one function of the trainer is shared by more processes",
        lambda workers: inside(
            run(
                {**HEALTHY, "reward": 2.0},
                knobs={**SETTINGS, "reward.num_workers": workers},
                framework="bundled",
                framework_version="0.1.0",
            ),
            "reward/accuracy",
            1.9,
        ),
        0,
        1,
        2,
    ),
    **named(cores_are_busy_above_a_limit_and_what_could, (85.0, 50.0), (85.1, 50.0), (85.1, 49.9)),
    **rows(
        "eight calls are calls of single completions 1",
        lambda workers: in_calls(
            8,
            knobs={**SETTINGS, **({} if workers is None else {"reward.num_workers": workers})},
            framework="unknown" if workers is None else "bundled",
        ),
        None,
        1,
    ),
    **rows(
        "eight calls are calls of single completions 2",
        lambda workers: in_calls(
            7,
            knobs={**SETTINGS, **({} if workers is None else {"reward.num_workers": workers})},
            framework="unknown" if workers is None else "bundled",
        ),
        None,
        1,
    ),
}  # fmt: skip
