"""Steps of the bundled trainer with rewards beside the rollout, and after it: `--overlap_rewards`.

One rank with one thread and one reward process, a random model that ends a completion with a chance
of 1 in 24 per token, 64 completions of 8 prompts and at most 96 tokens. Two reward functions that
say `per_completion`: one waits 5 ms for each completion, as for a judge's answer, one computes as
long. Runs are in pairs and take turns in going first; both must give the same numbers. A step is
what the report says of it, its first ones left out. Beside the measured change stands what GD077
predicts from the run without, where it says anything.

    python -m benchmarks.reward_overlap [--pairs 3] [--steps 10] [--kinds waits computes] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.pairs import mean_ratio

KINDS = ("waits", "computes")
RULE = "GD077"
_REWARDS = """import time

def waits(completions, **columns):
    time.sleep(0.005 * len(completions))
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]

def computes(completions, **columns):
    for _ in completions:
        until = time.process_time() + 0.005
        while time.process_time() < until:
            pass
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]

waits.per_completion = computes.per_completion = True
"""
_MODEL = """import sys
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer

tokenizer = tiny_tokenizer()
model = tiny_model(tokenizer)
ends = [tokenizer.eos_token_id, *range(0, len(tokenizer) - 24, 24)]
model.config.eos_token_id = model.generation_config.eos_token_id = ends
model.save_pretrained(sys.argv[1])
tokenizer.save_pretrained(sys.argv[1])
"""
_FLAGS = (
    "--model", "model", "--train_type", "full", "--torch_dtype", "float32", "--deepspeed", "none",
    "--gradient_checkpointing", "false", "--learning_rate", "1e-5", "--beta", "0.04",
    "--per_device_train_batch_size", "64", "--num_generations", "8",
    "--max_completion_length", "96", "--save_steps", "0", "--logging_steps", "1",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Seconds per step and what else the report says of one run.

    Attributes:
        unattributed: as a share of the step.
        predicted_pct: GD077's change of the step, low to high; none: it predicts nothing.
        says: whether GD077 is among the findings.
        rewards: the mean reward of each step.
    """

    step_s: float
    rollout_s: float
    reward_s: float
    unattributed: float
    predicted_pct: tuple[float, float] | None
    says: bool
    rewards: list[float]


def run(folder: Path, name: str, kind: str, steps: int, *, overlap: bool) -> Run:
    """Records one run of the trainer.

    Raises:
        subprocess.CalledProcessError: it failed; its output has been printed.
    """
    command = [
        *(sys.executable, "-m", "grpo_doctor", "run", "--no-report", "-o", name, "--"),
        *(sys.executable, "-m", "grpo_doctor_trainer", *_FLAGS, "--max_steps", str(steps)),
        *("--reward_funcs", f"rewards.py:{kind}", "--overlap_rewards", str(overlap).lower()),
        *("--output_dir", f"{name}-out"),
    ]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    finished = subprocess.run(
        command, cwd=folder, env=one_thread, capture_output=True, text=True, check=False
    )
    if finished.returncode:
        print(finished.stdout[-2000:], finished.stderr[-2000:])
    finished.check_returncode()
    report = subprocess.run(
        [sys.executable, "-m", "grpo_doctor", "report", "--json", name],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return _read(json.loads(report.stdout), folder / name)


def _read(document: dict[str, Any], folder: Path) -> Run:
    summary = document["summary"]
    phases = {phase: part["seconds"] for phase, part in summary["phases"].items()}
    finding = next((each for each in document["findings"] if each["id"] == RULE), None)
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return Run(
        step_s=summary["step_time_s"],
        rollout_s=phases["rollout"],
        reward_s=phases["reward"],
        unattributed=summary["unattributed_share"],
        predicted_pct=_predicted_pct(finding),
        says=finding is not None,
        rewards=[row["reward"] for row in rows if "reward" in row],
    )


def _predicted_pct(finding: dict[str, Any] | None) -> tuple[float, float] | None:
    changes = [*finding["fixes"], *finding["next_steps"]] if finding else []
    entries = [change["predicted"] for change in changes if change["predicted"]]
    return (entries[0]["low"], entries[0]["high"]) if entries else None


def paired(folder: Path, kind: str, pairs: int, steps: int) -> list[tuple[Run, Run]]:
    """Runs each pair, the one with overlap first in every other one.

    Returns:
        of each pair the run with overlap, and the one without.
    """
    results = []
    for pair in range(pairs):
        runs = {}
        for overlap in (True, False) if pair % 2 else (False, True):
            name = f"{kind}-{pair}-{overlap}"
            runs[overlap] = run(folder, name, kind, steps, overlap=overlap)
        with_overlap, without = runs[True], runs[False]
        if with_overlap.rewards != without.rewards:
            raise RuntimeError(f"{kind}: the rewards of pair {pair + 1} differ")
        results.append((with_overlap, without))
        change_pct = 100 * (with_overlap.step_s / without.step_s - 1)
        predicted = without.predicted_pct
        print(
            f"{kind:9s} pair {pair + 1}: step {without.step_s:.3f} -> {with_overlap.step_s:.3f} s "
            f"({change_pct:+.0f}%), reward {without.reward_s:.3f} -> {with_overlap.reward_s:.3f} s,"
            f" rollout {without.rollout_s:.3f} -> {with_overlap.rollout_s:.3f} s; {RULE} "
            + (f"said {predicted[0]:+.0f} to {predicted[1]:+.0f}%" if predicted else "said no gain")
            + (", and still speaks" if with_overlap.says else ", and is quiet then")
            + f"; unattributed {100 * with_overlap.unattributed:.2f}%",
            flush=True,
        )
    return results


def main() -> int:
    """Prints each pair and the mean ratios; 1 where the overlap makes steps longer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reward_overlap")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--json", action="store_true", help="every run, for machines")
    arguments = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="reward-overlap-") as name:
        folder = Path(name)
        (folder / "rewards.py").write_text(_REWARDS, encoding="utf-8")
        subprocess.run([sys.executable, "-c", _MODEL, "model"], cwd=folder, check=True)
        for kind in arguments.kinds:
            pairs = paired(folder, kind, arguments.pairs, arguments.steps)
            ratios = [with_overlap.step_s / without.step_s for with_overlap, without in pairs]
            worst = max(worst, statistics.median(ratios))
            print(f"{kind:9s} step with / without overlap: {mean_ratio(ratios)}")
            if arguments.json:
                rows = [[asdict(run) for run in pair] for pair in pairs]
                print(json.dumps({"kind": kind, "pairs": rows}))
    return int(worst > 1)


if __name__ == "__main__":
    sys.exit(main())
