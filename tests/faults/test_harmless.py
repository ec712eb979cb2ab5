"""An attach changes nothing about the job, however many there are and whenever they come."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.attach import attach, command
from tests.faults.bench import fork_server
from tests.faults.events import count, wait_for
from tests.faults.healthy import CALM
from tests.faults.jobs import ForkServer, Job, started
from tests.faults.rank import HEALTHY_STEPS, Spec

pytest.importorskip("torch", reason="needs torch")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]
RANKS = 2
STEPS = 1_000  # a job that is still there when an attach on a busy machine has started
NO_JOB = 5
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with fork_server() as forks:
        yield forks


def spec(steps: int) -> Spec:
    return Spec("", RANKS, 0, step=HEALTHY_STEPS, steps=steps, pace_s=0.005)


def digests(job: Job) -> set[str]:
    """Of the weights at the end, on every rank."""
    events = wait_for(
        job.folder,
        lambda events: count(events, "result") == RANKS,
        "the end of training",
        PATIENCE_S,
    )
    return {event.more["digest"] for event in events if event.name == "result"}


def test_results_are_equal_bit_for_bit_with_and_without_attaches(server: ForkServer) -> None:
    with started(server, spec(STEPS)) as job:
        alone = digests(job)
    with started(server, spec(STEPS)) as job:
        job.await_healthy()
        looked_at = [attach(str(job.pids[rank])) for rank in (0, 1)]
        assert digests(job) == alone
    assert len(alone) == 1
    assert any(answer.state for answer in looked_at), looked_at


def test_two_attaches_at_once_both_answer(server: ForkServer) -> None:
    with started(server, spec(10**9)) as job:
        job.await_healthy()
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(attach, map(str, job.pids.values())))
    assert [answer.state in CALM for answer in answers] == [True, True], answers


def test_a_job_that_ends_meanwhile_is_no_crash(server: ForkServer) -> None:
    with started(server, spec(HEALTHY_STEPS + 40)) as job:
        job.await_healthy()
        code, out, err, _ = command("attach", "--json", "--seconds", "3", str(job.pids[0]))
    assert code in {0, 3, NO_JOB}, out + err
    assert "Traceback" not in err
