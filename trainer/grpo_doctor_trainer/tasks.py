"""The generated tasks of the demos, and a reward that says how close an answer is.

Sums of two small numbers; with a vision-language model, counting squares in tiny pictures as well.
Every answer of those is a digit.

A model with random weights almost never answers right, so being right alone would teach it nothing
at first. `arithmetic_reward` also pays for answers that are digits, that stop, and that are near.
"""

from __future__ import annotations

import io
import re
from typing import Any

_LARGEST_TERM = 4
_NUMBER = re.compile(r"[0-9]+")
_FOR_DIGITS, _FOR_LENGTH, _FOR_NEARNESS = 0.2, 0.2, 0.5
_NEARNESS_PER_UNIT = 0.3
_LENGTH_TOLERANCE = 8
_CELL = 28  # pixels: one token of the embedded model
_CELLS = 4  # two by two
_COLOURS = ((255, 255, 255), (255, 200, 0))


def sums() -> list[dict[str, str]]:
    """Make every prompt with its solution; columns `prompt` and `solution`."""
    terms = range(_LARGEST_TERM + 1)
    return [{"prompt": f"{a}+{b}", "solution": str(a + b)} for a in terms for b in terms]


def squares() -> list[dict[str, Any]]:
    """Make every picture of 0 to 4 squares in two colours, and as many sums as there are.

    Columns `prompt`, `solution` and `images`; a sum has none of the last.
    """
    pictures = [
        {"prompt": "squares?", "solution": str(lit.bit_count()), "images": [_png(lit, colour)]}
        for colour in _COLOURS
        for lit in range(1 << _CELLS)
    ]
    return [*pictures, *({**row, "images": None} for row in sums())]


def arithmetic_reward(
    completions: list[str], solution: list[str], **_columns: object
) -> list[float]:
    """Score how close each completion is to its solution, from 0 to 1 (exactly the solution)."""
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
    nearness = 0.0 if leading is None else _NEARNESS_PER_UNIT ** abs(leading - int(solution))
    return _FOR_DIGITS * digits + _FOR_LENGTH * length + _FOR_NEARNESS * nearness


def _png(lit: int, colour: tuple[int, int, int]) -> bytes:
    """Draw a square in each cell whose bit is set."""
    from PIL import Image  # noqa: PLC0415 - the reward functions go without

    image = Image.new("RGB", (2 * _CELL, 2 * _CELL))
    for cell in range(_CELLS):
        if lit >> cell & 1:
            left, top = cell % 2 * _CELL, cell // 2 * _CELL
            image.paste(colour, (left + 4, top + 4, left + _CELL - 4, top + _CELL - 4))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
