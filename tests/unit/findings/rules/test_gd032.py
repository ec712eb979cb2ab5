from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.findings.rule import Finding, Passed
from grpo_doctor.findings.rules import gd032_tokenizing_in_the_step as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, finding_by, inside, judged, number
from tests.unit.findings.rules.saying import even


def encoding(seconds: float) -> TraceBuilder:
    build = run()
    inside(build, "rollout/encode", seconds)
    return inside(build, "logprob/prepare_inputs", seconds / 2)


def sick() -> TraceBuilder:
    return encoding(1.0)


def well() -> TraceBuilder:
    return encoding(0.02)


def test_spans_of_several_phases_add_up() -> None:
    finding = finding_by(rule, sick())
    assert finding.cost == pytest.approx(1.5 / 9.95, rel=0.01)
    assert finding.phases == ("logprob", "rollout")
    assert number(finding, "rollout/encode") == pytest.approx(1.0, rel=0.01)
    assert finding.fixes[0].knob is None
    assert isinstance(judged(rule, well()), Passed)


def texts(workers: int) -> TraceBuilder:
    facts: dict[str, Any] = {"framework": "bundled", "framework_version": "0.1.0"}
    knobs = {**SETTINGS, "dataload.num_workers": workers}
    build = run({**HEALTHY, "dataload": 2.0}, knobs=knobs, **facts)
    for name, value in (("tokenize_s", 1.8), ("join_s", 0.1), ("read_s", 0.0)):
        count(build, f"dataload/{name}", value)
    return build


def test_a_loader_without_processes_tokenizes_in_the_step() -> None:
    finding = finding_by(rule, texts(0))
    assert number(finding, "tokenizing per step") == pytest.approx(1.9)
    # More processes are GD002's advice; that it can be done beforehand is not.
    assert finding.severity == "low"
    (fix,) = finding.fixes
    assert "once, before training" in fix.spelling
    assert isinstance(judged(rule, texts(2)), Passed)


def test_texts_beside_images_that_take_longer_are_a_part_of_loading() -> None:
    answer = judged(rule, count(texts(0), "dataload/process_s", 4.0))
    assert isinstance(answer, Passed)
    assert "GD002" in answer.note


def test_a_recording_that_does_not_say_is_told_what_is_missing() -> None:
    analysis = RunView.of(run().build()).analysis
    missing = [signal.text for signal in rule.RULE.needs if not signal.present(analysis)]
    assert len(missing) == 1
    assert "rollout/encode" in missing[0]


def mixed(spans_s: float, texts_s: float, images_s: float, *, waits_s: float = 2.0) -> TraceBuilder:
    """Steps of ten seconds without loader processes: spans, and what loading is made of."""
    knobs = {**SETTINGS, "dataload.num_workers": 0}
    build = even({"dataload": waits_s, "rollout": 3.0}, knobs=knobs)
    for step in range(4):
        at = 10.0 * step + waits_s
        build.span(0, "rollout/encode", at, at + spans_s, depth=2)
    for name, value in (("tokenize_s", texts_s), ("read_s", images_s)):
        count(build, f"dataload/{name}", value)
    return build


@pytest.mark.parametrize(
    ("spans_s", "texts_s", "images_s", "is_found"),
    [
        (0.49, 1.0, 4.0, False),  # the texts are a fifth of what GD002 reports
        (0.5, 1.0, 4.0, True),  # spans of a twentieth of the step are not loading
        (0.1, 2.0, 2.0, True),
        (0.1, 2.0, 2.01, False),
    ],
)
def test_what_is_a_part_of_slow_loading_is_not_told_twice(
    spans_s: float, texts_s: float, images_s: float, is_found: bool
) -> None:
    answer = judged(rule, mixed(spans_s, texts_s, images_s))
    if is_found:
        assert isinstance(answer, Finding)
        assert answer.severity == "low"
    else:
        assert isinstance(answer, Passed)
        assert "GD002 reports" in answer.note


@pytest.mark.parametrize(
    ("texts_s", "processes", "takes"),
    [(2.0, 1, "Takes 1 process per rank"), (8.0, 2, "Takes 2 processes per rank")],
)
def test_loading_that_nobody_else_tells_of_gets_processes(
    texts_s: float, processes: int, takes: str
) -> None:
    build = mixed(0.0, texts_s, 4.0, waits_s=0.4)
    finding = finding_by(rule, build)
    fix = finding.fixes[0]
    assert (fix.knob, fix.after) == ("dataload.num_workers", processes)
    assert fix.risk.startswith(takes)
    assert finding.severity != "low"
    assert fix.predicted is not None
    assert f"with dataload.num_workers {processes}" in fix.predicted.basis
