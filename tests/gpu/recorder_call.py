"""What `attach` leaves behind: GPU memory before and after it, and a job that goes on.

A call into a rank that asked CUDA would open a context, of half a gigabyte, on GPU 0.
"""

from __future__ import annotations

from grpo_doctor_probes.look.gpus import gpus
from tests.gpu.asked import attach
from tests.gpu.job import JobError, RunningJob, job
from tests.gpu.parts import Outcome, Wish, cuda_problem
from tests.gpu.rank import DONE_STEPS, FAULT_STEP, GOES_ON

MOST_GROWTH_BYTES = 64 << 20
ENDS_S = 120.0
ATTACHES = 3


def run(wish: Wish, outcome: Outcome) -> None:
    """Attach several times to a job that stands, then let it go on."""
    if not wish.dry and (problem := cuda_problem()):
        outcome.skips("recorder call", problem)
        return
    backend = "gloo" if wish.dry else "nccl"
    try:
        with job("paused", wish.folder / "job", ranks=wish.ranks, backend=backend) as running:
            _look(running, outcome, on_gpu=not wish.dry)
    except JobError as error:
        outcome.says("the job goes on", False, str(error)[-900:])


def _look(running: RunningJob, outcome: Outcome, *, on_gpu: bool) -> None:
    running.come_to_the_fault()
    before = _memory() if on_gpu else {}
    answers = [attach(running.pids[0]) for _ in range(ATTACHES)]
    after = _memory() if on_gpu else {}
    if on_gpu:
        grown = {index: after.get(index, 0) - used for index, used in before.items()}
        outcome.says(
            "GPU memory",
            bool(grown) and max(grown.values()) < MOST_GROWTH_BYTES,
            "; ".join(
                f"GPU {index}: {before[index] / 2**20:.0f} MiB before, {by / 2**20:+.0f} MiB after"
                for index, by in grown.items()
            ),
        )
    else:
        outcome.skips("GPU memory", "there is no GPU in a dry run")
    texts = [answer.error or f"{answer.state} {answer.culprits}" for answer in answers]
    (running.folder / GOES_ON).touch()
    ranks = range(len(running.ranks))
    last = FAULT_STEP + DONE_STEPS - 1
    running.wait(
        lambda: all(running.step(rank) >= last for rank in ranks), ENDS_S, "it did not end"
    )
    codes = [process.wait(60) for process in running.ranks]
    outcome.says(
        "the job goes on",
        not any(codes) and not any(answer.error for answer in answers),
        f"after {ATTACHES} attaches ({'; '.join(texts)}) it did its last {DONE_STEPS} steps and "
        f"ended with {codes}",
    )


def _memory() -> dict[int, int]:
    return {gpu.index: gpu.memory_used_bytes for gpu in gpus() if gpu.memory_used_bytes is not None}
