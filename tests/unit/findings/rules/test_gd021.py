from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import HEALTHY, not_applicable, run, with_knobs

LORA = with_knobs(train__type="lora", vllm__enable_lora=False)
SENDING = {**HEALTHY, "sync": 2.0}


def sick() -> TraceBuilder:
    return run(SENDING, knobs=LORA)


def well() -> TraceBuilder:
    return run(SENDING, knobs={**LORA, "vllm.enable_lora": True})


def test_only_adapters_of_an_engine_of_its_own_are_meant() -> None:
    assert "only adapters" in not_applicable(well(), "GD021")
    for knobs in ({**LORA, "train.type": "full"}, {**LORA, "vllm.use": False}):
        assert "no adapters" in not_applicable(run(SENDING, knobs=knobs), "GD021")


RUNS = {
    "a base that sleep drops is kept": lambda: run(SENDING, knobs={**LORA, "vllm.sleep_level": 2}),
    "a server gets words": lambda: run(SENDING, knobs={**LORA, "vllm.mode": "server"}),
    "a version without adapters says so": lambda: run(
        SENDING, knobs=LORA, framework_version="3.9.0"
    ),
    "a short sync is left alone": lambda: run(knobs=LORA),
}
