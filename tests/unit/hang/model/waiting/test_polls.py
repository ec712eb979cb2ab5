"""Ranks that ask, sleep and ask again: a wait as old as the job's last collective."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import CallArguments, Frame, PythonThread, Thread
from tests.evidence import UNIX_NS, EvidenceBuilder, collective, frames

MARKER = frames("wait_for_marker /home/me/train.py:13", "main /home/me/train.py:55")
QUEUE = frames(
    "wait /usr/lib/python3.11/threading.py:331",
    "get /usr/lib/python3.11/queue.py:180",
    "take_rollouts /home/me/train.py:22",
)
ASKED_S = 130.0


def _polling(stack: tuple[Frame, ...], asked_s: float = ASKED_S) -> EvidenceBuilder:
    """Both ranks are back at their line in each sample; the last collective is done."""
    build = EvidenceBuilder(ranks=2)
    build.waited_s = asked_s
    for rank in range(2):
        process = build.rank(rank)
        process.stack, process.wakes, process.still_s = stack, 4, 0.3
        if stack is MARKER:
            process.blocks("sleep")
        build.calls(rank, "all_reduce", done=True)
    return build


def _verdict(build: EvidenceBuilder) -> Verdict:
    evidence = build.build()
    # A live job's calls all lie before the visit.
    return diagnose(replace(evidence, taken_unix_ns=UNIX_NS)).verdict


@pytest.mark.parametrize("stack", [MARKER, QUEUE])
def test_it_is_stuck_once_far_longer_than_the_jobs_steps(stack: tuple[Frame, ...]) -> None:
    outcome = _verdict(_polling(stack))
    assert (outcome.state, outcome.cause, outcome.culprits) == (
        "stuck",
        "user-code-blocked",
        (0, 1),
    )
    assert "train.py:13" in outcome.summary or "train.py:22" in outcome.summary
    assert any("waiting for 2 min" in item.text for item in outcome.evidence)


@pytest.mark.parametrize("asked_s", [5.0, 59.0])
def test_it_is_slow_until_then(asked_s: float) -> None:
    assert _verdict(_polling(MARKER, asked_s)).state == "slow"


def test_what_is_asked_for_is_named() -> None:
    build = _polling(MARKER)
    build.arguments = [CallArguments(100, "wait_for_marker", {"path": "/data/weights.done"})]
    assert "(path /data/weights.done)" in _verdict(build).summary


def test_a_queue_that_no_thread_can_fill() -> None:
    assert (
        "which no other Python thread of the process can fill" in _verdict(_polling(QUEUE)).summary
    )
    build = _polling(QUEUE)
    for rank in range(2):
        task = Thread(900 + rank, "producer", "S", "futex_do_wait", last_ran_ns=1)
        producer = PythonThread(900 + rank, "producer", frames("produce /home/me/train.py:31"))
        build.rank(rank).threads = [(producer, task)]
    outcome = _verdict(build)
    assert outcome.state == "stuck"
    assert "no other Python thread" not in outcome.summary


@pytest.mark.parametrize(
    ("stack", "wakes", "again"),
    [
        (MARKER, 4, True),
        (MARKER, 0, False),  # one long sleep
        (QUEUE, 4, False),  # its innermost line is a library's
        (collective("all_reduce"), 4, False),
    ],
)
def test_a_line_of_its_own_that_sleeps_again_and_again(
    stack: tuple[Frame, ...], wakes: int, again: bool
) -> None:
    polling = _polling(MARKER)
    polling.rank(0).stack, polling.rank(0).wakes = stack, wakes
    assert tasks.asks_again(view.build(polling.build()).by_rank[0]) is again
