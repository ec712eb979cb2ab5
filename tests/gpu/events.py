"""CUDA events against the wall clock, and the recorder's GPU times against both."""

from __future__ import annotations

import time
from typing import Any

from tests.gpu.parts import Outcome, Wish, cuda_problem

KERNEL_CYCLES = 200_000_000  # some 100 ms on today's devices
CLOSE = 0.05
RECORDED_CLOSE = 0.2
QUEUED_MS = 20.0
RECORDED = """
import time
import torch
from grpo_doctor_probes import phase, step

torch.cuda.init()
torch.cuda._sleep(1000)
torch.cuda.synchronize()
queued_ms = []
for number in range(5):
    with step(number):
        with phase("train"):
            begun = time.perf_counter()
            torch.cuda._sleep(CYCLES)
        queued_ms.append((time.perf_counter() - begun) * 1e3)
    torch.cuda.synchronize()
with step(5):
    pass
print(max(queued_ms))
"""


def run(wish: Wish, outcome: Outcome) -> None:
    """The same kernel by an event pair, by a synchronized host clock, and by the recorder."""
    if problem := cuda_problem():
        outcome.skips("events", problem)
        return
    event_ms, wall_ms = _kernel_ms()
    apart = abs(event_ms - wall_ms) / wall_ms
    outcome.says(
        "events against the wall",
        apart < CLOSE,
        f"{event_ms:.1f} ms by events, {wall_ms:.1f} ms by a synchronized clock",
    )
    _recorded(wish, outcome, event_ms)


def _kernel_ms() -> tuple[float, float]:
    import torch

    cuda: Any = torch.cuda  # what is used of it has no types
    cuda._sleep(1000)
    cuda.synchronize()
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    began = time.perf_counter()
    start.record()
    cuda._sleep(KERNEL_CYCLES)
    end.record()
    cuda.synchronize()
    return float(start.elapsed_time(end)), (time.perf_counter() - began) * 1e3


def _recorded(wish: Wish, outcome: Outcome, expected_ms: float) -> None:
    from tests.recording import read_rows, run_job, spans_file

    done = run_job(RECORDED.replace("CYCLES", str(KERNEL_CYCLES)), wish.folder / "run")
    if done.returncode:
        outcome.says("recorder", False, done.stderr[-400:])
        return
    rows = read_rows(spans_file(wish.folder / "run"))
    times_ms = [row.value for row in rows if row.kind == "cuda" and row.name == "train"]
    near_ms = [
        value for value in times_ms if abs(value - expected_ms) < RECORDED_CLOSE * expected_ms
    ]
    outcome.says(
        "the recorder's GPU times",
        len(near_ms) >= 4,
        f"{len(times_ms)} of 5 phases have one, {len(near_ms)} within 20% of {expected_ms:.1f} ms",
    )
    queued_ms = float(done.stdout)
    outcome.says(
        "a phase's end does not wait",
        queued_ms < QUEUED_MS,
        f"{queued_ms:.2f} ms at most to end a phase whose kernel takes {expected_ms:.0f} ms",
    )
