from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import inside, knob
from tests.unit.findings.rules.saying import even, named, rows

KNOBS: dict[str, Any] = {
    **SETTINGS, "train.num_iterations": 1, "train.grad_accumulation": 4, "train.beta": 0.04,
}  # fmt: skip


def passes(old: float = 0.0, reference: float = 0.0, **knobs: Any) -> TraceBuilder:
    build = run(knobs={**KNOBS, **knobs})
    inside(build, "logprob/old", old)
    return inside(build, "logprob/reference", reference, begin=old)


ON_POLICY: dict[str, Any] = {**KNOBS, "train.beta": 0.001}


def a_pass_is_left_out_from_three_hundredths_of(
    old_s: float, reference_s: float, knobs: dict[str, Any]
) -> TraceBuilder:
    build = even({"logprob": 1.0}, knobs={**ON_POLICY, **knobs})
    for step in range(4):
        at = 10.0 * step
        build.span(0, "logprob/old", at, at + old_s, depth=2)
        build.span(0, "logprob/reference", at + old_s, at + old_s + reference_s, depth=2)
    return build


RUNS = {
    "sick": lambda: passes(reference=0.9, **knob("train.beta", 0.0001)),
    "well": lambda: passes(reference=0.9),
    "a reference that counts is a choice": lambda: passes(reference=0.9, **knob("train.beta", 0.0)),
    **rows(
        "old logprobs that something needs stay",
        lambda knobs: passes(old=0.5, **knobs),
        ({"train.num_iterations": 2},),
        ({"rollout.steps_per_generation": 8},),
        ({"rollout.importance_correction": True},),
        ({"rollout.importance_mode": "token_truncate"},),
        ({"train.num_iterations": None},),
        ({"train.grad_accumulation": None},),
    ),
    "without passes there is nothing to leave out": lambda: run(knobs=KNOBS),
    **named(a_pass_is_left_out_from_three_hundredths_of, (0.3, 0.0, {}), (0.29, 0.0, {}),
        (0.3, 0.0, {"train.num_iterations": 2}), (0.0, 0.3, {}), (0.0, 0.29, {}),
        (0.0, 0.3, {"train.beta": 0.0011}), (0.3, 0.3, {}), (0.3, 0.29, {}), (0.29, 0.3, {})),
    "old logprobs of a single step are not needed": lambda: passes(old=0.5),
    "both passes are one finding with two fixes": lambda: passes(old=0.4, reference=0.5,
        **knob("train.beta", 0.0005)),
}  # fmt: skip
