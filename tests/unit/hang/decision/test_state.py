"""One look, as Ctrl-C between the looks leaves it: nobody is stuck but who can be nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.causes.candidate import Candidate, Liveness, Sink
from grpo_doctor.hang.decision.state import as_of_one_look, state_of
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor.hang.model.view import WaitHistory
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor.hang.verdict import State, Verdict
from grpo_doctor_probes.evidence import Blocked, Evidence, Frame
from tests.evidence import EvidenceBuilder, collective, frames, with_look
from tests.unit.hang.causes.proposed import case_of
from tests.verdicts import REWARD, UPDATE


def once(evidence: Evidence) -> Verdict:
    first = replace(
        evidence, looks=evidence.looks[:1], stacks=evidence.stacks[:1], limits=evidence.limits[:1]
    )
    return diagnose(first).verdict


def hang() -> EvidenceBuilder:
    build = EvidenceBuilder()
    build.rank(3).stack = frames("reward /home/me/rewards.py:31", "main /home/me/train.py:9")
    return build


@pytest.mark.parametrize("state", ["T", "t"])
def test_who_is_stopped_is_stopped_in_one_look(state: str) -> None:
    build = EvidenceBuilder()
    build.rank(3).state = state
    outcome = once(build.build())
    assert (outcome.state, outcome.culprits) == ("stuck", (3,))


@pytest.mark.parametrize(
    ("state", "cause", "looks", "certain", "as_it_is"),
    [
        ("stuck", "lock-held", 1, False, False),
        ("stuck", "lock-held", 2, False, True),
        ("stuck", "lock-held", 1, True, True),
        ("dead", "rank-dead", 1, False, False),
        ("slow", "lock-held", 1, False, False),
        ("stuck", "", 1, False, False),
    ],
)
def test_what_one_look_leaves_of_a_verdict(
    state: State, cause: str, looks: int, certain: bool, as_it_is: bool
) -> None:
    evidence = hang().build()
    view = case_of(replace(evidence, looks=evidence.looks[:looks])).view
    outcome = Verdict(state=state, cause=cause, certainty="proven", summary="Rank 1 stands.")
    sink = Sink.PROCESS if certain else Sink.LINE
    root = Candidate(cause, "", (), sink, "never-wakes", culprits=(1,))
    softened = as_of_one_look(view, outcome, root)
    if as_it_is:
        assert softened == outcome
    else:
        assert (softened.state, softened.certainty) == ("slow", "possible")
        has_cause = state in ("stuck", "dead") and cause != ""
        assert softened.summary == (
            "Rank 1 stands, judging by a single sample."
            if has_cause
            else "Only one sample was taken, which cannot show whether the job makes progress."
        )


# What can still move a root, and how long that may take.

CULPRIT, HELPER, WORKER = 1, 300, 301


def state(
    build: EvidenceBuilder | Evidence,
    liveness: Liveness = "unseen",
    *,
    sink: Sink = Sink.LINE,
    node: int | None = None,
    still_s: float | None = 10.0,
    waited_s: float | None = 10.0,
) -> State:
    """Of a root of rank 1. The history of the job has no longer pause than 0.1 s."""
    view = replace(case_of(build).view, wait_history=WaitHistory(waited_s, 0.1))
    root = Candidate(
        "user-code-blocked",
        "",
        (),
        sink,
        liveness,
        culprits=(CULPRIT,),
        node=ProcessNode(node) if node is not None else None,
        still_s=still_s,
    )
    return state_of(view, waits.build(view), root)


def stands(stack: tuple[Frame, ...] = UPDATE, **more: Any) -> EvidenceBuilder:
    build = EvidenceBuilder()
    process = build.elsewhere(CULPRIT, stack)
    for name, value in more.items():
        setattr(process, name, value)
    return build


@pytest.mark.parametrize(
    ("liveness", "sink", "own_s", "expected"),
    [
        ("progressing", Sink.LINE, 900.0, "slow"),
        ("never-wakes", Sink.LINE, 3.0, "stuck"),
        ("never-wakes", Sink.LINE, 2.9, "slow"),
        ("never-wakes", Sink.PROCESS, 0.1, "stuck"),  # the state of a process proves it
        ("dead", Sink.PROCESS, 0.1, "dead"),
        ("dead", Sink.ENDED, 3.0, "dead"),
        ("dead", Sink.ENDED, 2.9, "slow"),
    ],
)
def test_where_nothing_can_move_it_three_seconds_are_enough(
    liveness: Liveness, sink: Sink, own_s: float, expected: State
) -> None:
    verdict_state = state(stands(), liveness, sink=sink, still_s=own_s, waited_s=1.0)
    assert verdict_state == expected


def test_of_who_polls_the_wait_of_the_others_counts() -> None:
    assert state(stands(), "never-wakes", still_s=0.1, waited_s=4.0) == "slow"
    assert state(stands(wakes=5), "never-wakes", still_s=0.1, waited_s=4.0) == "stuck"
    assert state(stands(), "never-wakes", still_s=None, waited_s=4.0) == "stuck"


@pytest.mark.parametrize(
    ("silent_s", "waited_s", "expected"),
    [
        (5.0, 10.0, "stuck"),  # asleep: five seconds are unusual here
        (4.5, 10.0, "slow"),  # who asks often may get an answer
        (4.5, 59.0, "slow"),
        (4.5, 60.0, "stuck"),
    ],
)
def test_who_has_run_in_the_last_five_seconds_may_get_on(
    silent_s: float, waited_s: float, expected: State
) -> None:
    build = stands(still_s=silent_s)
    assert state(build, still_s=silent_s, waited_s=waited_s) == expected


@pytest.mark.parametrize(
    ("liveness", "waited_s", "expected"),
    [
        ("outside", 59.0, "slow"),
        ("outside", 60.0, "stuck"),
        ("computing", 299.0, "slow"),
        ("computing", 300.0, "stuck"),
        ("unseen", 5.0, "stuck"),
    ],
)
def test_how_long_a_wait_may_take_by_who_may_end_it(
    liveness: Liveness, waited_s: float, expected: State
) -> None:
    build = stands(still_s=waited_s)
    assert state(build, liveness, still_s=waited_s, waited_s=waited_s) == expected


# Helpers at work.


def asks_helper() -> EvidenceBuilder:
    build = stands()
    build.rank(CULPRIT).blocks("pipe-read", "pipe:[7]", HELPER, peers_known=True)
    build.child(CULPRIT, "helper", pid=HELPER)
    return build


@pytest.mark.parametrize(
    ("how", "node", "expected"),
    [
        ("asleep", None, "stuck"),
        ("works", None, "slow"),
        ("ended meanwhile", None, "slow"),
        ("works", HELPER, "stuck"),  # it is the root itself, of which more is known
        ("worker of it works", None, "slow"),
        ("worker that waits for it works", HELPER, "stuck"),
        ("another helper works", None, "stuck"),
    ],
)
def test_a_proof_does_not_hold_while_a_process_that_it_waits_for_gets_on(
    how: str, node: int | None, expected: State
) -> None:
    build = asks_helper()
    helper = build.processes[HELPER]
    if how == "works":
        helper.works(REWARD)
    elif how == "worker of it works":
        helper.blocks("pipe-read", "pipe:[8]", WORKER, peers_known=True)
        build.child(CULPRIT, "helper", pid=WORKER, parent=HELPER).works(REWARD)
    elif how == "worker that waits for it works":
        build.rank(CULPRIT).blocks("pipe-read", "pipe:[8]", WORKER, peers_known=True)
        worker = build.child(CULPRIT, "helper", pid=WORKER)
        worker.works(REWARD)
        worker.blocks("pipe-read", "pipe:[9]", HELPER, peers_known=True)
    elif how == "another helper works":
        build.child(CULPRIT, "helper", pid=WORKER).works(REWARD)
    evidence = build.build()
    if how == "ended meanwhile":
        evidence = with_look(evidence, 1, HELPER)
    assert state(evidence, "never-wakes", node=node) == expected


def test_a_rank_at_work_is_no_helper_of_another() -> None:
    build = stands()
    build.elsewhere(2, REWARD).works(REWARD)
    build.rank(CULPRIT).blocks("pipe-read", "pipe:[7]", 102, peers_known=True)
    assert state(build, "never-wakes") == "stuck"


@pytest.mark.parametrize(
    ("in_cpp", "other", "expected"),
    [
        (True, "works", "slow"),
        (False, "works", "stuck"),
        (True, "waits", "stuck"),
        (True, "burns a core in a collective", "stuck"),
        (True, "sleeps", "stuck"),
    ],
)
def test_a_wait_in_c_may_be_one_for_a_rank_at_work(
    in_cpp: bool, other: str, expected: State
) -> None:
    build = stands()
    if other == "works":
        build.elsewhere(2, REWARD).works(REWARD)
    elif other == "burns a core in a collective":
        build.rank(2).works(collective("all_reduce"), moves=False)
    elif other == "sleeps":
        build.elsewhere(2, REWARD)
    if in_cpp:  # under its own line, with a time limit, which may be for another rank
        build.rank(CULPRIT).blocks("futex")
        build.rank(CULPRIT).arguments = (1, 393, 0, 0x7FFE)
    assert state(build, "never-wakes") == expected


# Work that may take minutes.

SAVES = frames("write /home/me/t.py:3", "save_checkpoint /home/me/t.py:8")
ASKS = frames(
    "readinto /usr/lib/python3.11/socket.py:706",
    "urlopen /usr/lib/python3.11/urllib/request.py:216",
    "save_checkpoint /home/me/t.py:8",
)


@pytest.mark.parametrize(
    ("stack", "wakes", "hold", "sink", "expected"),
    [
        (SAVES, 5, None, Sink.LINE, "slow"),  # something moves
        (SAVES, 0, None, Sink.LINE, "stuck"),
        (ASKS, 0, None, Sink.LINE, "slow"),  # the answer comes from elsewhere
        (SAVES, 0, ("socket-receive", 4711), Sink.LINE, "slow"),
        (SAVES, 0, ("socket-receive", 102), Sink.LINE, "stuck"),  # from a rank that waits itself
        (SAVES, 0, ("socket-receive", 103), Sink.LINE, "slow"),
        (SAVES, 0, ("socket-receive", None), Sink.LINE, "slow"),
        (SAVES, 0, ("pipe-read", 4711), Sink.LINE, "stuck"),
        (SAVES, 5, None, Sink.HELPER, "stuck"),  # it waits for a process of its own
        (UPDATE, 5, None, Sink.LINE, "stuck"),
    ],
)
def test_long_work_is_believed_where_something_moves_or_an_answer_may_come(
    stack: tuple[Frame, ...],
    wakes: int,
    hold: tuple[Any, int | None] | None,
    sink: Sink,
    expected: State,
) -> None:
    build = stands(stack, wakes=wakes, still_s=100.0)
    build.elsewhere(3, UPDATE)
    if hold is not None:
        kind, peer = hold
        peers = () if peer is None else (peer,)
        build.rank(CULPRIT).blocked.append(Blocked(101, 101, kind, peers=peers))
    assert state(build, sink=sink, still_s=100.0, waited_s=100.0) == expected


def test_a_stopped_rank_is_in_no_long_work() -> None:
    build = stands(SAVES, still_s=100.0)
    build.rank(CULPRIT).state = "T"
    assert state(build, sink=Sink.LINE, still_s=100.0, waited_s=100.0) == "stuck"
