"""Built-in rewards: accuracy, format and arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor_trainer.rewards.accuracy import accuracy, final_answer, is_correct
from grpo_doctor_trainer.rewards.layout import think_then_answer
from grpo_doctor_trainer.tasks.arithmetic import arithmetic_reward, sums


@pytest.mark.parametrize(
    ("completion", "solution"),
    [
        ("7", "7"),
        ("It is 3, no: 7.", "7"),
        ("7.0", "7"),
        ("1,234", "1234"),
        ("\\boxed{12}", "12"),
        ("\\boxed{1} or \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{0.5} since 3 > 2", "1/2"),
        ("<answer>x + 1</answer>", "X+1"),
        ("<answer>1</answer> <answer> \\boxed{2} </answer> 3", "2"),
        ("50%", "0.5"),
        ("-3", "-3"),
        ("the answer is 42", "First 6 x 7. \\boxed{42}"),
        ("<answer>$5$</answer>", "5"),
        ("<answer>$x+1$</answer>", "\\boxed{x + 1}"),
        ("18", "9 + 9 = 18 #### 18"),
    ],
)
def test_right_answers(completion: str, solution: str) -> None:
    assert is_correct(completion, solution)


@pytest.mark.parametrize(
    ("completion", "solution"),
    [
        ("", "7"),
        ("none", "7"),
        ("7 or 8", "7"),
        ("\\boxed{7", "8"),
        ("<answer></answer> 7", "7"),
        ("1/0", "1"),
        ("9" * 500, "8"),
        ("1e999999999", "1"),
        ("-3", "3"),
        ("2", "\\frac{1}{2}"),
        ("\\boxed{1}", "x+1"),
    ],
)
def test_wrong_answers(completion: str, solution: str) -> None:
    assert not is_correct(completion, solution)


def test_a_row_without_solution_is_not_applicable() -> None:
    assert accuracy(["7", "7", "8"], ["7", None, 8.0]) == [1.0, None, 1.0]


@given(st.text(max_size=40))
def test_any_text_has_an_answer_or_none(text: str) -> None:
    assert final_answer(text) is None or isinstance(final_answer(text), str)
    assert isinstance(is_correct(text, text), bool)


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ("<think>a</think><answer>b</answer>", 1.0),
        (" <think>a\nb</think>\n\n<answer>c</answer>\n", 1.0),
        ("<think></think><answer></answer>", 1.0),
        ("<think>a</think>", 0.0),
        ("<answer>b</answer><think>a</think>", 0.0),
        ("x<think>a</think><answer>b</answer>", 0.0),
        ("<think>a</think>x<answer>b</answer>", 0.0),
        ("<think>a</think><answer>b</answer>.", 0.0),
        ("<think>a<think></think><answer>b</answer>", 0.0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0.0),
    ],
)
def test_format(completion: str, value: float) -> None:
    assert think_then_answer([completion]) == [value]


def closeness(completion: str, solution: str) -> float:
    return arithmetic_reward([completion], [solution])[0]


def test_the_task_is_every_sum_with_its_solution() -> None:
    rows = sums()
    assert len({row["prompt"] for row in rows}) == len(rows)
    for row in rows:
        left, right = row["prompt"].split("+")
        assert int(row["solution"]) == int(left) + int(right)


@given(st.text(max_size=12), st.integers(0, 99))
def test_arithmetic_is_within_bounds_and_1_only_for_the_solution(text: str, answer: int) -> None:
    value = closeness(text, str(answer))
    assert 0 <= value <= 1
    assert (value == 1) == (text == str(answer))


def test_nearer_answers_earn_more() -> None:
    values = [closeness(str(number), "8") for number in (8, 7, 6, 5, 4)]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values)


def test_shorter_surplus_earns_more_and_digits_beat_other_characters() -> None:
    lengths = [closeness("8" * count, "8") for count in (1, 2, 3, 5, 8)]
    assert lengths == sorted(lengths, reverse=True)
    assert closeness("12", "8") > closeness("1x", "8") > closeness("xy", "8")
    assert closeness("", "8") == 0
