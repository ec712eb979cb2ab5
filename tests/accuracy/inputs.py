"""What the bench's runs read: a model of some million weights, prompts of many lengths, pictures.

`python -m tests.accuracy.inputs FOLDER` makes them; it needs torch, which the bench does not.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

MODEL, PICTURES = "model", "pictures.jsonl"
PROMPTS, SHORT = "prompts.jsonl", "short.jsonl"
_ROWS = 64
_SIDE = 336


def make(folder: Path) -> None:
    """Writes all inputs into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _model(folder / MODEL)
    _prompts(folder / PROMPTS, 25)
    _prompts(folder / SHORT, 1)
    _pictures(folder)


def _model(folder: Path) -> None:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from grpo_doctor_trainer.model.tiny import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        initializer_range=0.05,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _prompts(file: Path, longest: int) -> None:
    """Prompts of 8 to 8 x `longest` characters: a rollout's width is that of its longest one."""
    draw = random.Random(0)
    rows = []
    for number in range(_ROWS):
        size = int(8 * longest ** draw.random())
        text = "".join(draw.choice("abcdefghij ") for _ in range(size))
        rows.append({"prompt": text, "solution": str(number % 10)})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _pictures(folder: Path) -> None:
    from PIL import Image

    draw = random.Random(0)
    rows = []
    for number in range(8):
        noise = Image.frombytes("RGB", (_SIDE, _SIDE), draw.randbytes(3 * _SIDE * _SIDE))
        noise.save(folder / f"{number}.png")
        content = "<image>How many?"
        rows.append(
            {
                "messages": [{"role": "user", "content": content}],
                "images": [f"{number}.png"],
                "solution": str(number),
            }
        )
    (folder / PICTURES).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
