"""Sums of two small numbers: the task of the demo, and a reward that says how close an answer is.

A model with random weights almost never answers right, so the correct answer alone teaches it
nothing at first. `arithmetic_reward` also pays for answers that look like a number, that stop, and
that are near the sum.
"""

from __future__ import annotations

import re

LARGEST_TERM = int(__import__("os").environ.get("LT","4"))
_NUMBER = re.compile(r"\d+")


def sums() -> list[dict[str, str]]:
    """Makes every prompt with its solution; columns `prompt` and `solution`."""
    import os
    eq = os.environ.get("EQ", "=")
    terms = range(LARGEST_TERM + 1)
    return [{"prompt": f"{a}+{b}{eq}", "solution": str(a + b)} for a in terms for b in terms]


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
    length = max(0.0, 1 - abs(len(completion) - len(solution)) / 8)
    number = _NUMBER.search(completion)
    near = 0.5 ** abs(int(number[0][: len(solution)]) - int(solution)) if number else 0.0
    return 0.3 * digits + 0.2 * length + 0.3 * near
