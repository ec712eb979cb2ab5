from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import memory
from tests.unit.findings.rules.saying import even, rows

GIB = 2**30
ZERO3: dict[str, Any] = {**SETTINGS, "deepspeed.preset": "zero3", "deepspeed.stage": 3}


def spread(
    parameters: float, *, gather_s: float = 1.0, gib: float | None = 40.0, stage: int = 3
) -> TraceBuilder:
    config: dict[str, Any] = {"model_parameters": int(parameters), "torch_dtype": "bfloat16"}
    if gib is None:
        config["device"] = "cpu"
    build = run(
        knobs={**ZERO3, "deepspeed.stage": stage},
        config=config,
        memory_gib=None if gib is None else (30.0, gib),
    )
    if gib is None:
        build.series("host.memory_available", "bytes", [0.0, 90.0], [20.0 * GIB] * 2)
    spans = build._rows
    starts = [
        (spans["process"][i], spans["start_ns"][i] / 1e9)
        for i in range(len(spans["name"]))
        if build._names.names[spans["name"][i]] == "train"
    ]
    numbers: dict[int, int] = {}
    for rank, start in starts:
        number_ = numbers[rank] = numbers.get(rank, -1) + 1
        if gather_s:
            build.collective(
                rank, number_, start, start + gather_s, name="all_gather_into_tensor", group="z"
            )
    return build


def quiet(train_s: float) -> TraceBuilder:
    """Two ranks with GPUs, steps of ten seconds, and gathers that nobody saw."""
    build = even(
        {"train": train_s},
        ranks=2,
        knobs=ZERO3,
        config={"model_parameters": 1_000_000, "torch_dtype": "bfloat16"},
    )
    return memory(build, {"train": 40.0})


def _gathers_in_log_probs() -> TraceBuilder:
    build = even(
        {"logprob": 4.0, "train": 4.0},
        ranks=2,
        knobs=ZERO3,
        config={"model_parameters": 1_000_000, "device": "cpu"},
    )
    build.series("host.memory_available", "bytes", [0.0, 40.0], [20.0 * GIB] * 2)
    for step in range(4):
        for rank in (0, 1):
            at = 10.0 * step
            build.collective(rank, step, at, at + 1.0, name="all_gather", group="z")
    return build


RUNS = {
    "sick": lambda: spread(7e9),
    "well": lambda: spread(30e9),
    "a lower stage": lambda: spread(7e9, stage=2),
    "a single rank": lambda: run(ranks=1, knobs=ZERO3),
    "the phases are those in which gathers were seen": _gathers_in_log_probs,
    "gathers that return at once leave only a hint": lambda: spread(7e9, gather_s=0.0),
    **rows("a hint needs training of a twentieth of the step", quiet, 0.5, 0.49),
    "on a cpu the weights lie in host memory 1": lambda: spread(1000000000.0, gib=None),
    "on a cpu the weights lie in host memory 2": lambda: spread(10000000000.0, gib=None),
}
