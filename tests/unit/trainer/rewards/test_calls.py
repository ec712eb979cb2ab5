"""What a reward function returns is checked, and what goes wrong is told to the user."""

from __future__ import annotations

import math
from typing import Any

import pytest

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.functions import RewardFunction, checked, raised

MINE = RewardFunction("mine", "rewards.py:mine", ())


@pytest.mark.parametrize(
    ("error", "hinted"),
    [
        (TypeError("string indices must be integers, not 'str'"), True),
        (TypeError("unsupported operand"), False),
        (KeyError("indices must be integers"), False),
    ],
)
def test_who_takes_completions_for_chats_gets_a_hint(error: Exception, hinted: bool) -> None:
    try:
        raise error
    except type(error) as caught:
        message = raised(caught, MINE, {"completions": ["a"], "level": [3]})
    assert "it was given completions, level." in message
    assert ("Completions are text here" in message) == hinted
    assert ("Correct it, or return None" in message) != hinted


@pytest.mark.parametrize("value", [3.4e38, -3.4e38, 0, True, None])
def test_a_number_that_float32_holds_is_a_reward(value: Any) -> None:
    (score,) = checked([value], MINE, {"completions": ["a"]})
    assert math.isnan(score) if value is None else score == value


@pytest.mark.parametrize("value", [3.5e38, -3.5e38, b"1", float("-inf")])
def test_any_other_is_none(value: Any) -> None:
    with pytest.raises(RewardError, match="for the completion 'b'; return a finite number"):
        checked([1.0, value], MINE, {"completions": ["a", "b"]})


def test_a_completion_whose_text_is_not_given_is_named_by_its_number() -> None:
    with pytest.raises(RewardError, match="for the completion number 2; return"):
        checked([1.0, "x"], MINE, {"level": [1, 2]})
