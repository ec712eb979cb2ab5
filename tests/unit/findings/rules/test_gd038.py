from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.whatif import Prediction
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import count, inside
from tests.unit.findings.rules.saying import passed


def padded(tokens: float, **facts: Any) -> TraceBuilder:
    build = run(**facts)
    inside(build, "train/micro_batch", 2.5, times=4)
    count(build, "train/tokens", tokens)
    return count(build, "train/token_places", 1000.0)


def test_padding_whose_removal_gives_little_back_is_no_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    little = Prediction(-3.0, -1.0, 2.0, "a model that found passes to take the same time")
    monkeypatch.setattr(RunView, "gain", lambda *_: little)
    assert "change the step by -1.0%" in passed(padded(400.0), "GD038")


def lengths_from_metrics_are_a_weak_guess() -> TraceBuilder:
    build = run()
    for step in range(6):
        lengths = {"completions/mean_length": 100.0, "completions/max_length": 400.0}
        build.metrics(step, **lengths)
    return build


def lengths_of_nothing_are_no_padding() -> TraceBuilder:
    build = run()
    build.metrics(0, **{"completions/mean_length": float("nan"), "completions/max_length": 0.0})
    return build


RUNS = {
    "sick": lambda: padded(400.0),
    "well": lambda: padded(850.0),
    "the bundled trainer packs where it shares prompts": lambda: padded(400.0, framework="bundled",
        framework_version="0.1.0", knobs={**SETTINGS, "train.share_prompts": False}),
    "packed sequences have no padding": lambda: padded(400.0,
        knobs={**SETTINGS, "train.padding_free": True}),
}  # fmt: skip
