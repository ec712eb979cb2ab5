from __future__ import annotations

import pytest

from tests.unit.findings.learners import learner
from tests.unit.findings.rules.saying import finding_in, rows, run


@pytest.mark.parametrize(
    ("reward", "mentioned"), [(0.0, True), (1.0, True), (-0.1, False), (1.1, False)]
)
def test_only_rewards_of_right_or_wrong_say_how_many_groups_are_equal(
    reward: float, mentioned: bool
) -> None:
    build = learner({"reward": reward}, knobs={"rollout.num_generations": 2})
    texts = [evidence.text for evidence in finding_in(build, "GD061").evidence]
    assert any("with equal rewards" in text for text in texts) is mentioned


RUNS = {
    "sick": lambda: learner({"reward": 0.5}, knobs={"rollout.num_generations": 2}),
    "well": learner,
    **rows("grades", lambda count: learner(knobs={"rollout.num_generations": count}), 1, 3, 4),
    "five are few and not too few": lambda: learner(knobs={"rollout.num_generations": 5}),
    "training without rollouts has no groups": lambda: run({"dataload": 1.0, "train": 4.0}),
    "unknown settings": lambda: run(knobs={}),
    **rows("what is no number of completions is not judged",
        lambda count: learner(framework="unknown", knobs={"rollout.num_generations": count}), 0,
        "auto", None, 4.0),
    **rows(
        "advantages that come from no group",
        lambda config: learner(knobs={"rollout.num_generations": 1}, config=config),
        ({"algorithm": {"adv_estimator": "gae"}},),
        ({"algorithm": {"adv_estimator": "grpo"}},),
        ({"advantage_estimator": "reinforce"},),
        ({"advantage_estimator": "group_norm"},),
    ),
}  # fmt: skip
