"""Tokens per second of the bundled trainer's steps next to TRL's GRPOTrainer, on CPU or GPU.

Both train the same random model from the same folder on two gloo ranks without DeepSpeed, with the
same prompts, batch, completion length, reward, KL term and optimizer, one thread per rank, and
generate with transformers. Runs are in pairs and take turns in going first. The first two steps are
left out; a step is all that happens between the ends of two steps. Next to the wall clock it counts
CPU time of all processes, which a busy machine disturbs less.

    python -m benchmarks.trainer_speed [--size tiny|small|long|images] [--pairs 3] [--steps 12]
    python -m benchmarks.trainer_speed --size gpu-short|gpu-long    one rank on a GPU, in bfloat16

A job that fails after its last step has been measured all the same (gloo sometimes aborts while a
process ends); one that fails before leaves its pair out, which is said.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.trainer_jobs import JobFailedError, Mark, mean_ratio, torchrun

WARM_UP_STEPS = 2
_GROUP, _RATE, _BETA = 8, 1e-4, 0.04
_UNFROZEN = ("--freeze_vit", "false", "--freeze_aligner", "false")  # as TRL, which trains all
_GPU_SETTINGS = {"use_cpu": False, "ddp_backend": None, "bf16": True}
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


@dataclass(frozen=True)
class Speed:
    """Tokens of prompts and completions per second, by the clock and by CPU time."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        """In a line."""
        return f"{self.wall:,.0f} ({self.cpu:,.0f} per CPU second)"


def _speed(first: Mark, last: Mark, tokens: float) -> Speed:
    return Speed(tokens / (last.wall_s - first.wall_s), tokens / (last.cpu_s - first.cpu_s))


def trl_speed(folder: Path, size: Size, steps: int) -> Speed:
    """Of TRL's trainer, which prints the tokens so far."""
    settings: dict[str, Any] = {
        "max_steps": steps, "per_device_train_batch_size": size.batch, "num_generations": _GROUP,
        "max_completion_length": size.tokens, "temperature": 1.0, "beta": _BETA,
        "learning_rate": _RATE, "lr_scheduler_type": "constant", "loss_type": "grpo",
        **(_GPU_SETTINGS if size.gpu else {}),
    }  # fmt: skip
    program = ["benchmarks.trl_peer", str(folder), json.dumps(settings)]
    marks = torchrun(program, folder, steps, size.ranks)
    before, after = (int(marks[step].line.split()[3]) for step in (WARM_UP_STEPS, steps))
    return _speed(marks[WARM_UP_STEPS], marks[steps], after - before)


def our_speed(folder: Path, size: Size, steps: int, flags: list[str]) -> Speed:
    """Of the bundled trainer, recorded as a user would."""
    metrics = folder / "run" / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    program = [
        "grpo_doctor_trainer",
        "--model", str(folder / "model"), "--dataset", str(folder / "prompts.jsonl"),
        "--reward_funcs", f"{folder / REWARD_FILE}:digits", "--train_type", "full",
        "--per_device_train_batch_size", str(size.batch), "--num_generations", str(_GROUP),
        "--max_completion_length", str(size.tokens), "--temperature", "1.0", "--beta", str(_BETA),
        "--learning_rate", str(_RATE), "--lr_scheduler_type", "constant", "--warmup_ratio", "0",
        "--loss_type", "grpo", "--max_steps", str(steps), "--logging_steps", "1",
        "--save_steps", "0", "--gradient_checkpointing", "false",
        "--torch_dtype", "bfloat16" if size.gpu else "float32",
        "--output_dir", str(folder / "out"), *(_UNFROZEN if size.image else ()), *flags,
    ]  # fmt: skip
    marks = torchrun(program, folder, steps, size.ranks)
    rows = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
    tokens = {row["step"]: row["metrics"]["num_tokens"] for row in rows}
    trained = tokens[steps] - tokens[WARM_UP_STEPS]
    return _speed(marks[WARM_UP_STEPS], marks[steps], trained)


def measure(size: Size, pairs: int, steps: int, flags: list[str]) -> list[tuple[Speed, Speed]]:
    """Ours and TRL's, pair by pair; `flags` are for ours."""
    sides: list[Callable[[Path], Speed]] = [
        lambda folder: our_speed(folder, size, steps, flags),
        lambda folder: trl_speed(folder, size, steps),
    ]
    results = []
    with tempfile.TemporaryDirectory() as parent:
        write_folder(Path(parent), size)
        for pair in range(pairs):
            turn = -1 if pair % 2 else 1  # drift shall favor neither
            try:
                ours, trl = [side(Path(parent)) for side in sides[::turn]][::turn]
            except JobFailedError as error:
                print(f"pair {pair + 1}/{pairs} is left out: {error}", file=sys.stderr, flush=True)
                continue
            results.append((ours, trl))
            line = f"pair {pair + 1}/{pairs}, tokens/s: ours {ours}, trl {trl}"
            print(line, file=sys.stderr, flush=True)
    return results


def main() -> int:
    """Prints the ratios of tokens per second; ends with 1 if ours is clearly slower."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--flags", default="", help="more flags for the bundled trainer")
    options = parser.parse_args()
    if find_spec("trl") is None:
        print("TRL is not installed, so there is nothing to compare with: pip install trl")
        return 0
    size = SIZES[options.size]
    pairs = measure(size, options.pairs, options.steps, options.flags.split())
    if not pairs:
        print("no pair of runs reached its last step", file=sys.stderr)
        return 1
    ratios = {
        "wall": [ours.wall / trl.wall for ours, trl in pairs],
        "CPU": [ours.cpu / trl.cpu for ours, trl in pairs],
    }
    for clock, values in ratios.items():
        print(
            f"ours / trl, tokens per {clock} second: {mean_ratio(values)}, median "
            f"{statistics.median(values):.2f}, {min(values):.2f} to {max(values):.2f} "
            f"({len(pairs)} pairs of {options.steps - WARM_UP_STEPS} steps, {options.size})"
        )
    # Another process on the machine takes wall time from one side of a pair, and little CPU time;
    # the time of a GPU is on no CPU.
    return int(statistics.median(ratios["wall" if size.gpu else "CPU"]) < 1)


if __name__ == "__main__":
    sys.exit(main())
