"""Made-up findings and checks with the wording of real ones."""

from __future__ import annotations

from typing import Any, Final

SLOW_RUN_FINDINGS: Final[list[dict[str, Any]]] = [
    {
        "id": "GD003",
        "slug": "straggler-rank",
        "family": "system",
        "title": "Rank 5 generates 45% longer than the others, and everyone waits for it",
        "severity": "high",
        "confidence": 0.93,
        "phases": ["rollout", "train"],
        "ranks": [5],
        "evidence": [
            {
                "text": "rollout on rank 5, mean over 48 steps",
                "value": 20.6,
                "unit": "s",
                "source": "spans",
            },
            {
                "text": "rollout on the other ranks, median",
                "value": 14.1,
                "unit": "s",
                "source": "spans",
            },
            {
                "text": "wait of the other ranks in train",
                "value": 6.9,
                "unit": "s",
                "source": "collectives",
            },
            {
                "text": "SM clock of GPU 5, median",
                "value": 1_350,
                "unit": "MHz",
                "source": "gpu.sm_clock",
            },
        ],
        "cause": "GPU 5 runs at 1,350 MHz instead of 1,980 MHz while it is hot. Its rollout takes "
        "as much longer as its clock is lower, and the first all-reduce of train waits.",
        "fixes": [
            {
                "knob": None,
                "from": None,
                "to": None,
                "spelling": "nvidia-smi -q -d PERFORMANCE -i 5",
                "predicted": {
                    "low": -17.2,
                    "mid": -15.1,
                    "high": -9.8,
                    "unit": "step_time_pct",
                    "basis": "replay of 48 steps with rank 5 at the median speed of the others",
                },
                "safety": "same-math",
                "risk": "None; if the clock stays low, the node needs service.",
            }
        ],
    },
    {
        "id": "GD007",
        "slug": "needless-optimizer-offload",
        "family": "offload",
        "title": "The optimizer is offloaded although it would fit on the GPU",
        "severity": "high",
        "confidence": 0.81,
        "phases": ["offload", "optimizer"],
        "ranks": [],
        "evidence": [
            {"text": "offload, mean per step", "value": 4.7, "unit": "s", "source": "spans"},
            {
                "text": "free GPU memory at the peak of train",
                "value": 61_203_283_968,
                "unit": "bytes",
                "source": "gpu.memory_used",
            },
            {
                "text": "optimizer state per rank",
                "value": 11_408_506_880,
                "unit": "bytes",
                "source": "memory model",
            },
        ],
        "cause": "Each step copies 10.6 GiB of optimizer state to the host and back.",
        "fixes": [
            {
                "knob": "offload.optimizer",
                "from": True,
                "to": False,
                "spelling": "--offload_optimizer false",
                "predicted": {
                    "low": -13.4,
                    "mid": -12.2,
                    "high": -8.1,
                    "unit": "step_time_pct",
                    "basis": "replay without offload spans",
                },
                "safety": "same-math",
                "risk": "Peak memory rises by 10.6 GiB per GPU.",
            },
            {
                "knob": "deepspeed",
                "from": "zero2",
                "to": "zero1",
                "spelling": "--deepspeed zero1",
                "predicted": None,
                "safety": "changes-numerics",
                "risk": "Gradients are no longer partitioned.",
            },
        ],
    },
    {
        "id": "GD011",
        "slug": "starved-dataloader",
        "family": "data",
        "title": "Every rank waits for its next batch",
        "severity": "medium",
        "confidence": 0.88,
        "phases": ["dataload"],
        "ranks": [0, 1, 2, 3, 4, 5, 6, 7],
        "evidence": [
            {"text": "dataload, mean per step", "value": 3.4, "unit": "s", "source": "spans"},
            {"text": "host CPU during dataload", "value": 7.9, "unit": "%", "source": "host.cpu"},
        ],
        "cause": "Batches are made in the training process, one after the other.",
        "fixes": [
            {
                "knob": "data.num_workers",
                "from": 0,
                "to": 4,
                "spelling": "--dataloader_num_workers 4 --dataloader_prefetch_factor 2",
                "predicted": {
                    "low": -8.4,
                    "mid": -7.0,
                    "high": -2.5,
                    "unit": "step_time_pct",
                    "basis": "replay with dataload hidden behind train",
                },
                "safety": "same-math",
                "risk": "Four more processes per rank.",
            }
        ],
    },
    {
        "id": "GD019",
        "slug": "small-kv-cache",
        "family": "rollout",
        "title": "vLLM preempts requests: its KV cache is small",
        "severity": "low",
        "confidence": 0.55,
        "phases": ["rollout"],
        "ranks": [],
        "evidence": [
            {"text": "preempted requests per step", "value": 3.2, "unit": "", "source": "vLLM"}
        ],
        "cause": "gpu_memory_utilization 0.4 leaves 21 GiB for the cache.",
        "fixes": [
            {
                "knob": "vllm.gpu_memory_utilization",
                "from": 0.4,
                "to": 0.5,
                "spelling": "--vllm_gpu_memory_utilization 0.5",
                "predicted": None,
                "safety": "same-math",
                "risk": "Less memory for train.",
            }
        ],
    },
]


def _check(rule: str, title: str, key: str, text: str) -> dict[str, Any]:
    return {"id": rule, "slug": title.lower().replace(" ", "-"), "title": title, key: text}


PASSED: Final = [
    _check("GD001", "Steps are covered by phases", "note", "unattributed is 1.5% of a step"),
    _check("GD002", "Ranks see the same number of steps", "note", "48 on each"),
    _check("GD004", "Reward is not serial", "note", "1.1 s for 64 completions"),
    _check("GD005", "Weight sync is short", "note", "3% of a step"),
    _check("GD008", "Checkpoints do not block", "note", "0.4 s per step"),
    _check("GD012", "Rollout has no long tail", "note", "longest sample 1.3 of the median"),
]
NOT_RUN: Final = [
    _check("GD014", "GPU work, not only utilisation", "missing", "gpu.sm_active (GPM counters)"),
    _check("GD016", "PCIe is not saturated", "missing", "gpu.pcie_rx, gpu.pcie_tx"),
]
NOT_APPLICABLE: Final = [
    _check("GD021", "Server rollout overlaps training", "reason", "rollout is colocated"),
    _check("GD023", "ZeRO-3 gathers once per generation", "reason", "the run uses ZeRO-2"),
]
