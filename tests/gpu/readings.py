"""NVML's numbers under loads that are known: nothing, arithmetic, and a kernel that only spins.

A kernel that spins, on one SM, is what a GPU does that waits in a collective.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

from grpo_doctor.hang.model.gpus import judge_gpus
from grpo_doctor_probes.evidence import Evidence, GpuHolder, GpuLook, Job, Member
from grpo_doctor_probes.look.gpus import gpus
from tests.gpu.parts import Outcome, Wish, cuda_problem

SETTLES_S = 4.0  # power is a mean over a second, and a GPU takes a moment to cool down
BETWEEN_S = 1.2
LOADS = {
    "idle": "time.sleep(60)",
    "computes": """
while True:
    for _ in range(50):
        x = (x @ x).clamp_(-1, 1)
    torch.cuda.synchronize()
""",
    "waits-in-kernel": """
while True:
    torch.cuda._sleep(2_000_000_000)
    torch.cuda.synchronize()
""",
}
PROGRAM = """
import time, torch
x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
print("ready", flush=True)
"""


def run(wish: Wish, outcome: Outcome) -> None:
    """Each load, and what is said of the GPU under it."""
    if problem := cuda_problem():
        outcome.skips("loads", problem)
        return
    before = gpus()
    if not before or before[0].silent_s:
        outcome.says("NVML", False, f"it shows no GPU: {before}")
        return
    first = before[0]
    outcome.says(
        "NVML",
        first.power_limit_w is not None and bool(first.bus_id),
        f"{first.name}, {first.power_limit_w} W, {first.sm_max_mhz} MHz, {first.bus_id}, "
        f"ECC {first.ecc_uncorrected}, NVLink errors {first.nvlink_errors}",
    )
    for expected, load in LOADS.items():
        _under(expected, load, outcome)


def _under(expected: str, load: str, outcome: Outcome) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + load], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"ready":
            outcome.says(expected, False, f"the load did not start ({process.wait(30)})")
            return
        time.sleep(SETTLES_S)
        began = time.monotonic()
        looks = [gpus()]
        took_s = time.monotonic() - began
        time.sleep(BETWEEN_S)
        looks.append(gpus())
    finally:
        process.kill()
        process.wait(60)
    samples = [next((gpu for gpu in look if process.pid in gpu.pids), look[0]) for look in looks]
    judgement = judge_gpus(_evidence(process.pid, samples))
    listed = all(process.pid in gpu.pids for gpu in samples)
    outcome.says(
        expected,
        judgement.of(0) == expected,
        f"said {judgement.of(0)}; {_numbers(samples[0])}; then {_numbers(samples[1])}; a look took "
        f"{took_s:.1f} s; {'listed' if listed else 'not listed'} by its process number",
    )


def _evidence(pid: int, looks: list[GpuLook]) -> Evidence:
    member = Member(pid, os.getpid(), 0, "rank", "load", "load", rank=0)
    rows = tuple((_held(gpu, pid),) for gpu in looks)
    return Evidence(Job("here", (member,), world_size=1), time.time_ns(), gpus=rows)


def _held(gpu: GpuLook, pid: int) -> GpuLook:
    return replace(gpu, holders=(GpuHolder(pid),))


def _numbers(gpu: GpuLook) -> str:
    parts = [f"{gpu.utilization_pct}%", f"{gpu.power_w} of {gpu.power_limit_w} W"]
    parts += [f"{gpu.sm_mhz} MHz"]
    if gpu.sm_active_pct is not None:
        parts.append(f"SMs {gpu.sm_active_pct:.1f}%")
    return ", ".join(parts)
