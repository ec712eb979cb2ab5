"""How near the ledger's boundary between `runs` and `out of memory` comes to published ones.

`python -m benchmarks.memory_boundaries [--write]`
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from benchmarks.memory_accuracy import print_or_write
from grpo_doctor.launches import read
from grpo_doctor.memory import GIB, Ledger, Machine, card_bytes, estimate
from grpo_doctor.memory.ledger import SPARE_SHARE

REPORTS = Path(__file__).with_name("memory_reports.jsonl")
"""Launches with a link to who said how they turned out."""
_MOST = 400
_GOAL = 0.15
_COMMAND = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.max_prompt_length=512 "
    "data.max_response_length=1024 data.train_batch_size={rows} "
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-{size}-Instruct "
    "actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.target_modules=all-linear "
    "actor_rollout_ref.model.use_remove_padding=True "
    "actor_rollout_ref.actor.ppo_mini_batch_size={rows} "
    "actor_rollout_ref.actor.ppo_micro_batch_size={rows} "
    "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.entropy_coeff=0.001 "
    "actor_rollout_ref.actor.fsdp_config.param_offload=True "
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True "
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size={context} "
    "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=5 "
    "actor_rollout_ref.rollout.tensor_model_parallel_size={gpus} "
    "actor_rollout_ref.rollout.gpu_memory_utilization={share} "
    "actor_rollout_ref.rollout.max_num_seqs=512 actor_rollout_ref.rollout.max_model_len=1536 "
    "actor_rollout_ref.rollout.max_num_batched_tokens=1536 "
    "actor_rollout_ref.rollout.layered_summon=True "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size={rows} "
    "actor_rollout_ref.ref.log_prob_micro_batch_size={rows} "
    "actor_rollout_ref.ref.fsdp_config.param_offload=True trainer.n_gpus_per_node={gpus}"
)


@dataclass(frozen=True)
class Boundary:
    """Prompts per GPU with which a script of verl's runs, and with which it does not."""

    size: str
    gpus: int
    context: int
    share: float
    runs: int
    fails: int | None = None

    def ledger(self, prompts: int) -> Ledger:
        """Of the script with so many prompts per GPU, on H100 cards."""
        command = _COMMAND.format(
            size=self.size, gpus=self.gpus, context=self.context, share=self.share,
            rows=prompts * self.gpus,
        )  # fmt: skip
        return estimate(read([command]), Machine(card_bytes("H100-80G"), self.gpus))

    def predicted(self) -> int:
        """The largest number that is predicted to run."""
        return sum(1 for _ in takewhile(lambda n: _runs(self.ledger(n)), range(1, _MOST)))


BOUNDARIES = (
    Boundary("0.5B", 1, 1, 0.1, 116),
    Boundary("1.5B", 1, 1, 0.1, 128),
    Boundary("3B", 1, 1, 0.1, 62),
    Boundary("7B", 1, 1, 0.2, 100, 101),
    Boundary("14B", 2, 2, 0.25, 58, 59),
    Boundary("32B", 4, 2, 0.3, 44, 45),
    Boundary("72B", 8, 2, 0.4, 22, 23),
)


def _runs(ledger: Ledger) -> bool:
    pool = ledger.train
    return all(phase.needed_bytes <= pool.capacity_bytes for phase in pool.phases)


def reported() -> str:
    """What `check` says of launches whose outcome someone reported."""
    rows = [
        "| launch, as reported | GPUs | outcome | verdict | needs | left open |", "|---" * 6 + "|",
    ]  # fmt: skip
    verdicts: Counter[tuple[bool, str]] = Counter()
    missed, tighter = 0, Counter[bool]()
    for line in REPORTS.read_text("utf-8").splitlines():
        report = json.loads(line)
        count, _, card = report["gpus"].partition("x")
        cards, nodes = min(int(count), 8), max(1, int(count) // 8)
        versions = report.get("versions", {})
        machine = Machine(card_bytes(card), cards, nodes, vllm_version=versions.get("vllm"))
        ledger = estimate(read([report["command"]], versions=versions), machine)
        outcome = f"ran: {report.get('measured', '')}".rstrip(": ")
        outcome = outcome if report["ran"] else "out of memory"
        needs = f"{ledger.worst.decisive.needed_bytes / GIB:.0f} GiB"
        source = report["source"].removeprefix("https://github.com/").replace("/tree/main", "")
        link = f"[{source}]({report['source']})"
        cells = (link, report["gpus"], outcome, ledger.state, needs, report.get("open", ""))
        rows.append(f"| {' | '.join(cells)} |")
        verdicts[report["ran"], ledger.state] += 1
        missed += ledger.state == "fits" and not report["ran"] and "open" not in report
        tighter[report["ran"]] += ledger.state == "tight" and all(
            phase.interval.high <= pool.capacity_bytes
            for pool in ledger.pools
            for phase in pool.phases
        )
    failed = sum(count for (ran, _), count in verdicts.items() if not ran)
    refused = sum(verdicts[True, state] for state in ("oom", "invalid"))
    return (
        "\n".join(rows)
        + f"\n\nOf {failed} that ran out of memory or did not start, `fits` was said "
        f"of {verdicts[False, 'fits']} ({missed} whose report leaves nothing open) and `tight` of "
        f"{verdicts[False, 'tight']}; of {verdicts.total() - failed} that ran, {refused} were "
        f"refused. As {SPARE_SHARE:.0%} of a GPU has to stay free, `tight` was said in place of "
        f"`fits` of {tighter[False]} and {tighter[True]} of these."
    )


def boundaries() -> str:
    """What is predicted of the published boundaries."""
    rows = [
        "| model, GPUs | runs | fails | predicted to run | off | verdict at both |",
        "|---" * 6 + "|",
    ]
    near = 0
    for boundary in BOUNDARIES:
        predicted = boundary.predicted()
        off = predicted / boundary.runs - 1
        near += boundary.fails is not None and abs(off) <= _GOAL
        ends = (boundary.runs, boundary.fails or boundary.runs)
        verdicts = " / ".join(boundary.ledger(prompts).state for prompts in ends)
        rows.append(
            f"| {boundary.size}, {boundary.gpus} H100 | {boundary.runs} | {boundary.fails or '-'} "
            f"| {predicted} | {100 * off:+.0f}% | {verdicts} |"
        )
    pairs = sum(boundary.fails is not None for boundary in BOUNDARIES)
    met = f"Of {pairs} pairs {near} are met within {100 * _GOAL:.0f}%."
    return "\n\n".join(("\n".join(rows), met))


if __name__ == "__main__":
    sys.exit(print_or_write(__doc__, {"boundaries": boundaries, "reported launches": reported}))
