from __future__ import annotations

from tests.unit.findings.rules.saying import HEALTHY, run, with_knobs

LORA = with_knobs(train__type="lora", vllm__enable_lora=False)
SENDING = {**HEALTHY, "sync": 2.0}


RUNS = {
    "sick": lambda: run(SENDING, knobs=LORA),
    "well": lambda: run(SENDING, knobs={**LORA, "vllm.enable_lora": True}),
    "without adapters": lambda: run(SENDING, knobs={**LORA, "train.type": "full"}),
    "without an engine": lambda: run(SENDING, knobs={**LORA, "vllm.use": False}),
    "a base that sleep drops is kept": lambda: run(SENDING, knobs={**LORA, "vllm.sleep_level": 2}),
    "a server gets words": lambda: run(SENDING, knobs={**LORA, "vllm.mode": "server"}),
    "a version without adapters says so": lambda: run(
        SENDING, knobs=LORA, framework_version="3.9.0"
    ),
    "a short sync is left alone": lambda: run(knobs=LORA),
}
