"""Which track (`tid`) of its process a span is drawn on.

1 phases of the step's thread, 2 its collectives, 3 its GPU time; 10 and up other threads' spans,
200 and up their collectives, 300 and up their GPU time; 1000 and up overflow of the lane below.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.model import Kind

PHASES, COLLECTIVES, GPU_TIME = 1, 2, 3
THREADS, THREAD_COLLECTIVES, THREAD_GPU_TIME = 10, 200, 300
OVERFLOW = 1000
CATEGORIES = {
    Kind.SPAN: "grpo.phase",
    Kind.STEP: "grpo.step",
    Kind.INSTANT: "grpo.instant",
    Kind.COLLECTIVE: "grpo.collective",
    Kind.COLLECTIVE_WAIT: "grpo.wait",
    Kind.CUDA_SPAN: "grpo.gpu",
}


def lanes_of(kind: NDArray[np.uint8], thread: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the track of each row, before overflow."""
    collective = (kind == Kind.COLLECTIVE) | (kind == Kind.COLLECTIVE_WAIT)
    gpu = kind == Kind.CUDA_SPAN
    main = np.select([collective, gpu], [COLLECTIVES, GPU_TIME], PHASES)
    other = np.select([collective, gpu], [THREAD_COLLECTIVES, THREAD_GPU_TIME], THREADS)
    return np.where(thread == 0, main, other + thread).astype(np.int32)


def title(lane: int) -> str:
    """Return what a track is called in Perfetto."""
    base, overflow = lane % OVERFLOW, lane // OVERFLOW
    if base >= THREAD_GPU_TIME:
        name = f"thread {base - THREAD_GPU_TIME} GPU time"
    elif base >= THREAD_COLLECTIVES:
        name = f"thread {base - THREAD_COLLECTIVES} collectives"
    elif base >= THREADS:
        name = f"thread {base - THREADS}"
    else:
        name = {PHASES: "steps and phases", COLLECTIVES: "collectives", GPU_TIME: "GPU time"}[base]
    return f"{name} (overlapping {overflow})" if overflow else name
