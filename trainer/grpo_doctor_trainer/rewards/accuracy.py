r"""`accuracy`: 1 if the final answer of a completion equals the solution, 0 if not.

The final answer is the content of the last `<answer>` element, or of the last `\boxed{}`; without
either, what math-verify (https://github.com/huggingface/Math-Verify) finds at the end of the text.
Of a solution it is the same, what follows `####` (GSM8K), or else all of it. Both are compared as
text, as numbers, and as mathematics by math-verify; words are compared as text only. A unit may be
left out but not be another one.
"""

from __future__ import annotations

import functools
import logging
import math
import re
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.rewards.answers import (
    final_answer,
    is_marked,
    is_maths,
    plain,
    same_number,
    solution_answer,
    without_unit,
)
from grpo_doctor_trainer.rewards.time_limit import TookTooLong, time_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_trainer.config import TrainerConfig

# A comparison takes milliseconds; what takes longer is a simplification that may never end.
_SECONDS_PER_ANSWER = 2.0
_LONGEST_ANSWER = 400
_TAIL = 1000
_MOST_DIGITS = 5000.0  # of a number in an answer
_DEEPEST = 60
_MOST_PARTS = 2000
_LATEX = re.compile(r"\\[A-Za-z(\[]|\$[^$]+\$")


def make_accuracy(config: TrainerConfig) -> Callable[..., list[float | None]]:
    """Makes the function: its limit for one answer is far below `--reward_timeout`."""
    half = config.reward_timeout / 2 or _SECONDS_PER_ANSWER
    limit_s = min(_SECONDS_PER_ANSWER, half)

    def accuracy(
        completions: list[str], solution: list[object], **_columns: object
    ) -> list[float | None]:
        return [
            None if right is None else float(is_correct(completion, str(right), limit_s))
            for completion, right in zip(completions, solution, strict=True)
        ]

    return accuracy


def warm_up() -> None:
    """Imports math-verify and sees that it works: a second that no time limit should count.

    Raises:
        RewardError: it is not installed, or does not work.
    """
    _math_verify()


def is_correct(completion: str, solution: str, limit_s: float = _SECONDS_PER_ANSWER) -> bool:
    """Compares the final answer of a completion with a solution.

    Args:
        completion: any text.
        solution: the answer, or a text that marks it.
        limit_s: seconds after which the answer counts as wrong, with a line in the log.

    Raises:
        RewardError: math-verify is not installed, or does not work.
    """
    expected = solution_answer(solution)
    if plain(completion) == plain(solution) or plain(completion) == plain(expected):
        return bool(plain(completion))
    answer = final_answer(completion)
    if not is_marked(completion) and _LATEX.search(completion[-_TAIL:]):
        answer = None  # the last number may be a part of a formula
    if answer is not None and (verdict := _same_without_algebra(answer, expected)) is not None:
        return verdict
    if not is_maths(expected) or _cannot_be(completion, expected):
        return False
    if is_marked(completion) and (answer is None or not is_maths(answer)):
        return False
    _math_verify()  # importing it is no part of the comparison
    try:
        with time_limit(limit_s):
            return _same_mathematics(completion, answer, expected)
    except TookTooLong:
        LOG.warning(
            "accuracy: comparing %.60r with %.60r took over %g s; counted as wrong",
            answer or completion[-60:],
            expected,
            limit_s,
        )
        return False


def _same_without_algebra(answer: str, expected: str) -> bool | None:
    """Decides by text, unit and number; None where that needs mathematics."""
    if plain(answer) == plain(expected):
        return bool(plain(answer))
    (value, unit), (right, right_unit) = without_unit(answer), without_unit(expected)
    if unit and right_unit and unit != right_unit:
        return False
    return same_number(value, right)


def _cannot_be(completion: str, expected: str) -> bool:
    # What a model without training says: not worth the milliseconds of a parser.
    digits = any(character.isdigit() for character in completion)
    return same_number(expected, expected) is not None and not digits and "\\" not in completion


def _same_mathematics(completion: str, text: str | None, expected: str) -> bool:
    if text is not None and is_marked(completion):
        answer = _parsed(without_unit(text)[0])
    elif is_maths(completion):
        answer = _parsed(without_unit(completion)[0])
    else:  # prose: only what it sets as a formula, because its numbers were compared already
        answer = _parse(completion[-_TAIL:]) if _LATEX.search(completion[-_TAIL:]) else []
    right = _parsed(without_unit(expected)[0])
    if not answer or not right or any(_too_large(part) for part in (*answer, *right)):
        return False
    verify = _math_verify().verify
    # It warns of an endless comparison without its own limit; ours is around this.
    return bool(verify(right, answer, timeout_seconds=None))


@functools.lru_cache(maxsize=4096)  # a solution comes once for each completion of its group
def _parsed(text: str) -> list[Any]:
    if len(text) > _LONGEST_ANSWER:
        return []
    return _parse(text if "**" in text else f"${text}$")


def _parse(text: str) -> list[Any]:
    parse = _math_verify().parse
    # Its fallback is the text it could not read, which was compared here already.
    return list(parse(text, fallback_mode="no_fallback", parsing_timeout=None))


@functools.cache
def _math_verify() -> Any:
    try:
        import math_verify  # noqa: PLC0415 - half a second of imports, in the worker alone
    except ImportError as error:
        raise RewardError(
            "--reward_funcs accuracy compares answers with math-verify, which cannot be imported "
            f"({error}): pip install math-verify"
        ) from error
    # Also where it says that a time limit is missing: there is one around each answer.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    # With another version of antlr than its own it reads nothing, and every answer is wrong.
    half = math_verify.parse("$\\frac{1}{2}$", fallback_mode="no_fallback", parsing_timeout=None)
    if not math_verify.verify(
        half, math_verify.parse("0.5", parsing_timeout=None), timeout_seconds=None
    ):
        raise RewardError(
            "--reward_funcs accuracy: math-verify is installed but cannot read LaTeX; "
            "pip install --force-reinstall math-verify"
        )
    return math_verify


def _too_large(expression: Any) -> bool:
    # sympy would compute 10**999999999 to its last digit.
    try:
        return _digits(expression, [_MOST_PARTS], 0) > _MOST_DIGITS
    except (TypeError, ValueError, AttributeError, OverflowError):
        return True  # nothing we know: not worth a hang


def _digits(part: Any, budget: list[int], depth: int) -> float:
    """An upper bound of the decimal digits of any number in an expression."""
    budget[0] -= 1
    if depth > _DEEPEST or budget[0] < 0:
        return math.inf
    if getattr(part, "is_Number", False):
        return _digits_of_number(part)
    return _digits_of_parts(
        part, [_digits(inner, budget, depth + 1) for inner in getattr(part, "args", ())]
    )


def _digits_of_parts(part: Any, inner: list[float]) -> float:
    kind = type(part).__name__
    if not inner:
        return 1.0
    if kind == "Pow" and len(inner) == 2:
        return inner[0] * max(1.0, _value(part.args[1], inner[1]))
    if kind in {"factorial", "factorial2", "gamma", "exp", "subfactorial", "fibonacci", "binomial"}:
        largest = max(inner)
        value = 10.0**largest if largest < 300 else math.inf
        return value * max(1.0, largest)
    if kind == "Mul":
        return sum(inner)
    return max(inner) + (1.0 if kind == "Add" else 0.0)


def _value(exponent: Any, digits: float) -> float:
    if getattr(exponent, "is_Number", False) and digits < 300:
        return abs(float(exponent))
    return 10.0**digits if digits < 300 else math.inf


def _digits_of_number(part: Any) -> float:
    if hasattr(part, "p"):
        return max(1.0, *(int(n).bit_length() * 0.302 for n in (part.p, part.q)))
    exponent = math.log10(2) * int(getattr(part, "_mpf_", (0, 0, 0, 0))[2])
    return max(1.0, abs(exponent) - 16)
