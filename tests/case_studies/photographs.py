"""Large photographs that take a real decode, made on the spot, and a dataset that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (6000, 4000)  # what a camera takes; 24 million pixels
_DIFFERENT = 5
_ROWS = 40


def write_dataset(folder: Path) -> Path:
    """Writes photographs, and rows that show 1 to 5 of them, as a document's pages vary."""
    names = [f"photo-{number}.jpg" for number in range(_DIFFERENT)]
    for seed, name in enumerate(names):
        _photograph(seed).save(folder / name, "JPEG", quality=92)
    dataset = folder / "photographs.jsonl"
    with dataset.open("w") as lines:
        for row in range(_ROWS):
            shown = [names[(row + n) % _DIFFERENT] for n in range(1 + row % _DIFFERENT)]
            prompt = "<image>" * len(shown) + "how many?"
            example = {"prompt": prompt, "images": shown, "solution": str(len(shown))}
            lines.write(json.dumps(example) + "\n")
    return dataset


def _photograph(seed: int) -> Image.Image:
    """Soft shapes with a grain, so that the file is as large as a camera's."""
    dice = np.random.default_rng(seed)
    shapes = dice.integers(0, 256, (60, 80, 3), dtype=np.uint8)
    picture = np.asarray(Image.fromarray(shapes).resize(SIZE, Image.Resampling.BICUBIC))
    grain = dice.integers(0, 24, (500, 500, 3), dtype=np.uint8)
    repeats = (SIZE[1] // 500, SIZE[0] // 500, 1)
    return Image.fromarray(picture // 2 + np.tile(grain, repeats))
