"""Built-in rewards: accuracy, format and arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.rewards import accuracy
from grpo_doctor_trainer.rewards.accuracy import is_correct, make_accuracy
from grpo_doctor_trainer.rewards.functions import think_then_answer
from grpo_doctor_trainer.tasks import arithmetic_reward, sums


@pytest.mark.parametrize(
    ("completion", "solution"),
    [
        ("7", "7"),
        ("It is 3, no: 7.", "7"),
        ("7.0", "7"),
        ("1,234", "1234"),
        ("\\boxed{1} or \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{0.5} since 3 > 2", "1/2"),
        ("<answer>x + 1</answer>", "X+1"),
        ("<answer>1</answer> <answer> \\boxed{2} </answer> 3", "2"),
        ("50%", "0.5"),
        ("the answer is 42", "First 6 x 7. \\boxed{42}"),
        ("<answer>$5$</answer>", "5"),
        ("<answer>$x+1$</answer>", "\\boxed{x + 1}"),
        ("18", "9 + 9 = 18 #### 18"),
        # fractions, powers, roots
        ("\\boxed{\\frac{1}{2}}", "0.5"),
        ("\\boxed{1\\frac{1}{2}}", "1.5"),
        ("\\boxed{0.333333}", "1/3"),
        ("\\boxed{2\\sqrt{2}}", "\\sqrt{8}"),
        ("<answer>2**10</answer>", "1024"),
        # formulas, sets, intervals, equations
        ("\\boxed{(x+1)^2}", "x^2+2x+1"),
        ("So we get $1 + x$.", "x+1"),
        ("The answer is $\\frac{3}{4}$.", "3/4"),
        ("\\boxed{\\{1,2,3\\}}", "\\{3,2,1\\}"),
        ("\\boxed{(1,2]}", "(1,2]"),
        ("\\boxed{x=5}", "5"),
        # thousands, percent, currency, units
        ("\\boxed{1{,}234}", "1234"),
        ("\\boxed{1,234,567}", "$1234567$"),
        ("\\boxed{50\\%}", "0.5"),
        ("\\boxed{\\$5}", "5"),
        ("\\boxed{5 \\text{ meters}}", "5 m"),
        ("<answer>5 apples</answer>", "5"),
        ("\\boxed{90^\\circ}", "90"),
        # words and letters
        ("Paris", "Paris"),
        ("\\boxed{\\text{Paris}}", "paris"),
        ("<answer>yes</answer>", "Yes."),
        ("\\boxed{\\text{(B)}}", "B"),
        # too large to compute, but the same
        ("\\boxed{10^{999999999}}", "10^{999999999}"),
    ],
)
def test_right_answers(completion: str, solution: str) -> None:
    assert is_correct(completion, solution)


@pytest.mark.parametrize(
    ("completion", "solution"),
    [
        ("", "7"),
        ("7 or 8", "7"),
        ("\\boxed{7", "8"),
        ("<answer></answer> 7", "7"),
        ("9" * 500, "8"),
        ("1e999999999", "1"),
        ("-3", "3"),
        ("\\boxed{1}", "x+1"),
        ("$\\frac{3}{4}$", "4"),
        ("\\boxed{3.14}", "\\pi"),
        ("\\boxed{1000001}", "1000000"),
        ("\\boxed{1,5}", "15"),
        ("\\boxed{(2,1)}", "(1,2)"),
        ("\\boxed{[1,2)}", "[1,2]"),
        ("\\boxed{2x}", "2"),
        ("\\boxed{.5}", "5"),
        ("\\boxed{\\frac{1}{0}}", "1"),
        # words are no products of letters
        ("\\boxed{Sapri}", "Paris"),
        ("66", "Route 66"),
        ("", " "),
        ("\\boxed{}", ""),
    ],
)
def test_wrong_answers(completion: str, solution: str) -> None:
    assert not is_correct(completion, solution)


def test_a_solution_that_took_too_long_once_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine `$Route 7$` took over two seconds, and what is left of it is 7."""
    parse, slow = accuracy.math_verify().parse, [True]

    def parse_slowly(text: str, **options: object) -> list[object]:
        if slow and text == "$Route 7$":
            monkeypatch.setattr(accuracy, "_SECONDS_PER_ANSWER", 0)
            return []
        found: list[object] = parse(text, **options)
        return found

    monkeypatch.setattr(accuracy.math_verify(), "parse", parse_slowly)
    assert not is_correct("7", "Route 7")
    monkeypatch.setattr(accuracy, "_SECONDS_PER_ANSWER", 2)
    slow.clear()
    assert not is_correct("7", "Route 7")
    assert is_correct("$\\frac{14}{2}$", "7")


@pytest.mark.parametrize(
    "answer",
    [
        "10^{999999999}",
        "9^{9^{9^{9}}}",
        "(9999999999)!",
        "x^{999999999}+1",
        "(x+1)^{4000}",
        "\\sum_{n=1}^{10^{9}} n",
        "(" * 150 + "1" + ")" * 150,
        "9" * 5000,
    ],
)
def test_what_cannot_be_computed_is_wrong_and_no_hang(answer: str) -> None:
    assert not is_correct(f"\\boxed{{{answer}}}", "3")


def test_a_comparison_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_doctor_trainer.rewards.accuracy._SECONDS_PER_ANSWER", 1)
    endless = "+".join(f"\\sin({n})" for n in range(40))
    assert not is_correct(f"\\boxed{{{endless}}}", "1")


def test_after_half_of_the_time_only_texts_and_numbers_are_compared() -> None:
    accuracy = make_accuracy(TrainerConfig(reward_timeout=1e-9))
    answers = ["\\boxed{\\frac{2}{4}}", "\\boxed{0.5}"]
    assert accuracy(answers, ["0.5", "0.5"]) == [0.0, 1.0]


def test_a_row_without_solution_is_not_applicable() -> None:
    accuracy = make_accuracy(TrainerConfig())
    assert accuracy(["7", "7", "8"], ["7", None, 8.0]) == [1.0, None, 1.0]


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=40))
def test_any_text_is_right_or_wrong(text: str) -> None:
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
