"""A job of which only the launcher is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.candidate import Candidate, Sink
from grpo_doctor.hang.decision.render.verdicts import judged, not_started, undecided
from grpo_doctor.hang.decision.state import stall_of
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.view import WaitHistory
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Evidence, Placement, PythonThread, Thread
from tests.evidence import FIRST_NS, SECOND, EvidenceBuilder, FakeProcess
from tests.unit.hang.causes.proposed import case_of
from tests.verdicts import REWARD

NOW_TICKS = FIRST_NS * 100 // SECOND


def launching(age_s: float, *, hosts: int = 2) -> tuple[EvidenceBuilder, FakeProcess]:
    """A launcher of so many hosts with two ranks each, and none of its ranks."""
    build = EvidenceBuilder(2)
    for rank in range(2):
        build.lose(rank)
    build.world = 2 * hosts
    build.local_ranks = 2
    build.missing = set(range(2 * hosts))
    launcher = build.child(0, "launcher", pid=50, parent=1)
    launcher.member = replace(
        launcher.member,
        rank=None,
        command="torchrun --nnodes 2 --rdzv-endpoint=node0:29500 train.py",
        started_ticks=int(NOW_TICKS - age_s * 100),
    )
    return build, launcher


def verdict_on(build: EvidenceBuilder) -> Verdict:
    return diagnose(build.build()).verdict


def test_a_host_that_does_not_come_is_waited_for_at_the_named_rendezvous() -> None:
    build, _ = launching(300)
    outcome = verdict_on(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == (
        "stuck",
        "rank-missing",
        (0, 1, 2, 3),
    )
    assert "at the rendezvous node0:29500 for the other host for 5 min" in outcome.summary
    assert "other hosts" in outcome.fixes[0].text


@pytest.mark.parametrize(
    ("age_s", "works", "hosts", "state", "cause"),
    [
        (120.0, False, 2, "slow", "rank-missing"),
        (120.5, False, 2, "stuck", "rank-missing"),
        (120.5, True, 2, "slow", "rank-missing"),
        (120.0, False, 1, "slow", ""),
        (120.5, False, 1, "stuck", "rank-missing"),
    ],
)
def test_ranks_are_waited_for_two_minutes(
    age_s: float, works: bool, hosts: int, state: str, cause: str
) -> None:
    build, launcher = launching(0, hosts=hosts)
    ticks = round((FIRST_NS / SECOND - age_s) * 100)
    launcher.member = replace(launcher.member, started_ticks=ticks)
    if works:
        launcher.works((), moves=False)
    evidence = build.build()
    first = replace(evidence, looks=evidence.looks[:1])
    view = case_of(evidence if works else first).view
    if works:
        view = replace(view, evidence=first)
    outcome = not_started(view, view.procs)
    assert (outcome.state, outcome.cause) == (state, cause)
    assert outcome.certainty == ("likely" if state == "stuck" and hosts > 1 else "possible")


@pytest.mark.parametrize(
    ("nodes", "placements", "text"),
    [
        (None, 1, "for the other host for"),  # by the numbers of ranks
        (None, 2, "was started"),
        (3, 1, "for 2 other hosts for"),
        (3, 2, "for the other host for"),
        (3, 3, "was started"),
    ],
)
def test_how_many_hosts_are_waited_for(nodes: int | None, placements: int, text: str) -> None:
    evidence = launching(300)[0].build()
    places = tuple(Placement(f"node{number}", nodes=nodes) for number in range(placements))
    diagnosis = diagnose(replace(evidence, job=replace(evidence.job, placements=places)))
    assert text in diagnosis.verdict.summary


# Who waits for whom, in a sentence.


def sentence_of(
    build: EvidenceBuilder, culprits: tuple[int, ...], victims: tuple[int, ...], **more: Any
) -> str:
    root = Candidate("lock-held", "is in a lock", (), Sink.LINE, culprits=culprits, **more)
    view = replace(case_of(build).view, wait_history=WaitHistory(None))
    return judged(view, root, "stuck", victims).summary


@pytest.mark.parametrize(
    ("culprits", "likewise", "victims", "text"),
    [
        ((1,), (), (), "Rank 1 is in a lock."),
        ((1,), (), (0, 2), "Rank 1 is in a lock; ranks 0, 2 wait for it in all_reduce."),
        ((1, 3), (), (0,), "Ranks 1, 3 are in a lock; rank 0 waits for them in all_reduce."),
        ((1,), (), (0, 9), "Rank 1 is in a lock; ranks 0, 9 wait for it in all_reduce."),
        ((1,), (), (9,), "Rank 1 is in a lock; rank 9 waits for it."),
        ((1, 2), (2,), (9,), "Rank 1 is in a lock; likewise rank 2; rank 9 waits for them."),
    ],
)
def test_the_victims_are_told_with_what_they_wait_in(
    culprits: tuple[int, ...], likewise: tuple[int, ...], victims: tuple[int, ...], text: str
) -> None:
    assert sentence_of(EvidenceBuilder(), culprits, victims, likewise=likewise) == text


# What does not say why.


def open_verdict(job: EvidenceBuilder | Evidence, waited_s: float | None = 10.0) -> Verdict:
    view = replace(case_of(job).view, wait_history=WaitHistory(waited_s, 0.1))
    return undecided(view, stall_of(view))


def test_a_rank_at_work_is_not_among_those_that_do_not_move() -> None:
    build = EvidenceBuilder(ranks=3)
    build.elsewhere(0, REWARD)
    build.elsewhere(1, REWARD).works(REWARD)
    outcome = open_verdict(build)
    assert (outcome.culprits, outcome.victims) == ((0,), (2,))
    assert outcome.confirm == ("py-spy dump --native --pid 100",)
    assert {item.rank for item in outcome.evidence} == {0}


@pytest.mark.parametrize(
    ("how", "state"),
    [("all here", "stuck"), ("some elsewhere", "slow"), ("one on its GPU", "slow")],
)
def test_what_may_be_at_work_unseen_is_given_the_time_of_work(how: str, state: str) -> None:
    build = EvidenceBuilder(ranks=3)
    if how == "some elsewhere":
        build.lose(2)
        build.local_ranks = 2
    elif how == "one on its GPU":
        process = build.elsewhere(2, REWARD)
        process.works(REWARD, moves=False)
        watchdog = Thread(902, "pt_nccl_watchdg", "S", last_ran_ns=1)
        process.threads = [(PythonThread(902, "", ()), watchdog)]
    assert open_verdict(build, 200.0).state == state
    assert open_verdict(build, 300.0).state == "stuck"


@pytest.mark.parametrize(
    ("answered", "recorded", "off"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_recorders_that_answer_and_have_nothing_are_off(
    answered: bool, recorded: bool, off: bool
) -> None:
    evidence = EvidenceBuilder(ranks=2).build()
    empty = b'{"version": "2.10", "entries": []}'
    dumps = tuple(
        dump if recorded else replace(dump, data=empty if answered else b"")
        for dump in evidence.dumps
    )
    fixes = open_verdict(replace(evidence, dumps=dumps)).fixes
    assert fixes == advice("recorders off") * off
