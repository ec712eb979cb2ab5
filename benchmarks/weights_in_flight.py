"""Weights to a rollout server: the next part gathered while one is sent, and after it.

Two gloo ranks under ZeRO-3 and the bundled rollout server on vLLM's CPU build, a model whose
weights take most of a step. Runs of both ways (`--overlap_sync`) take turns beside one server, and
must end with the same metrics. Weights go by files; `--gloo` takes the folder away from the
trainer, so that they go by broadcasts.

    python -m benchmarks.weights_in_flight [--pairs 5] [--steps 6] [--width 512] [--gloo]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import grpo_doctor
from benchmarks.pairs import in_turn, mean_ratio
from benchmarks.recorded import record
from grpo_doctor_trainer.rollout.vllm.client import ServerClient
from tests.rollout_server import START_S, kill_session, started

_TRAINER = (
    "--deepspeed", "zero3", "--train_type", "full", "--torch_dtype", "float32", "--beta", "0",
    "--per_device_train_batch_size", "8", "--num_generations", "8", "--max_length", "64",
    "--max_completion_length", "8", "--save_steps", "0", "--learning_rate", "1e-5",
    "--logging_steps", "1", "--move_model_batches", "8",
)  # fmt: skip
# A server on another machine offers no folder that the trainer shares.
_NO_FOLDER = """import runpy
from grpo_doctor_trainer.rollout.vllm import transfer
transfer.shared = lambda folder: False
runpy.run_module("grpo_doctor_trainer", run_name="__main__", alter_sys=True)
"""
_MODEL = """import sys
from transformers import Qwen2ForCausalLM
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer

tokenizer = tiny_tokenizer()
config = tiny_model(tokenizer, int(sys.argv[2])).config
config.num_hidden_layers, config.layer_types = 16, None
Qwen2ForCausalLM(type(config)(**config.to_dict())).save_pretrained(sys.argv[1])
tokenizer.save_pretrained(sys.argv[1])
"""
_WARM_UP_STEPS = 2
_SPANS = ("sync", "sync/gather", "sync/send", "sync/load")


@dataclass(frozen=True)
class Run:
    """Seconds per step of rank 0 after the warm-up, and the rewards of all steps.

    Attributes:
        spans_s: of each of `_SPANS`.
    """

    step_s: float
    spans_s: dict[str, float]
    rewards: list[float]


def run(folder: Path, name: str, flags: list[str], program: list[str]) -> Run:
    """Records one run of the trainer.

    Raises:
        subprocess.CalledProcessError: it failed; its output has been printed.
    """
    record(
        folder, name, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        *program, *_TRAINER, *flags, "--output_dir", f"{name}-out",
    )  # fmt: skip
    trace = grpo_doctor.load(folder / name)
    frame = trace.frame()
    frame = frame[frame["rank"] == 0].assign(s=lambda rows: (rows.end_ns - rows.start_ns) / 1e9)
    steps = frame[(frame["kind"] == "step") & (frame["value"] > _WARM_UP_STEPS)]
    counted = frame[frame.start_ns >= steps.start_ns.min()]
    spans_s = counted[counted["kind"] == "span"].groupby("name", observed=True)["s"].sum()
    lines = (folder / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return Run(
        step_s=float(steps["s"].mean()),
        spans_s={span: float(spans_s.get(span, 0.0)) / len(steps) for span in _SPANS},
        rewards=[json.loads(line)["metrics"]["reward"] for line in lines],
    )


def paired(folder: Path, pairs: int, flags: list[str], program: list[str]) -> list[float]:
    """Runs each pair, the one with a part in flight first in every other one.

    Returns:
        of each pair how long `sync` took with a part in flight, as a share of without.

    Raises:
        RuntimeError: the two runs of a pair had different rewards.
    """
    ratios = []
    for pair in range(pairs):
        runs = {}
        for overlap in in_turn(pair, (False, True)):
            words = [*flags, "--overlap_sync", str(overlap).lower()]
            runs[overlap] = run(folder, f"{pair}-{overlap}", words, program)
        flying, after = runs[True], runs[False]
        if flying.rewards != after.rewards:
            raise RuntimeError(f"the rewards of pair {pair + 1} differ")
        ratios.append(flying.spans_s["sync"] / after.spans_s["sync"])
        for label, side in (("after", after), ("in flight", flying)):
            spans = ", ".join(f"{span} {side.spans_s[span]:.3f}" for span in _SPANS)
            print(f"pair {pair + 1} {label:9s}: step {side.step_s:.3f} s, {spans}", flush=True)
    return ratios


def main() -> int:
    """Prints each pair and the mean ratio; 1 where a part in flight makes `sync` longer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weights_in_flight")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--gloo", action="store_true", help="weights by broadcasts, not by files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weights-in-flight-") as name:
        folder = Path(name)
        (folder / "no_folder.py").write_text(_NO_FOLDER, encoding="utf-8")
        subprocess.run(
            [sys.executable, "-c", _MODEL, "model", str(options.width)], cwd=folder, check=True
        )
        server = started(
            folder, "--model", "model", "--torch_dtype", "float32", "--max_model_len", "128",
            "--gpu_memory_utilization", "0.02",
        )  # fmt: skip
        try:
            ServerClient("127.0.0.1", server.port, 60).wait_until_ready(START_S, lambda _: None)
            flags = [*server.flags, "--model", "model", "--max_steps", str(options.steps)]
            program = ["no_folder.py"] if options.gloo else ["-m", "grpo_doctor_trainer"]
            ratios = paired(folder, options.pairs, flags, program)
        finally:
            kill_session(server.process)
    print(f"sync, in flight / after: {mean_ratio(ratios)}")
    return int(statistics.median(ratios) > 1)


if __name__ == "__main__":
    sys.exit(main())
