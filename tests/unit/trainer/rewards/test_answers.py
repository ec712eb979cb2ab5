"""Answers found in texts, and read as a number, a value with a unit, or a formula."""

from __future__ import annotations

from fractions import Fraction

import pytest

from grpo_doctor_trainer.rewards.answers import (
    final_answer,
    is_marked,
    is_maths,
    number,
    plain,
    same_number,
    solution_answer,
    without_unit,
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\boxed{x}", "x"),
        ("a \\boxed{x} b \\boxed{ {y}+{z} } 7", "{y}+{z}"),
        ("\\boxed{x", None),
        ("\\boxed{}", ""),
        ("<answer>3</answer> \\boxed{x}", "3"),
        ("<answer> 3 </answer> <answer>is \\boxed{4} </answer>", "4"),
        ("first 3, then -4.5 apples", "-4.5"),
        ("1,234 or 1,234,567", "1,234,567"),
        ("no number", None),
        ("", None),
    ],
)
def test_the_last_marked_answer_or_else_the_last_number(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("solution", "answer"),
    [("It is 3. #### 7 ", "7"), (" x + 1 ", "x + 1"), ("\\boxed{2} #### 3", "2"), ("####", "")],
)
def test_the_answer_in_a_solution(solution: str, answer: str) -> None:
    assert solution_answer(solution) == answer


def test_what_marks_an_answer() -> None:
    assert [is_marked(text) for text in ("<answer></answer>", "\\boxed{1}", "\\boxed{1", "1")] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", Fraction(7)),
        ("-3.50", Fraction(-7, 2)),
        ("1{,}234", Fraction(1234)),
        ("$1,234$", Fraction(1234)),
        ("€5", Fraction(5)),
        ("2/8", Fraction(1, 4)),
        ("50%", Fraction(1, 2)),
        ("50\\%", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("1.5e2", Fraction(150)),
        ("9" * 60, Fraction(int("9" * 60))),
        ("9" * 61, None),
        ("1/0", None),
        ("1,23", None),
        ("x", None),
        ("", None),
    ],
)
def test_a_number_is_read_exactly(text: str, value: Fraction | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("candidate", "expected", "same"),
    [
        ("50%", "0.5", True),
        ("50%", "50", True),
        ("50", "50%", True),
        ("50%", "50%", True),
        ("50%", "5000%", False),
        ("5000%", "50%", False),
        ("50", "5000", False),
        ("0.5", "50", False),
        ("50%.", "50$", True),
        ("1000001", "1000000", False),
        ("1.000001", "1", True),
        ("1", "1.000001", True),
        ("0.9999989", "1", False),
        ("1.0000011", "1", False),
        ("-1.000001", "-1", True),
        ("0.3333333", "1/3", True),
        ("0.333", "1/3", False),
        ("0.0", "0", True),
        ("x", "1", None),
        ("1", "x", None),
    ],
)
def test_numbers_are_the_same_to_a_millionth_and_whole_ones_exactly(
    candidate: str, expected: str, same: bool | None
) -> None:
    assert same_number(candidate, expected) is same


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("5 cm", "5", "cm"),
        ("5cm", "5", "cm"),
        ("$5$", "5", ""),
        ("5 m", "5", "m"),
        ("5m", "5m", ""),  # a product, as far as one can know
        ("5 x", "5 x", ""),
        ("2xy", "2xy", ""),
        ("5 ab", "5 ab", ""),
        ("5 cat", "5", "cat"),
        ("5 cats", "5", "cat"),
        ("5 gas", "5", "gas"),
        ("5 sin", "5 sin", ""),
        ("5 meters", "5", "m"),
        ("5 ms", "5", "ms"),
        ("5 feet", "5", "ft"),
        ("10 units", "10", ""),
        ("5 square units", "5", ""),
        ("5 km/h", "5", "km/h"),
        ("5 cm^2", "5", "cm2"),
        ("5 cm²", "5", "cm2"),
        ("5\\text{ cm}^2", "5", "cm2"),
        ("5\\mathrm{ m}^{3}", "5", "m3"),
        ("2 \\text{or} 3", "2 \\text{or} 3", ""),
        ("x \\text{ is even}", "x \\text{ is even}", ""),
        ("", "", ""),
    ],
)
def test_a_value_is_split_from_its_unit(text: str, value: str, unit: str) -> None:
    assert without_unit(text) == (value, unit)


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("x + 1", True),
        ("\\sin x", True),
        ("sin(x)", True),
        ("5 apples", True),
        ("\\frac{1}{2}", True),
        ("\\pi", True),
        ("xy", False),
        ("no", False),
        ("x", True),
        ("is even", False),
        ("x \\text{ is even}", False),
        ("2 and 3", False),
        ("", False),
        ("  ", False),
    ],
)
def test_a_formula_has_no_words(text: str, formula: bool) -> None:
    assert is_maths(text) == formula


@pytest.mark.parametrize(
    ("text", "reduced"),
    [
        (" $X + 1$. ", "x+1"),
        ("$$ 5 $$", "5"),
        ("\\( a \\)", "a"),
        ("\\[ a \\].", "a"),
        ("\\text{Paris}", "paris"),
        ("Yes.", "yes"),
        ("\\(a", "\\(a"),
        ("$", ""),
    ],
)
def test_texts_are_compared_without_what_encloses_them(text: str, reduced: str) -> None:
    assert plain(text) == reduced
