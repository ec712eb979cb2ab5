from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    counted,
    finding_in,
    run,
    step_starts,
    with_knobs,
)

EAGER = with_knobs(vllm__enforce_eager=True)


def decoding(steps: float, knobs: dict[str, object] = EAGER) -> TraceBuilder:
    """Five seconds of rollout in so many decoding steps."""
    build = counted(run(knobs=knobs), {"engine/steps": steps})
    for number, start in enumerate(step_starts()):
        pace = 1 + 0.01 * (number % 3)
        for rank in range(4):
            at = start + 0.05 + 0.1 * pace
            build.span(rank, "rollout/generate", at, at + 5.0 * pace, depth=2)
    return build


def sick() -> TraceBuilder:
    return decoding(500.0)


def well() -> TraceBuilder:
    return decoding(500.0, with_knobs(vllm__enforce_eager=False))


def test_an_engine_that_counted_no_step_shows_no_decoding_step() -> None:
    texts = [evidence.text for evidence in finding_in(decoding(0.0), "GD013").evidence]
    assert "one decoding step" not in texts
    assert "one decoding step" in [e.text for e in finding_in(sick(), "GD013").evidence]


RUNS = {
    "long decoding steps are the gpus": lambda: decoding(60.0),
    "without counted steps it is less sure": lambda: run(knobs=EAGER),
    "on a cpu there are no graphs": lambda: run(knobs=EAGER, memory_gib=None),
    "a short rollout is left alone": lambda: run({**HEALTHY, "rollout": 0.5}, knobs=EAGER),
    "transformers has no eager engine": lambda: run(knobs={**EAGER, "vllm.use": False}),
}
