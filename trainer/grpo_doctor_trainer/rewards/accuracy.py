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
from grpo_doctor_trainer.rewards.limits import TookTooLong, time_limit
from grpo_doctor_trainer.rewards.magnitude import too_large

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_trainer.config import TrainerConfig

# A comparison takes milliseconds; what takes longer is a simplification that may never end.
_SECONDS_PER_ANSWER = 2.0
_LONGEST_ANSWER = 400
_TAIL = 1000
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
    found = final_answer(completion)
    if not is_marked(completion) and _LATEX.search(completion[-_TAIL:]):
        found = None  # the last number may be a part of a formula
    if found is not None and (known := _same_without_algebra(found, expected)) is not None:
        return known
    if not is_maths(expected) or _cannot_be(completion, expected):
        return False
    if is_marked(completion) and (found is None or not is_maths(found)):
        return False
    _math_verify()  # importing it is no part of the comparison
    try:
        with time_limit(limit_s):
            return _same_mathematics(completion, found, expected)
    except TookTooLong:
        LOG.warning(
            "accuracy: comparing %.60r with %.60r took over %g s; counted as wrong",
            found or completion[-60:],
            expected,
            limit_s,
        )
        return False


def _same_without_algebra(found: str, expected: str) -> bool | None:
    """Decides by text, unit and number; None where that needs mathematics."""
    if plain(found) == plain(expected):
        return bool(plain(found))
    (value, unit), (right, right_unit) = without_unit(found), without_unit(expected)
    if unit and right_unit and unit != right_unit:
        return False
    return same_number(value, right)


def _cannot_be(completion: str, expected: str) -> bool:
    # What a model without training says: not worth the milliseconds of a parser.
    digits = any(character.isdigit() for character in completion)
    return same_number(expected, expected) is not None and not digits and "\\" not in completion


def _same_mathematics(completion: str, found: str | None, expected: str) -> bool:
    if found is not None and is_marked(completion):
        answer = _parsed(without_unit(found)[0])
    elif is_maths(completion):
        answer = _parsed(without_unit(completion)[0])
    else:  # prose: only what it sets as a formula, because its numbers were compared already
        answer = _parse(completion[-_TAIL:]) if _LATEX.search(completion[-_TAIL:]) else []
    right = _parsed(without_unit(expected)[0])
    if not answer or not right or any(too_large(one) for one in (*answer, *right)):
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
