r"""The reward `accuracy`: 1 if the final answer of a completion is the row's `solution`, else 0.

The answer is the last `<answer>` or, in it or else in the text, the last `\boxed{}`; without either
math-verify looks for it. Equal texts are equal answers, words are compared as text alone, and
everything else by math-verify, which ignores units.
"""

from __future__ import annotations

import functools
import logging
import math
import re
import time
from collections.abc import Callable
from typing import Any

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.errors import RewardError

# A comparison takes milliseconds; what takes longer is a simplification that may never end.
_SECONDS_PER_ANSWER = 2
_LONGEST_ANSWER = 400
_TAIL = 1000
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_]{2,}(?:\s+[^\W\d_]+)*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# sympy would compute 10**999999999 to its last digit, where no signal reaches it.
_ENDLESS = re.compile(r"\^\{?\s*\d{4}|\*\*\s*\d{4}|\^\{?\s*\(?\d+\)?\}?\s*\^|\d{4,}\s*\)?\s*!")


def make_accuracy(config: TrainerConfig) -> Callable[..., list[float | None]]:
    """Make the function: after half of `--reward_timeout` it compares texts and numbers alone."""
    half_s = config.reward_timeout / 2 or math.inf

    def accuracy(
        completions: list[str], solution: list[object], **_columns: object
    ) -> list[float | None]:
        ends_s = time.monotonic() + half_s
        scores: list[float | None] = []
        for completion, right in zip(completions, solution, strict=True):
            thorough = time.monotonic() < ends_s
            correct = right is not None and is_correct(completion, str(right), thorough=thorough)
            scores.append(None if right is None else float(correct))
        if time.monotonic() >= ends_s:
            LOG.warning("accuracy: math-verify took over %g s; raise --reward_timeout", half_s)
        return scores

    return accuracy


def is_correct(completion: str, solution: str, *, thorough: bool = True) -> bool:
    """Compare the final answer of a completion with a solution, in which `####` may mark it."""
    answer = _marked(completion)
    expected = _marked(solution)
    expected = solution.rpartition("####")[2] if expected is None else expected
    texts = {_plain(completion if answer is None else answer), _plain(completion)}
    if not _plain(expected) or _plain(expected) in texts:
        return bool(_plain(expected))
    if _WORDS.fullmatch(_plain(expected)) or (answer and _WORDS.fullmatch(_plain(answer))):
        return False
    given, right = _number(completion if answer is None else answer), _number(expected)
    if given is not None and right is not None:
        whole = given.is_integer() and right.is_integer()
        return math.isclose(given, right, rel_tol=0 if whole else 1e-6)
    return thorough and _same_mathematics(completion, answer, expected)


def _number(text: str) -> float | None:
    try:
        return float(_THOUSANDS.sub("", _plain(text)))
    except ValueError:
        return None


def _same_mathematics(completion: str, answer: str | None, expected: str) -> bool:
    try:
        given = _parsed(completion[-_TAIL:]) if answer is None else _formula(answer)
        right = _formula(expected)
    except _TooSlowError:
        return False
    seconds = _SECONDS_PER_ANSWER
    return bool(given and right and math_verify().verify(right, given, timeout_seconds=seconds))


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
    options = {"fallback_mode": "no_fallback", "parsing_timeout": _SECONDS_PER_ANSWER}
    parse, began_s = math_verify().parse, time.monotonic()
    found = list(parse(text, **options))
    if not found and time.monotonic() - began_s >= _SECONDS_PER_ANSWER:
        raise _TooSlowError
    return found


class _TooSlowError(Exception):
    """math-verify ran out of time, which it says by reading nothing: no text that it can't read, so
    not one to be read in another way, and not forever."""


@functools.cache
def math_verify() -> Any:
    """Import math-verify and check that it reads LaTeX: with another antlr it reads nothing."""
    try:
        import math_verify  # noqa: PLC0415 - half a second of imports, in the worker alone
    except ImportError as error:
        raise RewardError(
            "--reward_funcs accuracy compares answers with math-verify, which cannot be imported "
            f"({error}): pip install math-verify"
        ) from error
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    half = math_verify.parse("$\\frac{1}{2}$", fallback_mode="no_fallback")
    if not math_verify.verify(half, math_verify.parse("0.5")):
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
    _, found, rest = text.rpartition("\\boxed{")
    depth = 1
    for position, character in enumerate(rest if found else ""):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return rest[:position]
    return None


def _plain(text: str) -> str:
    """Reduce a text to what counts in a comparison of texts."""
    words = " ".join(_TEXT_COMMAND.sub(r"\1", _bare(text)).split()).casefold()
    return words.rstrip(".") if _WORDS.search(words) else words.replace(" ", "")


def _bare(text: str) -> str:
    r"""Remove what only encloses a formula: `$`, `\(`, `\[` and the full stop."""
    bare = text.strip().removesuffix(".")
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if len(bare) > len(opening) and bare.startswith(opening) and bare.endswith(closing):
            return bare[len(opening) : -len(closing)].strip()
    return bare
