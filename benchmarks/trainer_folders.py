"""What the trainers of `trainer_speed` train: a random model, prompts or images, a reward."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REWARD_FILE = "digits.py"
IMAGE_MARK = "<image>"
_IMAGES = 16
_REWARD = """def digits(completions, **columns):
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]
"""


@dataclass(frozen=True)
class Size:
    """What is trained; `batch` completions per rank, of at most `tokens` tokens.

    Attributes:
        prompt: tokens of a prompt, about; one token is a byte.
        image: pixels of each side of a prompt's image, 28 x 28 of them are a token; 0 for none.
        vocabulary: columns of the logits; 0 for as many as the tokenizer has tokens.
        heads: of attention, for half as many keys and values; 0 for the embedded model's 4.
        gpu: one rank on a GPU in bfloat16, instead of two on the CPU in float32.
    """

    hidden: int
    layers: int
    batch: int
    tokens: int
    prompt: int = 0
    image: int = 0
    vocabulary: int = 0
    heads: int = 0
    gpu: bool = False

    @property
    def ranks(self) -> int:
        """Processes that train it."""
        return 1 if self.gpu else 2


SIZES = {
    "tiny": Size(128, 1, 32, 16),
    "small": Size(256, 4, 16, 64),
    "long": Size(256, 4, 16, 32, prompt=512),
    "images": Size(256, 4, 16, 32, image=336),
    # Half a billion weights, for a GPU.
    "gpu-short": Size(1024, 24, 32, 128, vocabulary=151_936, heads=16, gpu=True),
    "gpu-long": Size(1024, 24, 32, 32, prompt=512, vocabulary=151_936, heads=16, gpu=True),
}


def write_folder(folder: Path, size: Size) -> None:
    """Writes model, tokenizer, prompts, images if there are any, and the reward function."""
    (_write_vision_model if size.image else _write_text_model)(folder / "model", size)
    filler = "some words before the answer " * (size.prompt // 20 + 1)
    questions = [f"What is {a} plus {b}?" for a in range(16) for b in range(16)]
    rows = [
        {"prompt": (question + " ") + filler[: max(0, size.prompt - len(question))]}
        for question in questions
    ]
    if size.image:
        names = _write_images(folder, size.image)
        rows = [
            {"prompt": IMAGE_MARK + row["prompt"], "images": names[number % _IMAGES]}
            for number, row in enumerate(rows)
        ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "prompts.jsonl").write_text(text, encoding="utf-8")
    (folder / REWARD_FILE).write_text(_REWARD, encoding="utf-8")


def _write_text_model(folder: Path, size: Size) -> None:
    from transformers import Qwen2ForCausalLM  # noqa: PLC0415 - seconds, not for --help

    from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer  # noqa: PLC0415

    tokenizer = tiny_tokenizer()
    config = tiny_model(tokenizer).config
    _widen(config, size)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_vision_model(folder: Path, size: Size) -> None:
    from transformers import Qwen2_5_VLForConditionalGeneration  # noqa: PLC0415

    from grpo_doctor_trainer.model.tiny import tiny_processor, tiny_vl_model  # noqa: PLC0415

    processor = tiny_processor()
    processor.image_processor.size = {"shortest_edge": 28**2, "longest_edge": size.image**2}
    config = tiny_vl_model(processor.tokenizer, size.hidden).config
    _widen(config.text_config, size)
    config.vision_config.depth = size.layers
    config.vision_config.hidden_size = size.hidden // 2
    config.vision_config.intermediate_size = size.hidden
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    processor.save_pretrained(folder)


def _widen(config: Any, size: Size) -> None:
    config.hidden_size, config.intermediate_size = size.hidden, 2 * size.hidden
    config.num_hidden_layers = size.layers
    if size.heads:
        config.num_attention_heads, config.num_key_value_heads = size.heads, size.heads // 2
    config.vocab_size = size.vocabulary or config.vocab_size
    config.layer_types = ["full_attention"] * size.layers


def _write_images(folder: Path, side: int) -> list[str]:
    """Writes images of noise; gives their names."""
    from PIL import Image  # noqa: PLC0415

    names = [f"{number}.png" for number in range(_IMAGES)]
    for name in names:
        Image.effect_noise((side, side), 90).convert("RGB").save(folder / name)
    return names
