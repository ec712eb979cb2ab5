from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    counted,
    finding_in,
    not_applicable,
    passed,
    run,
    step_starts,
    value,
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


def test_short_decoding_steps_are_mostly_launching() -> None:
    finding = finding_in(sick(), "GD013")
    assert value(finding, "decoding step") == pytest.approx(1000 * 5.05 / 500, abs=0.05)
    assert (finding.severity, finding.confidence, finding.cost) == ("medium", 0.8, 0.0)
    assert finding.fixes[0].spelling == "--vllm_enforce_eager false"


def test_long_decoding_steps_are_the_gpus() -> None:
    assert "takes 84 ms" in passed(decoding(60.0), "GD013")


def test_without_counted_steps_it_is_less_sure() -> None:
    finding = finding_in(run(knobs=EAGER), "GD013")
    assert (finding.severity, finding.confidence) == ("low", 0.5)


def test_on_a_cpu_there_are_no_graphs() -> None:
    assert "no GPU" in not_applicable(run(knobs=EAGER, memory_gib=None), "GD013")


def test_a_short_rollout_is_left_alone() -> None:
    assert "rollout takes" in passed(run({**HEALTHY, "rollout": 0.5}, knobs=EAGER), "GD013")


def test_transformers_has_no_eager_engine() -> None:
    knobs = {**EAGER, "vllm.use": False}
    assert "eager" in not_applicable(run(knobs=knobs), "GD013")


def test_an_engine_that_counted_no_step_shows_no_decoding_step() -> None:
    texts = [evidence.text for evidence in finding_in(decoding(0.0), "GD013").evidence]
    assert "one decoding step" not in texts
    assert "one decoding step" in [e.text for e in finding_in(sick(), "GD013").evidence]
