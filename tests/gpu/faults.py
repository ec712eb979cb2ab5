"""Real faults in a job whose ranks share one card, and what `grpo-doctor attach --json` says."""

from __future__ import annotations

from dataclasses import dataclass

from tests.gpu.asked import attach
from tests.gpu.job import JobError, RunningJob, job
from tests.gpu.parts import Outcome, Wish, cuda_problem

FEWEST = 2  # one to hurt and one to wait for it


@dataclass(frozen=True)
class Truth:
    """What must be said: one of the states, and these ranks, or in any case none but these."""

    fault: str
    states: tuple[str, ...]
    culprits: tuple[int, ...]


TRUTHS = (
    Truth("healthy", ("healthy",), ()),
    Truth("host-stalled", ("stuck", "slow"), (2,)),
    Truth("collective-skipped", ("stuck", "slow"), (1,)),
    Truth("order-swapped", ("stuck", "slow"), (3,)),
    Truth("stopped", ("stuck",), (2,)),
    Truth("killed", ("stuck", "dead"), (1,)),
)


def run(wish: Wish, outcome: Outcome) -> None:
    """Each fault in a job of its own."""
    problem = "" if wish.dry else cuda_problem()
    for truth in TRUTHS:
        if wish.cases and truth.fault not in wish.cases:
            continue
        if problem:
            outcome.skips(truth.fault, problem)
            continue
        try:
            _judge(truth, wish, outcome)
        except JobError as error:
            outcome.says(truth.fault, False, f"the job failed: {str(error)[-900:]}")


def _judge(truth: Truth, wish: Wish, outcome: Outcome) -> None:
    backend = "gloo" if wish.dry else "nccl"
    folder = wish.folder / truth.fault
    if wish.ranks < FEWEST:
        raise ValueError(f"a fault needs {FEWEST} ranks or more, not {wish.ranks}")
    with job(truth.fault, folder, ranks=wish.ranks, backend=backend) as running:
        running.come_to_the_fault()
        answer = None
        if other_ranks := _others(running, truth):
            keep = wish.keep / f"{truth.fault}.tar.gz" if wish.keep else None
            answer = attach(running.pids[other_ranks[0]], keep)
        if answer is None or (answer.error and not _others(running, truth)):
            outcome.skips(truth.fault, "the other ranks have ended by themselves")
            return
    right = answer.state in truth.states and answer.culprits == truth.culprits
    outcome.says(truth.fault, right, answer.text)


def _others(running: RunningJob, truth: Truth) -> list[int]:
    """The unhurt ranks that live."""
    return [rank for rank in running.living() if rank not in truth.culprits]
