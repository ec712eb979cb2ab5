"""Finding reward functions, calling them, and refusing what is no reward."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.data.rows import Row
from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.registry import RewardFunction, find_rewards
from grpo_doctor_trainer.rewards.scoring import combine, score

ROWS = [Row([{"role": "user", "content": "1+1"}], {"solution": "2", "level": 3})] * 2
PROMPTS = ["1+1", "1+1"]


def reward(call: Callable[..., Any], columns: tuple[str, ...] | None = None) -> RewardFunction:
    return RewardFunction("mine", "rewards.py:mine", columns, call)


def refusal(call: Callable[..., Any]) -> str:
    with pytest.raises(RewardError) as error:
        score([reward(call)], ROWS, PROMPTS, ["2", "3"])
    assert "rewards.py:mine" in str(error.value)
    return str(error.value)


def in_file(folder: Path, text: str, name: str = "mine") -> str:
    path = folder / "rewards.py"
    path.write_text(text, encoding="utf-8")
    return f"{path}:{name}"


def test_built_in_functions_see_their_columns() -> None:
    functions = find_rewards(["accuracy", "format"], {"solution", "level"})
    scores = score(functions, ROWS, PROMPTS, ["2", "3"])
    assert scores.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert [function.name for function in functions] == ["accuracy", "format"]


def test_a_function_gets_only_the_columns_it_names(tmp_path: Path) -> None:
    source = in_file(
        tmp_path, "def mine(completions, level, *, prompts, extra=1):\n    return [*level]\n"
    )
    (function,) = find_rewards([source], {"level"})
    assert function.columns == ("completions", "level", "prompts", "extra")
    assert score([function], ROWS, PROMPTS, ["2", "3"]).tolist() == [[3.0], [3.0]]


def test_two_functions_of_one_name_are_told_apart(tmp_path: Path) -> None:
    source = in_file(tmp_path, "def accuracy(completions):\n    return [0] * len(completions)\n")
    names = [f.name for f in find_rewards(["accuracy", f"{source[:-5]}:accuracy"], {"solution"})]
    assert names == ["accuracy", "accuracy_1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def other(completions): ...", "has no function mine"),
        ("mine = 3", "has no function mine"),
        ("import no_such_module", "cannot be imported: ModuleNotFoundError"),
        ("def mine(:", "cannot be imported: SyntaxError"),
        ("def mine(completions, key): ...", "needs the column key"),
        ("def mine(completions, key, sign): ...", "needs the column key and sign"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RewardError, match=message) as error:
        find_rewards([in_file(tmp_path, text + "\n")], {"level"})
    assert "rewards.py:mine" in str(error.value)


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="neither one of accuracy, format, arithmetic"):
        find_rewards(["acuracy"], {"solution"})
    with pytest.raises(RewardError, match="there is no file"):
        find_rewards([f"{tmp_path}/missing.py:mine"], {"solution"})
    with pytest.raises(RewardError, match=r"needs the column solution.*only the prompt"):
        find_rewards(["accuracy"], set())


@pytest.mark.parametrize("value", [math.nan, math.inf, "high", [1.0]])
def test_values_that_are_no_numbers(value: Any) -> None:
    message = refusal(lambda **_: [1.0, value])
    assert f"returned {value!r} for the completion '3'" in message


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ([1.0], "1 values for 2"),
        ([], "0 values"),
        (None, "NoneType"),
        (1.0, "float"),
        ("ab", "str"),
    ],
)
def test_results_of_another_shape(returned: Any, what: str) -> None:
    assert f"returned {what}" in refusal(lambda **_: returned)


def test_a_function_that_raises_is_named_with_the_line() -> None:
    def mine(**_columns: Any) -> list[float]:
        raise KeyError("answer_key")

    message = refusal(mine)
    assert "raised KeyError: 'answer_key'" in message
    assert f"{__file__}, line " in message
    assert "it was given solution, level, prompts, completions" in message


def test_none_is_not_applicable_and_left_out_of_the_sum() -> None:
    one = reward(lambda **_: [None, 2])
    two = reward(lambda **_: [True, None])
    scores = score([one, two], ROWS, PROMPTS, ["2", "3"])
    assert scores.isnan().tolist() == [[True, False], [False, True]]
    assert combine(scores, [10.0, 0.5]).tolist() == [0.5, 20.0]


def test_weights_multiply() -> None:
    scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert combine(scores, [2.0, -1.0]).tolist() == [0.0, 2.0]
