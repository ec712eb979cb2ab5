"""Unused GPU memory at its edges; `test_rule_details.py` has its usual runs."""

from __future__ import annotations

from tests.unit.findings.example_runs import SETTINGS, empty_gpus, offloaded, run
from tests.unit.findings.rules.saying import rows

RUNS = {
    "offload stays where without it the memory would be full": lambda: offloaded((60.0, 60.0)),
    **rows("how much is free decides how severe it is",
        lambda peak_gib: run(memory_gib=(5.0, peak_gib)), 60.0, 40.1, 40.0, 8.0, 7.9),
    "less than a quarter is not unused": lambda: run(memory_gib=(5.0, 60.1)),
    **rows(
        "vllm gets what is free less a tenth",
        lambda share: run(
            knobs={**SETTINGS, "vllm.gpu_memory_utilization": share}, memory_gib=(50.0, 60.0)
        ),
        0.52,
        0.74,
        0.85,
        0.9,
    ),
    "vllm gets more and batches grow": empty_gpus,
    **rows(
        "a batch that cannot double stays",
        lambda micro, passes, used_gib: run(
            knobs={**SETTINGS, "train.micro_batch": micro, "train.grad_accumulation": passes},
            memory_gib=used_gib,
        ),
        (2, 7, (30.0, 35.0)),
        (2, None, (30.0, 35.0)),
        (None, 8, (30.0, 35.0)),
        (2, 8, (40.0, 50.0)),
    ),
    **rows(
        "an engine without a share or with all of it gets no more",
        lambda share: run(
            knobs={**SETTINGS, "vllm.gpu_memory_utilization": share}, memory_gib=(30.0, 35.0)
        ),
        None,
        0.9,
    ),
    "offload goes first": lambda: offloaded(memory_gib=(30.0, 50.0)),
    "a tiny model is only a note": lambda: run(memory_gib=(1.0, 2.0)),
    **rows(
        "a server keeps its own gpus",
        lambda mode: run(
            knobs={**SETTINGS, "vllm.mode": mode, "vllm.gpu_memory_utilization": 0.3},
            memory_gib=(30, 35),
        ),
        None,
        "server",
    ),
    "without samples the signal is missing": lambda: run(memory_gib=None),
}  # fmt: skip
