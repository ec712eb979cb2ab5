from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, inside
from tests.unit.findings.rules.saying import counted, rows
from tests.unit.findings.rules.test_gd036 import LIMITED, calls


def scoring(judge_s: float, format_s: float = 0.05) -> TraceBuilder:
    build = run({**HEALTHY, "reward": judge_s + format_s + 0.05})
    inside(build, "reward/judge", judge_s)
    return inside(build, "reward/format", format_s, begin=judge_s)


def without_a_dominating_function_none_is_named() -> TraceBuilder:
    build = scoring(0.5, 0.5)  # of twice as much work each, at once
    count(build, "reward/judge_s", 1.0)
    return count(build, "reward/format_s", 1.0)


def the_trainers_own_functions_take_more_processes() -> TraceBuilder:
    build = run(
        {**HEALTHY, "reward": 2.0},
        knobs={**SETTINGS, "reward.num_workers": 2},
        framework="bundled",
        framework_version="0.1.0",
    )
    inside(build, "reward/accuracy", 1.9)
    count(build, "reward/accuracy_s", 1.9)
    return build


RUNS = {
    "sick": lambda: scoring(2.0),
    "well": lambda: scoring(0.1),
    "collections beside a slow reward leave it slow":
        lambda: counted(scoring(3.0), {"gc/seconds": 0.9, "gc/longest_s": 0.3}),
    **rows("scoring that mostly collects garbage is another rule's", lambda garbage_s: counted(
        scoring(11.9, 0.0), {"gc/seconds": garbage_s, "gc/longest_s": 2.0}), 0.0, 16.5),
    "functions in turn are told by the rule that runs them at": lambda: scoring(1.0, 1.0),
    "calls that end at a limit are told by the rule about": lambda: calls(LIMITED),
    "a reward without named functions is still a share": lambda: run({**HEALTHY, "reward": 2.0}),
    "one slow rank does not speak for all 1": lambda: run(slow={1: {"reward": 5.0}}),
    "one slow rank does not speak for all 2": lambda: run(ranks=2, slow={1: {"reward": 5.0}}),
    "decoding and gathering are no function": lambda: inside(run({**HEALTHY, "reward": 2.0}),
        "reward/judge", 0.05),
    "an async function runs on another thread": lambda: inside(
        inside(run({**HEALTHY, "reward": 2.0}), "reward/format", 0.02), "reward/judge", 1.9,
        begin=0.05, thread=1),
    "without rewards nothing is said": lambda:
        run({name: s for name, s in HEALTHY.items() if name != "reward"}),
    "verl has workers for any function": lambda: inside(
        run(
            {**HEALTHY, "reward": 2.0},
            knobs={**SETTINGS, "reward.num_workers": 1},
            framework="verl",
            framework_version="0.9.1",
        ),
        "reward/judge",
        1.9,
    ),
    "milliseconds of a short step are not worth a profile": lambda:
        run({"rollout": 0.04, "train": 0.04, "reward": 0.02}, idle=0.001),
    **rows(
        "four processes are enough",
        lambda workers: inside(
            run(
                {**HEALTHY, "reward": 2.0},
                knobs={**SETTINGS, "reward.num_workers": workers},
                framework="verl",
                framework_version="0.9.1",
            ),
            "reward/judge",
            1.9,
        ),
        3,
        4,
        "auto",
    ),
    "busy cores take no more processes": lambda:
        (the_trainers_own_functions_take_more_processes()).series("host.cpu", "%", [0.0, 100.0],
        [97.0, 97.0]),
}  # fmt: skip
