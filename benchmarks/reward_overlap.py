"""Rewards of the bundled trainer beside the rollout and after it: `--overlap_rewards`.

A random model that ends a completion with a chance of 1 in 24 per token, 64 completions of 8
prompts and at most 96 tokens, one thread and one reward process. Two reward functions that say
`per_completion`: one waits 5 ms for each completion, as for a judge's answer, one computes as long.

- Rounds: one process generates and scores the same completions both ways, which takes turns in
  going first, and must get the same scores. Beside the wall clock it counts the processor time of
  the thread that generates, which a busy machine disturbs less: it pays for looking after rewards.
- Pairs: whole runs under `grpo-doctor run`, with the same numbers; their steps as the report gives
  them, and what GD077 predicts from the run without, where it says anything.

    python -m benchmarks.reward_overlap [--rounds 12] [--pairs 1] [--steps 10] [--kinds waits]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.pairs import in_turn, mean_ratio
from benchmarks.recorded import record
from grpo_doctor_trainer.data.batch import PromptBatch
from grpo_doctor_trainer.data.rows import Row
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.logs.completions import decode
from grpo_doctor_trainer.model.load import load_model
from grpo_doctor_trainer.rewards.registry import find_rewards
from grpo_doctor_trainer.rewards.scoring import Rewards
from grpo_doctor_trainer.rollout.transformers import TransformersRollout

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
    record(
        folder, name, "-m", "grpo_doctor_trainer", *_FLAGS, "--max_steps", str(steps),
        "--reward_funcs", f"rewards.py:{kind}", "--overlap_rewards", str(overlap).lower(),
        "--output_dir", f"{name}-out",
    )  # fmt: skip
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
        for overlap in in_turn(pair, (False, True)):
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


def rounds(folder: Path, kind: str, count: int) -> list[float]:
    """Generates and scores in this process, `count` times each way.

    Returns:
        of each round the seconds with overlap, as a share of those without.
    """
    torch.set_num_threads(1)
    generated = _Generated(folder, kind)
    ratios = []
    sides: dict[bool, list[Timing]] = {False: [], True: []}
    try:
        for overlap in (True, False):  # the first of each is a warm-up
            generated.once(0, overlap=overlap)
        for seed in range(count):
            order = in_turn(seed, (False, True))
            timings = {overlap: generated.once(seed, overlap=overlap) for overlap in order}
            if not torch.equal(timings[True].scores, timings[False].scores):
                raise RuntimeError(f"{kind}: the scores of round {seed + 1} differ")
            ratios.append(timings[True].whole_s / timings[False].whole_s)
            for overlap in order:
                sides[overlap].append(timings[overlap])
    finally:
        generated.close()
    for overlap, name in ((False, "after "), (True, "beside")):
        means = [
            statistics.fmean(getattr(timing, part) for timing in sides[overlap])
            for part in ("rollout_s", "processor_s", "reward_s")
        ]
        print(
            f"{kind:9s} rewards {name} the rollout: rollout {means[0]:.3f} s, its thread's "
            f"processor time {means[1]:.3f} s, then waited for rewards {means[2]:.3f} s"
        )
    return ratios


@dataclass(frozen=True)
class Timing:
    """One rollout, and the wait for its rewards."""

    rollout_s: float
    processor_s: float
    reward_s: float
    scores: Any

    @property
    def whole_s(self) -> float:
        """Both."""
        return self.rollout_s + self.reward_s


class _Generated:
    """A rollout of transformers and reward processes, without a trainer around them."""

    def __init__(self, folder: Path, kind: str) -> None:
        source = f"{folder / 'rewards.py'}:{kind}"
        flags = [str(folder / "model") if word == "model" else word for word in _FLAGS]
        config = parse([*flags, "--reward_funcs", source], 1)
        self._rewards = Rewards(find_rewards(config.reward_funcs, set()), config)
        loaded = load_model(config, torch.float32)
        engine: Any = SimpleNamespace(
            module=loaded.policy, model=loaded.policy, device=torch.device("cpu"), zero_stage=None
        )
        self._rollout = TransformersRollout(engine, loaded, config)
        self._tokenizer = loaded.tokenizer
        texts = [f"{number % 8}+1" for number in range(64)]
        encoded = loaded.tokenizer(texts, return_tensors="pt", padding=True)
        tokens, mask = encoded["input_ids"], encoded["attention_mask"]
        self._prompts = PromptBatch([Row([], {})] * len(texts), texts, tokens, mask)

    def once(self, seed: int, *, overlap: bool) -> Timing:
        torch.manual_seed(seed)
        began_s, processor_s = time.perf_counter(), time.thread_time()
        on_ended = self._rewards.during_rollout(self._prompts, self._tokenizer)
        completed = self._rollout.generate(self._prompts, on_ended if overlap else None)
        generated_s, processor_s = time.perf_counter(), time.thread_time() - processor_s
        tokens = completed.tokens
        scores = self._rewards.score(self._prompts, tokens, decode(self._tokenizer, tokens))
        ended_s = time.perf_counter()
        return Timing(generated_s - began_s, processor_s, ended_s - generated_s, scores)

    def close(self) -> None:
        self._rewards.close()


def main() -> int:
    """Prints both parts and the mean ratios; 1 where the overlap makes rounds longer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reward_overlap")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    arguments = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="reward-overlap-") as name:
        folder = Path(name)
        (folder / "rewards.py").write_text(_REWARDS, encoding="utf-8")
        subprocess.run([sys.executable, "-c", _MODEL, "model"], cwd=folder, check=True)
        for kind in arguments.kinds:
            ratios = rounds(folder, kind, arguments.rounds)
            worst = max(worst, statistics.median(ratios))
            print(f"{kind:9s} rollout and rewards, beside / after: {mean_ratio(ratios)}")
            pairs = paired(folder, kind, arguments.pairs, arguments.steps)
            if len(pairs) > 1:
                steps = [beside.step_s / after.step_s for beside, after in pairs]
                print(f"{kind:9s} steps of whole runs, beside / after: {mean_ratio(steps)}")
    return int(worst > 1)


if __name__ == "__main__":
    sys.exit(main())
