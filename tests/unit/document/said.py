"""The documents of some runs without their charts, so that a change of any word or number shows.

`python -m tests.unit.document.said` writes them down again; read the diff of `said.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from grpo_doctor.document import Price, build_document
from grpo_doctor.trace.model import Trace
from tests.build import TraceBuilder
from tests.unit.analysis.numbers import plain
from tests.unit.analysis.recordings import recording
from tests.unit.document.test_memory import recorded as recorded_memory
from tests.unit.findings.example_runs import empty_gpus, healthy, offloaded, run, straggling
from tests.unit.findings.registry import EXAMPLES

RECORDED = Path(__file__).with_name("said.json")
# What other places write down: the charts' numbers, and what each rule says.
_LEFT_OUT = ("tool", "views", "passed", "not_run", "not_applicable")
_OFFLOADED = {"deepspeed.offload_optimizer": True, "deepspeed.preset": "zero2_offload",
              "train.micro_batch": 32}  # fmt: skip
_SIZES: dict[str, Any] = {
    "model_hidden_size": 128, "model_intermediate_size": 256, "model_vocab_size": 261,
    "model_num_hidden_layers": 1, "model_parameters": 214_912,
}  # fmt: skip
RUNS: dict[str, Callable[[], Trace]] = {
    "healthy": healthy, "offloaded": lambda: offloaded().build(),
    "straggling": lambda: straggling().build(), "empty GPUs": lambda: empty_gpus().build(),
    "unaccounted": lambda: run(idle=1.5, ranks=1, memory_gib=None).build(),
    "odd 0": lambda: recording(0), "odd 1": lambda: recording(1), "odd 3": lambda: recording(3),
    "ended by an error": lambda: EXAMPLES["GD074"][0]().build(),
    "on a card": lambda: recorded_memory(trained=19.0).build(),
    "on a nearly full card": lambda: recorded_memory(trained=71.9, knobs=_OFFLOADED).build(),
    "short rows": lambda: _with_places(recorded_memory(trained=16.5)).build(),
    "on a CPU": lambda: recorded_memory(gpu=False, device="cpu").build(),
    "sizes alone": lambda: recorded_memory(knobs={"model.name": ""}, **_SIZES).build(),
}  # fmt: skip


def _with_places(build: TraceBuilder) -> TraceBuilder:
    for rank in (0, 1):
        values = (300.0 + 100 * rank, 400.0, 900.0)
        moments = (11.2, 11.6, 14.0)  # the last in the second step
        build.series("train/token_places", "", moments, values, scope="counter", rank=rank)
    return build


def document(name: str) -> dict[str, Any]:
    """What is said of one run, at a price."""
    built = build_document(RUNS[name](), price=Price(2.5))
    entries = msgspec.to_builtins(built)
    members: dict[str, Any] = plain({k: v for k, v in entries.items() if k not in _LEFT_OUT})
    return members


def recorded() -> dict[str, Any]:
    """What was written down."""
    documents: dict[str, Any] = json.loads(RECORDED.read_text())
    return documents


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({n: document(n) for n in RUNS}, indent=1) + "\n")
