"""The slow run that the other made-up documents are variations of."""

from __future__ import annotations

import random
import shlex
from typing import Any, Final

from tests.demo_reports.added import (
    CLOCK,
    COLLECTIVES,
    added_summary,
    path_of,
    steps_of,
    whatif_of,
)
from tests.demo_reports.crowd import cost_of
from tests.demo_reports.drawn import with_drawn
from tests.demo_reports.findings import (
    NOT_APPLICABLE,
    NOT_RUN,
    PASSED,
    SLOW_RUN_FINDINGS,
)
from tests.demo_reports.measurements import (
    Shape,
    Spans,
    simulate,
    summary_of,
    views_of,
)

TOOL: Final = {"name": "grpo-doctor", "version": "0.1.0"}
STARTED_UNIX_NS: Final = 1_795_000_000_000_000_000
SLOW = Shape(
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
_COSTS: Final = {"GD003": 0.14, "GD007": 0.097, "GD011": 0.07, "GD019": 0.0}
_FIXES: Final = {
    "GD003": ("Bring GPU 5 back to its clock", "nvidia-smi -q -d PERFORMANCE -i 5", -15.1),
    "GD007": ("Keep the optimizer on the GPU", "--offload_optimizer false", -12.2),
    "GD011": (
        "Make batches beside the training process",
        "--dataloader_num_workers 4 --dataloader_prefetch_factor 2",
        -7.0,
    ),
}


def demo_document(shape: Shape = SLOW, seed: int = 0) -> dict[str, Any]:
    """Return an ms-swift run with offload, data and straggler findings."""
    document = undrawn_document(shape, simulate(shape, random.Random(seed)))
    return {**document, "views": with_drawn(document["views"])}


def undrawn_document(shape: Shape, spans: Spans) -> dict[str, Any]:
    """Return the same run of these spans, its views without what `with_drawn` adds."""
    gap_s = 0.6
    summary = summary_of(shape, spans, unattributed_s=gap_s)
    step_s = float(summary["step_time_s"])
    return {
        "schema": 1,
        "tool": TOOL,
        "run": run_of(shape),
        "summary": {
            "verdict": "A third of each step is rollout that seven ranks spend waiting for rank 5, "
            "and 13% goes to offloading an optimizer that would fit.",
            **summary,
            **added_summary(),
        },
        "findings": [
            {**finding, "cost": cost_of(_COSTS[finding["id"]], step_s)}
            for finding in SLOW_RUN_FINDINGS
        ],
        "passed": PASSED,
        "not_run": NOT_RUN,
        "not_applicable": NOT_APPLICABLE,
        "views": {**views_of(shape, spans, summary), **_added_views(shape, spans, gap_s)},
        "whatif": whatif_of(step_s, _FIXES),
    }


def _added_views(shape: Shape, spans: Spans, gap_s: float) -> dict[str, Any]:
    steps = steps_of(shape, spans, gap_s)
    steady = sorted((s for s in steps if s["kind"] == "steady"), key=lambda step: step["seconds"])
    return {
        "steps": steps,
        "critical_path": path_of(shape, spans, steady[len(steady) // 2]["number"]),
        "critical_path_worst": path_of(shape, spans, steady[-1]["number"]),
        "collectives": COLLECTIVES,
    }


def run_of(shape: Shape) -> dict[str, Any]:
    """Return the facts of a run of this shape that ended well."""
    return {
        "id": "20261121-014856-7f3a",
        "source": "trace.json",
        "command": _COMMAND,
        "framework": "ms-swift",
        "framework_version": "4.6.0",
        "hosts": ["node-a"],
        "world_size": shape.ranks,
        "started_unix_ns": STARTED_UNIX_NS,
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
        "ranks": [
            {**rank_entry(rank), "state": "finished", "open": []} for rank in range(shape.ranks)
        ],
        "loss": {"dropped_events": 0, "missing_ranks": [], "truncated": False, "notes": []},
        "clock": CLOCK,
    }


_COMMAND: Final = shlex.split(
    "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --dataset gsm8k --use_vllm true "
    "--vllm_mode colocate --vllm_gpu_memory_utilization 0.4 --num_generations 8 --deepspeed zero2 "
    "--offload_optimizer true --dataloader_num_workers 0"
)


def rank_entry(rank: int) -> dict[str, Any]:
    """Return what is known of a rank however it ended."""
    clock_error_ns = 1_800 + 90 * rank
    return {"rank": rank, "host": "node-a", "pid": 41_200 + rank, "clock_error_ns": clock_error_ns}
