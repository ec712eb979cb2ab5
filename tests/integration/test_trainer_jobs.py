"""The bundled trainer as a user starts it: torchrun, two gloo ranks, real steps and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("deepspeed", reason="needs the trainer extra")

from tests.trainer_jobs import WALL_CLOCK, Outcome, run_configs

pytestmark = [pytest.mark.slow, pytest.mark.heavy]
PATIENCE_S = 240
SMALL = ("--per_device_train_batch_size", "16", "--num_generations", "8")
ZERO3 = ("--deepspeed", "zero3_offload", "--max_steps", "3", *SMALL)
LORA = ("--train_type", "lora", "--deepspeed", "none", "--max_steps", "2", *SMALL)


def command(*flags: str) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        "-m", "grpo_doctor_trainer", "--output_dir", "out", *flags,
    ]  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    recorded = {"GRPO_DOCTOR_RUN_DIR": str(folder / "run"), "OMP_NUM_THREADS": "1"}
    return os.environ | recorded


def job(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*flags), env=environment(folder), cwd=folder,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def metrics(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["metrics"] for row in rows]


def without_clock(steps: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{k: v for k, v in step.items() if k not in WALL_CLOCK} for step in steps]


def mean(steps: list[dict[str, float]], name: str) -> float:
    return sum(step[name] for step in steps) / len(steps)


def sample(model: Any, tokenizer: Any) -> str:
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "1+2"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    made = model.generate(**prompt, max_new_tokens=4, do_sample=False)
    return str(tokenizer.decode(made[0, prompt["input_ids"].size(1) :]))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo with its default settings, cut to 40 steps."""
    folder = tmp_path_factory.mktemp("learned")
    outcome = job(folder, "--max_steps", "40")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr[-4000:]
    return folder


def test_default_settings_learn(learned: Path) -> None:
    steps = metrics(learned)
    assert len(steps) == 40
    job_json = json.loads((learned / "run" / "job.json").read_text(encoding="utf-8"))
    assert "zero2" in json.dumps(job_json)
    first, last = mean(steps[:5], "reward"), mean(steps[-5:], "reward")
    assert last > first + 0.3, (first, last)
    assert mean(steps[-5:], "rewards/accuracy/mean") > 0.15
    assert all(step["grad_norm"] > 0 for step in steps)
    assert (learned / "out" / "checkpoint-40" / "model.safetensors").is_file()
    assert not list((learned / "out").glob(".*unfinished"))


@dataclass(frozen=True)
class Short:
    """What a few steps of other settings gave, all in one job; checkpoints are in `folder`."""

    folder: Path
    again: Outcome
    zero3: Outcome
    lora: Outcome


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Short:
    folder = tmp_path_factory.mktemp("short")
    again = ("--max_steps", "3", "--save_steps", "0")
    every = {"again": again, "zero3": ZERO3, "lora": LORA}
    configs = [[*flags, "--output_dir", name] for name, flags in every.items()]
    return Short(folder, *run_configs(folder, configs))


def test_one_seed_gives_the_same_steps_twice(learned: Path, short: Short) -> None:
    assert short.again.without_clock() == without_clock(metrics(learned)[:3])
    assert not (short.folder / "again").exists()


def test_zero3_with_offload_trains_partitioned_weights_and_saves_whole_ones(short: Short) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # As the engine says.
    assert "DeepSpeed ZeRO-3, optimizer and param offload" in short.zero3.printed
    assert all(step["grad_norm"] > 0 for step in short.zero3.metrics)

    checkpoint = short.folder / "zero3" / "checkpoint-3"
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    count = sum(weight.numel() for weight in model.parameters())
    for rank in (0, 1):
        path = checkpoint / "optimizer" / f"rank_{rank:05d}.pt"
        state = torch.load(path, weights_only=True, map_location="cpu")
        own = sum(part.numel() for part in state["masters"])
        assert count / 2 <= own < 0.55 * count  # half of the weights, and some padding
    assert len(sample(model, AutoTokenizer.from_pretrained(checkpoint))) > 0


def test_lora_without_deepspeed_saves_an_adapter(short: Short) -> None:
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoTokenizer

    assert "no DeepSpeed (plain DDP)" in short.lora.printed
    checkpoint = short.folder / "lora" / "checkpoint-2"
    assert (checkpoint / "adapter_model.safetensors").is_file()
    assert not (checkpoint / "model.safetensors").exists()
    model = AutoPeftModelForCausalLM.from_pretrained(checkpoint)
    adapters = [w for name, w in model.named_parameters() if "lora_B" in name]
    assert adapters
    assert any(weight.abs().max() > 0 for weight in adapters)  # they start at zero
    # Every rank holds the same state, so it is there once.
    assert [path.name for path in (checkpoint / "optimizer").iterdir()] == ["rank_00000.pt"]
    saved = torch.load(checkpoint / "optimizer" / "rank_00000.pt", weights_only=True)
    assert len(saved["state"]) == len(adapters) * 2
    assert any(state["exp_avg"].abs().max() > 0 for state in saved["state"])
    assert len(sample(model, AutoTokenizer.from_pretrained(checkpoint))) > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_job_in_one_line(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        command("--deepspeed", "none", "--max_steps", "5000", "--save_steps", "0", *SMALL),
        env=environment(tmp_path), cwd=tmp_path, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step    3/"):
                break
        process.send_signal(number)
        printed, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode not in (0, None)
    assert printed.count("stopped by signal ") == 1
    assert printed.endswith(f" {number:d}; checkpoints that were finished are intact\n")
    assert "grpo_doctor_trainer" not in errors  # torchrun's own traceback is all there is
    assert "DataLoader" not in errors
