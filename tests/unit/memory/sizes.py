"""What each setting of some jobs changes in their ledgers, so that a change of any number shows.

`python -m tests.unit.memory.sizes` writes it down again; read the diff of `sizes.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.launches import read
from grpo_doctor.memory import (
    Ledger,
    Machine,
    Setup,
    card_bytes,
    fixes,
    ledger_of,
    model_shape,
    relief,
    room,
    setup_of,
    solve,
)
from grpo_doctor.memory.edits import SOLVABLE
from grpo_doctor.memory.estimate import server_pool
from grpo_doctor.memory.facts import calibration
from tests.unit.memory.jobs import LARGE, TEXT, TEXT_OWN_CARD, VISION

RECORDED = Path(__file__).with_name("sizes.json")
EXPERTS = Setup(
    model_shape("Qwen/Qwen3-30B-A3B"),
    card_bytes("A100-80G"),
    ranks=16,
    ranks_per_node=8,
    engine="megatron",
    tensor_parallel=2,
    pipeline_parallel=2,
    expert_parallel=4,
    framework="verl",
    completion_tokens=1024,
    micro_batch=2,
)
JOBS = {
    "text": TEXT,
    "text, own card": TEXT_OWN_CARD,
    "vision": VISION,
    "large": LARGE,
    "experts": EXPERTS,
}
_OTHERS: dict[str, tuple[Any, ...]] = {
    "method": ("full",),
    "engine": ("torch", "fsdp", "device_map"),
    "zero_stage": (0, 1, 3),
    "loss": ("float32", "triton"),
    "attention": ("eager",),
    "recompute": ("none", "selective"),
    "rollout": ("none", "generate", "server", "colocate"),
    "base_bits": (4, 8),
    "micro_batch": (1, 8),
    "logprob_micro_batch": (4,),
    "completion_tokens": (0,),
    "lora_targets": ("attention",),
    "fully_trained_tables": (2,),
    "optimizer": ("sgd", "adamw_8bit"),
    "tensor_parallel": (2,),
    "context_parallel": (2,),
    "optimizer_offload_share": (0.5,),
    "usual_row_tokens": (100,),
    "longest_row_tokens": (400,),
    "trained_dtype_bytes": (4,),
    "images": (3,),
    "sync_groups": (1, 16),
    "completions_per_rank": (8,),
    "host_bytes": (64 << 30,),
    "loader_workers": (4,),
    "beside": ((TEXT.model,),),
    "version": ("3.9.0",),
}
SWIFT = (
    "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen2-7B-Instruct --max_length 2048 "
    "--per_device_train_batch_size 2 --num_generations 8 --max_completion_length 1024 "
)
COMMANDS = (
    SWIFT + "--train_type lora --deepspeed zero2 --use_vllm true",
    SWIFT
    + "--train_type full --deepspeed zero3_offload --beta 0.04 --gradient_checkpointing false",
    SWIFT + "--train_type lora --quant_bits 4 --lora_rank 64 --use_vllm true --vllm_mode colocate "
    "--sleep_level 1 --offload_optimizer true --vllm_tensor_parallel_size 2",
    (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.n_gpus_per_node=8 "
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 data.max_response_length=2048 "
        "actor_rollout_ref.actor.fsdp_config.param_offload=True"
    ),
    (
        "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --zero_stage 3 "
        "--colocate_all_models --micro_train_batch_size 2"
    ),
    "vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 4",
)


def of_job(name: str) -> dict[str, Any]:
    """The ledger of a job, what each other setting changes in it, and what is advised."""
    setup = JOBS[name]
    usual = _lines(ledger_of(setup))
    totals: dict[str, Any] = {"as it is": usual, "advised": _advised(setup)}
    totals["server"] = _lines(Ledger((server_pool(setup, calibration()),)))
    for changed, variant in _variants(setup):
        lines = _lines(ledger_of(variant))
        totals[changed] = {key: lines.get(key) for key in lines if lines[key] != usual.get(key)}
        totals[changed] |= {key: None for key in usual if key not in lines}
    return totals


def of_command(command: str) -> dict[str, Any]:
    """What is read from a command, beyond the defaults."""
    job = setup_of(read([command]), Machine(card_bytes("A100-80G"), 8, nodes=1))
    setups = {"trainer": job.trainer, "server": job.server}
    return {"assumptions": list(job.assumptions)} | {
        role: _beyond_defaults(setup) for role, setup in setups.items() if setup is not None
    }


def _beyond_defaults(setup: Setup) -> dict[str, Any]:
    plain = Setup(setup.model, setup.card_bytes)
    return {
        field.name: str(getattr(setup, field.name))
        for field in fields(setup)
        if field.name != "model" and getattr(setup, field.name) != getattr(plain, field.name)
    }


def _variants(setup: Setup) -> Iterator[tuple[str, Setup]]:
    for field in fields(setup):
        value = getattr(setup, field.name)
        alternatives = (not value,) if isinstance(value, bool) else _OTHERS.get(field.name, ())
        for alternative in alternatives:
            shown = "a 7B" if field.name == "beside" else alternative
            if alternative != value:
                yield f"{field.name} {shown}", replace(setup, **{field.name: alternative})


def _lines(ledger: Ledger) -> dict[str, Any]:
    host = (ledger.host,) if ledger.host else ()
    lines: dict[str, Any] = {"state": f"{ledger.state}, {ledger.train.needed_share:.4g}"}
    for pool in (*ledger.pools, *host):
        lines[pool.role] = [pool.capacity_bytes, *pool.refusals]
        for phase in pool.phases:
            interval = phase.interval
            lines[f"{pool.role}/{phase.name}"] = [interval.low, interval.middle, interval.high]
            for part in phase.components:
                lines[part.name] = [part.bytes, part.spare_bytes, round(part.spread, 6)]
    return lines


def _advised(setup: Setup) -> dict[str, Any]:
    change = fixes(setup)
    listed = {"fixes": [change] if change else [], "relief": relief(setup), "room": room(setup)}
    record: dict[str, Any] = {
        kind: [[[f"{e.knob} {e.value}" for e in c.edits], c.saved_bytes] for c in changes]
        for kind, changes in listed.items()
    }
    for knob in SOLVABLE:
        try:
            record[knob] = solve(setup, knob)
        except GrpoDoctorError as refusal:
            record[knob] = str(refusal)
    return record


def recorded() -> dict[str, Any]:
    """What was written down."""
    records: dict[str, Any] = json.loads(RECORDED.read_text())
    return records


if __name__ == "__main__":
    rows = {name: of_job(name) for name in JOBS} | {c: of_command(c) for c in COMMANDS}
    text = json.dumps(rows, separators=(",", ":"))
    RECORDED.write_text(text.replace('],"', '],\n"').replace('},"', '},\n"') + "\n")
