from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import NotApplicable, Passed
from grpo_doctor.findings.rules import gd043_logits_memory as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import finding_by, judged, knob, number

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
        knobs={**KNOBS, **knobs},
        config={"model_vocab_size": vocabulary},
        memory_gib=(60.0, gib),
        framework=framework,
        framework_version="4.6.0" if framework == "ms-swift" else "0.1.0",
    )


def sick() -> TraceBuilder:
    return logits()


def well() -> TraceBuilder:
    return logits(gib=50.0)


def test_logits_on_a_full_gpu_are_worth_a_fused_loss() -> None:
    finding = finding_by(rule, sick())
    needed = 4 * 4096 * 151_936 * 2 * 4 / 2**30
    assert number(finding, "logits") == pytest.approx(needed, abs=0.01)
    assert (finding.severity, finding.cost) == ("low", 0.0)
    assert finding.fixes[0].predicted is None


def test_the_bundled_trainer_holds_two_copies_and_takes_smaller_batches() -> None:
    fields: dict[str, Any] = {"train.micro_batch": 8, "framework": "bundled"}
    finding = finding_by(rule, logits(**fields))
    assert number(finding, "assumed copies") == 2
    assert finding.fixes[0].spelling == (
        "--per_device_train_batch_size 4 --gradient_accumulation_steps 4"
    )


def test_free_memory_and_small_vocabularies_are_silent() -> None:
    assert isinstance(judged(rule, well()), Passed)
    assert isinstance(judged(rule, logits(vocabulary=32_000)), Passed)


def test_a_fused_loss_is_not_asked_about() -> None:
    assert isinstance(judged(rule, logits(**knob("train.use_liger", True))), NotApplicable)
    assert isinstance(judged(rule, logits(**knob("train.micro_batch", None))), NotApplicable)


@pytest.mark.parametrize(
    ("micro", "passes", "halved"), [(8, 2, True), (7, 2, False), (8, "auto", False)]
)
def test_a_batch_that_can_not_be_halved_gets_words(
    micro: int, passes: object, halved: bool
) -> None:
    knobs: dict[str, Any] = {"train.micro_batch": micro, "train.grad_accumulation": passes}
    (fix,) = finding_by(rule, logits(framework="bundled", **knobs)).fixes
    assert fix.pasted is halved
    assert fix.spelling.startswith("use a loss that is computed in chunks") is not halved


@pytest.mark.parametrize(("gib", "is_full"), [(68.0, True), (67.9, False)])
def test_training_fills_a_gpu_from_seventeen_twentieths_on(gib: float, is_full: bool) -> None:
    assert isinstance(judged(rule, logits(gib=gib)), Passed) is not is_full
