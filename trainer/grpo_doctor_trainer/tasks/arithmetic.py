"""Sums of two small numbers: the task of the demo, and a reward that says how close an answer is.

A model with random weights almost never answers right, so being right alone would teach it nothing
at first. `arithmetic_reward` also pays for answers that are digits, that stop, and that are near.
"""

from __future__ import annotations

import re

_LARGEST_TERM = 4
_NUMBER = re.compile(r"[0-9]+")
_FOR_DIGITS, _FOR_LENGTH, _FOR_NEARNESS = 0.2, 0.2, 0.5
_NEARNESS_PER_UNIT = 0.3
_LENGTH_TOLERANCE = 8


def sums() -> list[dict[str, str]]:
    """Makes every prompt with its solution; columns `prompt` and `solution`."""
    terms = range(_LARGEST_TERM + 1)
    return [{"prompt": f"{a}+{b}", "solution": str(a + b)} for a in terms for b in terms]


def arithmetic_reward(
    completions: list[str], solution: list[str], **_columns: object
) -> list[float]:
    """Scores how close each completion is to its solution, from 0 to 1 (exactly the solution)."""
    return [
        _closeness(completion, answer)
        for completion, answer in zip(completions, solution, strict=True)
    ]


def _closeness(completion: str, solution: str) -> float:
    if completion == solution:
        return 1.0
    if not completion:
        return 0.0
    digits = sum(character in "0123456789" for character in completion) / len(completion)
    excess = abs(len(completion) - len(solution))
    length = max(0.0, 1 - excess / _LENGTH_TOLERANCE)
    # Only as many digits as the solution has: "71" for "7" is near, and too long.
    number = _NUMBER.search(completion)
    leading = int(number[0][: len(solution)]) if number else None
    near = 0.0 if leading is None else _NEARNESS_PER_UNIT ** abs(leading - int(solution))
    return _FOR_DIGITS * digits + _FOR_LENGTH * length + _FOR_NEARNESS * near
