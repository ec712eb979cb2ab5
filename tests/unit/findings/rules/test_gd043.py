from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import knob
from tests.unit.findings.rules.saying import rows

KNOBS: dict[str, Any] = {
    **SETTINGS,
    "train.micro_batch": 4,
    "train.grad_accumulation": 2,
    "rollout.max_completion_length": 4096,
}


def logits(
    vocabulary: int = 151_936, gib: float = 76.0, framework: str = "ms-swift", **knobs: Any
) -> TraceBuilder:
    return run(
        knobs={**KNOBS, **knobs}, config={"model_vocab_size": vocabulary}, memory_gib=(60.0, gib),
        framework=framework, framework_version="4.6.0" if framework == "ms-swift" else "0.1.0",
    )  # fmt: skip


RUNS = {
    "sick": logits,
    "well": lambda: logits(gib=50.0),
    "the bundled trainer holds two copies and takes smaller": lambda: logits(
        framework="bundled", **knob("train.micro_batch", 8)
    ),
    "free memory and small vocabularies are silent": lambda: logits(vocabulary=32000),
    "a fused loss is not asked about 1": lambda: logits(**knob("train.use_liger", True)),
    "a fused loss is not asked about 2": lambda: logits(**knob("train.micro_batch", None)),
    **rows(
        "a batch that can not be halved gets words",
        lambda micro, passes: logits(
            framework="bundled", **{"train.micro_batch": micro, "train.grad_accumulation": passes}
        ),
        (8, 2),
        (7, 2),
        (8, "auto"),
    ),
    **rows(
        "training fills a gpu from seventeen twentieths on", lambda gib: logits(gib=gib), 68.0, 67.9
    ),
}
