from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import NotApplicable, Passed
from grpo_doctor.findings.rules import gd041_needless_recomputation as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, inside, judged, knob, memory
from tests.unit.findings.rules.saying import even, named

MODEL: dict[str, Any] = {
    "model_hidden_size": 2048,
    "model_intermediate_size": 11008,
    "model_num_hidden_layers": 36,
    "torch_dtype": "bfloat16",
}
KNOBS: dict[str, Any] = {
    **SETTINGS,
    "train.gradient_checkpointing": True,
    "train.grad_accumulation": 4,
}


def recomputing(places: float = 4 * 1000.0, gib: float = 40.0, **knobs: Any) -> TraceBuilder:
    build = run(
        {**HEALTHY, "train": 6.0}, knobs={**KNOBS, **knobs}, config=MODEL, memory_gib=(60.0, gib)
    )
    inside(build, "train/micro_batch", 5.0, times=4)
    inside(build, "logprob/reference", 0.9)
    return count(build, "train/token_places", places)


def sick() -> TraceBuilder:
    return recomputing()


def well() -> TraceBuilder:
    return recomputing(gib=70.0)


def test_activations_that_do_not_fit_are_rightly_recomputed() -> None:
    for build in (well(), recomputing(places=4 * 20_000.0)):
        answer = judged(rule, build)
        assert isinstance(answer, Passed)
        assert "does not fit" in answer.note


def a_fifth_of_the_step_is_enough_training(train_s: float) -> TraceBuilder:
    build = even({"train": train_s}, knobs={**KNOBS, "train.type": "full"}, config=MODEL)
    count(memory(build, {"train": 40.0}), "train/token_places", 4000.0)
    return build


@pytest.mark.parametrize("name", [None, *list(MODEL)[:3]])
def test_what_activations_need_is_told_where_the_model_and_its_passes_are_known(
    name: str | None,
) -> None:
    config = MODEL if name is None else {**MODEL, name: "many"}
    knobs = {"train.gradient_checkpointing": True}
    build = even({"train": 5.0}, knobs=knobs, config=config, framework="unknown")
    count(memory(build, {"train": 40.0}), "train/token_places", 4000.0)
    unknown = NotApplicable("the memory for activations is unknown")
    if name is None:
        assert judged(rule, build) == unknown  # into how many passes the places go
        build.knobs["train.grad_accumulation"] = 4
        assert judged(rule, build) != unknown
    else:
        build.knobs["train.grad_accumulation"] = 4
        assert judged(rule, build) == unknown


RUNS = {
    "little training is little to save": lambda:
        count(run({**HEALTHY, "train": 0.5}, knobs=KNOBS, config=MODEL, memory_gib=(60.0, 40.0)),
        "train/token_places", 10.0),
    "kept activations are not asked about": lambda:
        recomputing(**knob("train.gradient_checkpointing", False)),
    **named(a_fifth_of_the_step_is_enough_training, 2.0, 1.99),
}  # fmt: skip
