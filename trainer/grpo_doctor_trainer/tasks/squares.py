"""Counting squares in tiny pictures, mixed with sums: the task of the vision-language demo.

Every answer is a digit, so that `arithmetic_reward` can say how near a wrong one is.
"""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

from grpo_doctor_trainer.tasks.arithmetic import sums

_CELL = 28  # pixels: one token of the embedded model
_CELLS = 4  # two by two
_COLOURS = ((255, 255, 255), (255, 200, 0))


def squares() -> list[dict[str, Any]]:
    """Makes every picture of 0 to 4 squares in two colours, and as many sums as there are.

    Columns `prompt`, `solution` and `images`; a sum has none of the last.
    """
    pictures = [
        {
            "prompt": "squares?",
            "solution": str(lit.bit_count()),
            "images": [_png(lit, colour)],
        }
        for colour in _COLOURS
        for lit in range(1 << _CELLS)
    ]
    return [*pictures, *({**row, "images": None} for row in sums())]


def _png(lit: int, colour: tuple[int, int, int]) -> bytes:
    """Draws a square in each cell whose bit is set."""
    image = Image.new("RGB", (2 * _CELL, 2 * _CELL))
    for cell in range(_CELLS):
        if lit >> cell & 1:
            left, top = cell % 2 * _CELL, cell // 2 * _CELL
            image.paste(colour, (left + 4, top + 4, left + _CELL - 4, top + _CELL - 4))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
