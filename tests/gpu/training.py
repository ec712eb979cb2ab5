"""The bundled trainer with a model of real size and random weights: nothing is downloaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from grpo_doctor.analysis.device import on_device_clock
from grpo_doctor.trace.model import Kind
from grpo_doctor.trace.read import load

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 600
WARM_UP_STEPS = 2
STEPS = 8
DATA = "data.jsonl"
WORTH_COMPARING = 0.05  # of the step: shorter phases are all launch and noise
CLOSE = 0.03


class TrainerError(AssertionError):
    """The trainer did not end well; the message is the end of what it said."""


def make_model(folder: Path, layers: int = 28) -> Path:
    """Qwen2.5-1.5B's shape (with fewer layers, if asked), and a byte tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from grpo_doctor_trainer.model.tiny import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    config = Qwen2Config(
        vocab_size=151_936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=layers,
        num_attention_heads=12, num_key_value_heads=2, max_position_embeddings=32_768,
        tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train(
    module: str, model: Path, ranks: int, folder: Path, *flags: str
) -> list[dict[str, float]]:
    """Trains some steps; gives the metrics of each. Raises TrainerError."""
    folder.mkdir(parents=True)
    rows = [{"prompt": f"What is {a} + {a}?", "solution": str(2 * a)} for a in range(64)]
    (folder / DATA).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc_per_node", str(ranks), "-m", module, *arguments_of(model, folder, *flags),
    ]  # fmt: skip
    environment = os.environ | {"GRPO_DOCTOR_RUN_DIR": str(folder / "run")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise TrainerError(done.stdout[-2000:] + done.stderr[-4000:])
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["metrics"] for line in lines]


def arguments_of(model: Path, folder: Path, *flags: str) -> list[str]:
    """What the trainer is started with."""
    return [
        "--model", str(model), "--dataset", str(folder / DATA),
        "--output_dir", str(folder / "out"), "--max_steps", str(STEPS),
        "--per_device_train_batch_size", "8", "--num_generations", "8",
        "--max_completion_length", "64", "--logging_steps", "1", "--save_steps", "0", *flags,
    ]  # fmt: skip


def phase_seconds(folder: Path, *, on_device: bool = False) -> dict[str, float]:
    """Rank 0's seconds in each phase, over the steps after the warm-up.

    By the host's clock, or where the GPU was by CUDA events, as the report has it.
    """
    trace = load(folder / "run")
    frame = (on_device_clock(trace) if on_device else trace).frame().query("rank == 0")
    steps = frame[frame["kind"] == Kind.STEP.name.lower()]
    begin = steps[steps["value"] > WARM_UP_STEPS]["start_ns"].min()
    of_phases = (frame["kind"] == Kind.SPAN.name.lower()) & ~frame["name"].str.contains("/")
    spans = frame[(frame["start_ns"] >= begin) & of_phases]
    sums: defaultdict[str, float] = defaultdict(float)
    for name, start, end in zip(spans["name"], spans["start_ns"], spans["end_ns"], strict=True):
        sums[name] += (end - start) / 1e9
    return dict(sums)


def phases_worth_comparing(truth: dict[str, float]) -> set[str]:
    """Those that are not all launch and noise."""
    return {name for name, s in truth.items() if s > WORTH_COMPARING * sum(truth.values())}
