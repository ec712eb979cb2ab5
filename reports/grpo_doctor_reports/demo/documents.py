"""Whole documents: a healthy run, a slow one, a killed one, a long one, an almost empty one."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable
from typing import Any, Final

from grpo_doctor_reports.demo.findings import (
    NOT_APPLICABLE,
    NOT_RUN,
    PASSED,
    SLOW_RUN_FINDINGS,
)
from grpo_doctor_reports.demo.hostile import hostile_copy
from grpo_doctor_reports.demo.measurements import (
    Shape,
    simulate,
    summary_of,
    tracks_of,
    views_of,
)

_TOOL: Final = {"name": "grpo-doctor", "version": "0.1.0"}
_STARTED_UNIX_NS: Final = 1_795_000_000_000_000_000
_HEALTHY = Shape(
    ranks=2,
    steps=24,
    gpus=False,
    phases_s={
        "dataload": 0.02,
        "rollout": 2.1,
        "reward": 0.05,
        "logprob": 0.31,
        "train": 0.92,
        "optimizer": 0.14,
        "sync": 0.06,
    },
)
_SLOW = Shape(
    ranks=8,
    steps=48,
    slow_rank=5,
    slow_factor=1.45,
    phases_s={
        "dataload": 3.4,
        "rollout": 14.2,
        "reward": 1.1,
        "logprob": 3.2,
        "train": 9.6,
        "offload": 4.7,
        "optimizer": 2.2,
        "sync": 1.3,
        "checkpoint": 0.4,
    },
)


def demo_document(shape: Shape = _SLOW, seed: int = 0) -> dict[str, Any]:
    """Return an ms-swift run with offload, data and straggler findings."""
    spans = simulate(shape, random.Random(seed))  # noqa: S311 (made-up samples)
    summary = summary_of(shape, spans, unattributed_s=0.6)
    return {
        "schema": 1,
        "tool": _TOOL,
        "run": _run(shape),
        "summary": {
            "verdict": "A third of each step is rollout that seven ranks spend waiting for rank 5, "
            "and 13 % goes to offloading an optimizer that would fit.",
            **summary,
        },
        "findings": SLOW_RUN_FINDINGS,
        "passed": PASSED,
        "not_run": NOT_RUN,
        "not_applicable": NOT_APPLICABLE,
        "views": views_of(shape, spans, summary),
    }


def healthy_document() -> dict[str, Any]:
    """Return a run of the bundled trainer on two CPU ranks without findings."""
    document = demo_document(_HEALTHY, seed=3)
    document["findings"] = []
    document["summary"]["verdict"] = "Nothing stands out: rollout and training fill 85 % of a step."
    document["run"].update(
        framework="bundled",
        framework_version="0.1.0",
        command=["grpo-doctor", "run", "--", "--model", "Qwen/Qwen2.5-0.5B", "--steps", "26"],
        gpus=[],
    )
    return document


def killed_document() -> dict[str, Any]:
    """Return a run that was killed while it started, before any step."""
    shape = Shape(ranks=4, steps=1, phases_s={"init": 1.0}, gpus=True)
    bands: list[dict[str, Any]] = [
        {"rank": rank, "phase": "init", "start_s": 0.0, "end_s": 734.0, "open": True}
        for rank in range(3)
    ]
    return {
        "schema": 1,
        "tool": _TOOL,
        "run": {
            **_run(shape),
            "exit": {"state": "killed", "code": None, "signal": "SIGKILL"},
            "duration_s": 734.0,
            "ranks": [_open_rank(0), _open_rank(1), _open_rank(2), _missing_rank(3)],
            "loss": {
                "dropped_events": 0,
                "missing_ranks": [3],
                "truncated": True,
                "notes": ["rank 2: the last record is damaged and was left out"],
            },
        },
        "summary": {
            "verdict": "The run never reached its first step: three ranks waited in init for rank "
            "3, which left no recording, until the job was killed.",
            "step_time_s": None,
            "steps": 0,
            "steps_total": 0,
            "warmup_steps": 0,
            "phases": {},
            "gpu_busy_pct": 3.1,
        },
        "findings": [],
        "passed": PASSED[:2],
        "not_run": NOT_RUN,
        "not_applicable": [],
        "views": {
            "waterfall": [],
            "heatmap": {"ranks": [], "steps": [], "step_seconds": []},
            "timeline": {
                "end_s": 734.0,
                "bands": bands,
                "tracks": tracks_of(shape, 734.0, bands),
                "thinned": False,
            },
            "metrics": {"steps": [], "series": {}},
        },
    }


def long_document() -> dict[str, Any]:
    """Return 1,000 steps on 8 ranks, every view full: what the size budget is measured on."""
    phases = {**_SLOW.phases_s, "eval": 0.9}
    return demo_document(Shape(8, 1_000, phases, slow_rank=5, slow_factor=1.3), seed=1)


def hostile_document() -> dict[str, Any]:
    """Return the slow run with an attack in every string, and everything lost that can be."""
    document = demo_document()
    document["run"]["loss"].update(missing_ranks=[9], truncated=True, notes=["note"])
    document["run"]["ranks"][0]["open"] = [{"name": "rollout", "open_s": 5.0}]
    return hostile_copy(document)


def minimal_document() -> dict[str, Any]:
    """Return the least that is a document."""
    return {"schema": 1, "tool": _TOOL}


DEMOS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "slow": demo_document,
    "healthy": healthy_document,
    "killed": killed_document,
    "long": long_document,
    "hostile": hostile_document,
    "minimal": minimal_document,
}


def _run(shape: Shape) -> dict[str, Any]:
    return {
        "id": "20261121-014856-7f3a",
        "source": "trace.json",
        "command": _COMMAND,
        "framework": "ms-swift",
        "framework_version": "4.6.0",
        "hosts": ["node-a"],
        "world_size": shape.ranks,
        "started_unix_ns": _STARTED_UNIX_NS,
        "duration_s": 41.0 * shape.steps,
        "exit": {"state": "finished", "code": 0, "signal": None},
        "knobs": {
            "offload.optimizer": True,
            "vllm.gpu_memory_utilization": 0.4,
            "vllm.mode": "colocate",
            "rollout.num_generations": 8,
            "data.num_workers": 0,
            "deepspeed": "zero2",
        },
        "versions": {"torch": "2.9.1", "vllm": "0.12.0", "ms-swift": "4.6.0"},
        "gpus": [
            {
                "uuid": f"GPU-{index:08x}-2f1e-4c58-9d0a-6b1f6a7c{index:04x}",
                "name": "NVIDIA H200",
                "index": index,
                "host": "node-a",
                "memory_total_bytes": 150_754_820_096,
            }
            for index in range(shape.ranks)
        ],
        "ranks": [{**_rank(rank), "state": "finished", "open": []} for rank in range(shape.ranks)],
        "loss": {"dropped_events": 0, "missing_ranks": [], "truncated": False, "notes": []},
    }


_COMMAND: Final = shlex.split(
    "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --dataset gsm8k --use_vllm true "
    "--vllm_mode colocate --vllm_gpu_memory_utilization 0.4 --num_generations 8 --deepspeed zero2 "
    "--offload_optimizer true --dataloader_num_workers 0"
)


def _rank(rank: int) -> dict[str, Any]:
    clock_error_ns = 1_800 + 90 * rank
    return {"rank": rank, "host": "node-a", "pid": 41_200 + rank, "clock_error_ns": clock_error_ns}


def _open_rank(rank: int) -> dict[str, Any]:
    open_spans = [
        {"name": "init", "open_s": 734.0},
        {"name": "init/process_group", "open_s": 703.5 - rank},
    ]
    return {**_rank(rank), "state": "open", "open": open_spans}


def _missing_rank(rank: int) -> dict[str, Any]:
    return {"rank": rank, "host": "node-a", "state": "missing", "open": [], "clock_error_ns": None}
