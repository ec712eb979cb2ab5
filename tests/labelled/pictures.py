"""Photographs that are slow to decode: noise does not compress."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import numpy as np
from PIL import Image


def dataset(edge: int, count: int = 24) -> Mapping[str, str | bytes]:
    """Square PNG files of this edge in pixels, and the rows that use them."""
    dice = np.random.default_rng(0)
    files: dict[str, str | bytes] = {}
    rows = []
    for number in range(count):
        noise = dice.integers(0, 256, (edge, edge, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(noise).save(buffer, "png", compress_level=1)
        files[f"picture{number}.png"] = buffer.getvalue()
        row = {
            "prompt": "squares?",
            "solution": str(number % 5),
            "images": [f"picture{number}.png"],
        }
        rows.append(json.dumps(row))
    files["rows.jsonl"] = "\n".join(rows) + "\n"
    return files
