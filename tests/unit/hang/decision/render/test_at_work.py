"""The words on jobs that get on, or may: waking up from a time-out is no progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.decision.render.verdicts import healthy, slow_work
from grpo_doctor.hang.decision.state import stall_of
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.view import WaitHistory
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import FlightDump, Frame, PythonThread, Thread
from tests.evidence import EvidenceBuilder, collective, frames
from tests.unit.hang.causes.proposed import case_of
from tests.verdicts import REWARD, UPDATE, verdict

LOOP = frames("select /usr/lib/python3.11/selectors.py:468", "play /home/me/agents.py:40")


def ticking(*, share: float = 0.0) -> EvidenceBuilder:
    """All ranks wake five times a second; `share` of a core is what they do then."""
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        process = build.elsewhere(rank, LOOP)
        process.still_s, process.wakes, process.cpu_share = 0.1, 6, share
    return build


def test_ranks_that_only_wake_up_are_not_called_healthy() -> None:
    outcome = verdict(ticking())
    assert (outcome.state, outcome.culprits) == ("slow", ())
    assert "they woke now and then and did nothing" in outcome.summary


def test_a_wait_that_is_long_for_the_job_and_may_end_is_not_called_usual() -> None:
    build = EvidenceBuilder()
    build.waited_s = 40.0
    asks = build.elsewhere(1, frames("sleep_on /home/me/t.py:3", "clip /home/me/train.py:31"))
    asks.still_s, asks.wakes = 0.1, 9
    asks.blocks("sleep")
    outcome = verdict(build)
    assert outcome.state == "slow"
    assert "40 s; longest previous wait was 0.1 s; it may end" in outcome.summary


def words(build: EvidenceBuilder, waited_s: float | None = 0.4) -> Verdict:
    """Of a job in which nothing stands for longer than a moment."""
    case = case_of(build)
    return healthy(replace(case.view, wait_history=WaitHistory(waited_s)), case.graph)


def working(ranks: int, at_work: int) -> EvidenceBuilder:
    """So many of the ranks are at work in their rewards, the others in a collective."""
    build = EvidenceBuilder(ranks=ranks, recorded=False)
    for rank in range(ranks):
        build.rank(rank).still_s = 0.4
        if rank < at_work:
            build.rank(rank).works(REWARD)
    return build


@pytest.mark.parametrize(
    ("ranks", "at_work", "text"),
    [
        (1, 1, "the only rank made progress between two samples"),
        (2, 2, "both ranks made progress between two samples"),
        (4, 4, "all 4 ranks made progress between two samples"),
        (
            4,
            3,
            ("3 of 4 ranks made progress between two samples, the others have waited for 0.4 s"),
        ),
        (
            2,
            1,
            ("1 of 2 ranks made progress between two samples, the others have waited for 0.4 s"),
        ),
    ],
)
def test_how_many_got_on(ranks: int, at_work: int, text: str) -> None:
    sentence = words(working(ranks, at_work))
    assert (sentence.state, sentence.summary) == ("healthy", f"The job is healthy: {text}.")


@pytest.mark.parametrize("recorded", [True, False])
def test_a_recorder_that_never_stands_still_shows_progress(recorded: bool) -> None:
    build = working(2, 0)
    build.rank(0).wakes = build.rank(1).wakes = 60
    dump = FlightDump("memory", 0, 100, problem="busy", recorded_meanwhile=recorded)
    said = diagnose(replace(build.build(), dumps=(dump,))).verdict
    assert (said.state == "healthy") is recorded
    assert ("started collectives between two samples" in said.summary) is recorded


@pytest.mark.parametrize(
    ("stack", "wakes", "share", "threads", "progressed"),
    [
        (collective("all_reduce"), 50, 0.1, (), True),
        (collective("all_reduce"), 50, 0.0, (), False),  # it woke and did nothing
        (collective("all_reduce"), 0, 0.1, (), False),  # it did not wake
        (UPDATE, 50, 0.1, (), False),  # nobody else wakes it
        (collective("all_reduce"), 50, 0.1, ("pt_nccl_watchdg",), False),  # its GPU may
    ],
)
def test_a_host_that_others_wake_in_a_collective_gets_on(
    stack: tuple[Frame, ...], wakes: int, share: float, threads: tuple[str, ...], progressed: bool
) -> None:
    build = EvidenceBuilder(ranks=2, recorded=False)
    for rank in (0, 1):
        process = build.rank(rank)
        process.stack, process.still_s = stack, 0.1
        process.wakes, process.cpu_share = wakes, share
        for number, name in enumerate(threads):
            shown = PythonThread(900 + number, "", ())
            process.threads.append((shown, Thread(900 + number, name, "S", last_ran_ns=1)))
    assert (words(build).state == "healthy") is progressed


# Ranks at work for which others wait.

SAVES = frames("write /home/me/t.py:3", "save_checkpoint /home/me/t.py:8")


def slow(
    stack: tuple[Frame, ...],
    *,
    moves: bool = True,
    others_wait: bool = True,
    waited_s: float | None = 400.0,
    written_bytes: int = 0,
) -> Verdict:
    build = EvidenceBuilder(ranks=3)
    for rank in range(3):
        build.elsewhere(rank, stack).works(stack)
    if others_wait:
        build = EvidenceBuilder(ranks=3)
        build.elsewhere(1, stack).works(stack, moves=moves)
    build.rank(1).written_bytes = written_bytes
    case = case_of(build)
    view = replace(case.view, wait_history=WaitHistory(waited_s, 0.1))
    return slow_work(view, stall_of(view))


@pytest.mark.parametrize(
    ("stack", "moves", "waited_s", "cause"),
    [
        (REWARD, True, 400.0, "reward-busy"),
        (REWARD, True, 4.0, ""),  # not yet unusual
        (SAVES, True, 400.0, ""),  # it takes long
        (SAVES, False, 400.0, "user-code-busy"),  # but not at one line
        (UPDATE, True, 400.0, "user-code-busy"),
    ],
)
def test_work_has_a_class_where_it_holds_others_up_for_an_unusual_time(
    stack: tuple[Frame, ...], moves: bool, waited_s: float, cause: str
) -> None:
    assert slow(stack, moves=moves, waited_s=waited_s).cause == cause


def test_work_that_nobody_waits_for_has_none() -> None:
    outcome = slow(REWARD, others_wait=False)
    assert (outcome.cause, outcome.culprits, outcome.victims) == ("", (0, 1, 2), ())
    assert outcome.summary.startswith("Slow, not stuck: ranks 0-2 compute rewards in reward")
    assert "wait" not in outcome.summary
