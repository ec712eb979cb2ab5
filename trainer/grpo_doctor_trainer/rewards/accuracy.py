r"""The reward `accuracy`: 1 if the final answer of a completion is the row's `solution`, else 0.

The answer is what stands in the last `<answer>` or, in it or else in the text, in the last
`\boxed{}`; without either math-verify looks for it. Equal texts are equal answers, words are
compared as text alone, and everything else by math-verify, which leaves units out of account.
"""

from __future__ import annotations

import functools
import logging
import re
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.rewards.time_limit import TookTooLong, time_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_trainer.config import TrainerConfig

# A comparison takes milliseconds; what takes longer is a simplification that may never end.
_SECONDS_PER_ANSWER = 2.0
_LONGEST_ANSWER = 400
_TAIL = 1000
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_]{2,}(?:\s+[^\W\d_]+)*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# sympy would compute 10**999999999 to its last digit, where no signal reaches it.
_ENDLESS = re.compile(r"\^\{?\s*\d{4}|\*\*\s*\d{4}|\^\{?\s*\(?\d+\)?\}?\s*\^|\d{4,}\s*\)?\s*!")


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


def is_correct(completion: str, solution: str, limit_s: float = _SECONDS_PER_ANSWER) -> bool:
    """Compares the final answer of a completion with a solution.

    Args:
        completion: any text.
        solution: the answer, or a text that marks it; `####` before it marks it too.
        limit_s: seconds after which the answer counts as wrong, with a line in the log.

    Raises:
        RewardError: math-verify is not installed, or does not work.
    """
    answer = _marked(completion)
    expected = _marked(solution)
    expected = solution.rpartition("####")[2] if expected is None else expected
    texts = {_plain(completion if answer is None else answer), _plain(completion)}
    if not _plain(expected) or _plain(expected) in texts:
        return bool(_plain(expected))
    if _WORDS.fullmatch(_plain(expected)) or (answer and _WORDS.fullmatch(_plain(answer))):
        return False
    numbers = _number(completion if answer is None else answer), _number(expected)
    if numbers[0] is not None and numbers[1] is not None:
        return _close(numbers[0], numbers[1])
    math_verify()  # importing it is no part of the comparison
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


def _number(text: str) -> float | None:
    try:
        return float(_THOUSANDS.sub("", _plain(text)))
    except ValueError:
        return None


def _close(left: float, right: float) -> bool:
    """Whole numbers must be equal, others to one part in a million."""
    if left.is_integer() and right.is_integer():
        return left == right
    return abs(left - right) <= abs(right) / 1_000_000


def _same_mathematics(completion: str, answer: str | None, expected: str) -> bool:
    given = _parsed(completion[-_TAIL:]) if answer is None else _formula(answer)
    right = _formula(expected)
    # It warns of an endless comparison without its own limit; ours is around this.
    return bool(given and right and math_verify().verify(right, given, timeout_seconds=None))


@functools.lru_cache(maxsize=4096)  # a solution comes once for each completion of its group
def _formula(text: str) -> list[Any]:
    bare = _bare(text)
    if len(bare) > _LONGEST_ANSWER:
        return []
    return _parsed(bare if "**" in bare else f"${bare}$") or _parsed(bare)


def _parsed(text: str) -> list[Any]:
    if _ENDLESS.search(text):
        return []
    # Its fallback is the text it could not read, which was compared here already.
    parse = math_verify().parse
    return list(parse(text, fallback_mode="no_fallback", parsing_timeout=None))


@functools.cache
def math_verify() -> Any:
    """Imports math-verify and sees that it works: a second that no time limit should count.

    Raises:
        RewardError: it is not installed, or does not work.
    """
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


def _marked(text: str) -> str | None:
    elements = _ANSWER.findall(text)
    boxed = _last_boxed(elements[-1] if elements else text)
    return elements[-1] if boxed is None and elements else boxed


def _last_boxed(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    begin = start + len("\\boxed{")
    depth = 1
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position]
    return None


def _plain(text: str) -> str:
    """Reduces a text to what counts in a comparison of texts."""
    words = " ".join(_TEXT_COMMAND.sub(r"\1", _bare(text)).split())
    return (
        words.rstrip(".").casefold() if _WORDS.search(words) else words.replace(" ", "").casefold()
    )


def _bare(text: str) -> str:
    r"""Takes off what only encloses a formula: `$`, `\(`, `\[` and the full stop."""
    bare = text.strip().removesuffix(".")
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if len(bare) > len(opening) and bare.startswith(opening) and bare.endswith(closing):
            return bare[len(opening) : -len(closing)].strip()
    return bare
