from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import finding, not_applicable, passed, value

STEPS = 6


def sick() -> TraceBuilder:
    return overlapping(4.0)


def well() -> TraceBuilder:
    return overlapping(0.5)


def overlapping(
    wait_s: float, *, generate_s: float = 8.0, reward_s: float = 1.0, loop: bool = True
) -> TraceBuilder:
    """Two ranks with steps of ten seconds, and a rollout loop in a process of its own."""
    build = TraceBuilder(ranks=3, framework="trl", framework_version="1.16.0")
    build.roles[2] = "rollout"
    for number in range(STEPS):
        at = 10.0 * number
        for rank in (0, 1):
            build.step(rank, number, at, {"rollout/wait": wait_s, "train": 10.0 - wait_s})
        if loop:
            build.span(2, "rollout/generate", at, at + generate_s)
            build.span(2, "reward", at + 1, at + 1 + reward_s)
    return build


def test_the_ranks_wait_for_samples() -> None:
    found = finding(overlapping(4.0), "GD027")
    assert value(found, "waiting for samples, per step") == pytest.approx(4.0)
    assert value(found, "of the step") == pytest.approx(40.0)
    assert value(found, "rollout loop in rollout/generate") == pytest.approx(80.0)
    assert value(found, "rollout loop in reward") == pytest.approx(10.0)
    assert "1.7 times as fast" in found.cause
    assert found.fixes[0].spelling.startswith("move GPUs from training")


def test_a_reward_that_takes_more_than_generating_is_what_to_mend() -> None:
    found = finding(overlapping(4.0, generate_s=2.0, reward_s=7.0), "GD027")
    assert found.fixes[0].spelling.startswith("make the reward faster")


def test_without_a_recording_of_the_loop_the_wait_alone_is_told() -> None:
    found = finding(overlapping(9.0, loop=False), "GD027")
    assert [e.text for e in found.evidence] == ["waiting for samples, per step", "of the step"]
    assert found.severity == "high"


def test_ranks_that_hardly_wait_pass() -> None:
    assert "training is the slower side" in passed(overlapping(0.9), "GD027")


def test_a_wait_of_a_tenth_is_a_finding() -> None:
    assert finding(overlapping(1.0), "GD027").cost == pytest.approx(0.1)


def test_phases_one_after_the_other_are_another_matter() -> None:
    build = TraceBuilder()
    for number in range(STEPS):
        build.step(0, number, 10.0 * number, {"rollout": 5.0, "train": 5.0})
    assert "side by side" in not_applicable(build, "GD027")
