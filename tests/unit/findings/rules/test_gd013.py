from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules import saying

EAGER = saying.with_knobs(vllm__enforce_eager=True)


def decoding(steps: float, knobs: dict[str, object] = EAGER) -> TraceBuilder:
    """Five seconds of rollout in so many decoding steps."""
    build = saying.counted(saying.run(knobs=knobs), {"engine/steps": steps})
    for number, start in enumerate(saying.step_starts()):
        pace = 1 + 0.01 * (number % 3)
        for rank in range(4):
            at = start + 0.05 + 0.1 * pace
            build.span(rank, "rollout/generate", at, at + 5.0 * pace, depth=2)
    return build


def an_engine_that_counted_no_step() -> TraceBuilder:
    return decoding(0.0)


RUNS = {
    "sick": lambda: decoding(500.0),
    "well": lambda: decoding(500.0, saying.with_knobs(vllm__enforce_eager=False)),
    "long decoding steps are the gpus": lambda: decoding(60.0),
    "without counted steps it is less sure": lambda: saying.run(knobs=EAGER),
    "on a cpu there are no graphs": lambda: saying.run(knobs=EAGER, memory_gib=None),
    "a short rollout is left alone": lambda: saying.run(
        {**saying.HEALTHY, "rollout": 0.5}, knobs=EAGER
    ),
    "transformers has no eager engine": lambda: saying.run(knobs={**EAGER, "vllm.use": False}),
}
