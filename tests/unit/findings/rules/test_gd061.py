from __future__ import annotations

from typing import Any

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, missing, not_applicable, passed, run, value


def sick() -> TraceBuilder:
    return learner({"reward": 0.5}, knobs={"rollout.num_generations": 2})


def well() -> TraceBuilder:
    return learner()


def test_the_error_of_the_mean_and_the_expected_groups() -> None:
    finding = finding_in(sick(), "GD061")
    assert finding.severity == "medium"
    assert value(finding, "error of a group's mean") == pytest.approx(70.7, abs=0.1)
    assert value(finding, "with equal rewards") == pytest.approx(50)
    assert finding.fixes[0].spelling == "--num_generations 8"


@pytest.mark.parametrize(("count", "severity"), [(1, "high"), (3, "medium"), (4, "low")])
def test_grades(count: int, severity: str) -> None:
    build = learner(knobs={"rollout.num_generations": count})
    assert finding_in(build, "GD061").severity == severity


def test_five_are_few_and_not_too_few() -> None:
    passed(learner(knobs={"rollout.num_generations": 5}), "GD061")


def test_unknown_settings() -> None:
    assert "settings" in missing(run(knobs={}), "GD061")


@pytest.mark.parametrize(
    ("reward", "mentioned"), [(0.0, True), (1.0, True), (-0.1, False), (1.1, False)]
)
def test_only_rewards_of_right_or_wrong_say_how_many_groups_are_equal(
    reward: float, mentioned: bool
) -> None:
    build = learner({"reward": reward}, knobs={"rollout.num_generations": 2})
    texts = [evidence.text for evidence in finding_in(build, "GD061").evidence]
    assert any("with equal rewards" in text for text in texts) is mentioned


@pytest.mark.parametrize("count", [0, "auto", None, 4.0])
def test_what_is_no_number_of_completions_is_not_judged(count: object) -> None:
    build = learner(framework="unknown", knobs={"rollout.num_generations": count})
    assert "was not recorded" in not_applicable(build, "GD061")


@pytest.mark.parametrize(
    ("config", "judged"),
    [
        ({"algorithm": {"adv_estimator": "gae"}}, False),
        ({"algorithm": {"adv_estimator": "grpo"}}, True),
        ({"advantage_estimator": "reinforce"}, False),
        ({"advantage_estimator": "group_norm"}, True),
    ],
)
def test_advantages_that_come_from_no_group(config: dict[str, Any], judged: bool) -> None:
    build = learner(knobs={"rollout.num_generations": 1}, config=config)
    if judged:
        finding_in(build, "GD061")
    else:
        assert "do not come from a group" in not_applicable(build, "GD061")
