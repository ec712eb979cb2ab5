from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, inside, knob, memory
from tests.unit.findings.rules.saying import even, named, rows

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


def a_fifth_of_the_step_is_enough_training(train_s: float) -> TraceBuilder:
    build = even({"train": train_s}, knobs={**KNOBS, "train.type": "full"}, config=MODEL)
    count(memory(build, {"train": 40.0}), "train/token_places", 4000.0)
    return build


def unknown(name: str, passes: int | None = 4) -> TraceBuilder:
    """Without one fact of the model, or without the number of passes."""
    knobs = {"train.gradient_checkpointing": True, "train.grad_accumulation": passes}
    config = {**MODEL, name: "many"}
    build = even({"train": 5.0}, knobs=knobs, config=config, framework="unknown")
    return count(memory(build, {"train": 40.0}), "train/token_places", 4000.0)


RUNS = {
    "sick": recomputing,
    "well": lambda: recomputing(gib=70.0),
    "activations of long sequences do not fit": lambda: recomputing(places=4 * 20_000.0),
    **rows("what activations need is told of a known model and known passes", unknown, "",
        ("", None), *list(MODEL)[:3]),
    "little training is little to save": lambda:
        count(run({**HEALTHY, "train": 0.5}, knobs=KNOBS, config=MODEL, memory_gib=(60.0, 40.0)),
        "train/token_places", 10.0),
    "kept activations are not asked about": lambda:
        recomputing(**knob("train.gradient_checkpointing", False)),
    **named(a_fifth_of_the_step_is_enough_training, 2.0, 1.99),
}  # fmt: skip
