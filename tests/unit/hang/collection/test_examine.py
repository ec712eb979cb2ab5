"""What a job is asked at a visit, in which order, and what it is spared."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor.hang.collection.examine import ExamineOptions, examine_dumps, examine_job
from grpo_doctor.hang.model.view import JobView, build
from grpo_doctor.hang.wants import MOST_SAMPLES
from grpo_doctor_probes.evidence import Evidence, Role, Stack
from tests.evidence import BETWEEN_S, FIRST_NS, SECOND, TORCH, EvidenceBuilder, collective, frames
from tests.unit.hang.collection.played import Play, Played

WISHES = ExamineOptions(seconds_between=1.5, at_most_s=60.0)
REWARD = frames("score /home/me/rewards.py:5", "main /home/me/train.py:9")
AT_LOOK = [FIRST_NS + int(number * BETWEEN_S * SECOND) for number in range(3)]


def examine(played: Played, wishes: ExamineOptions = WISHES) -> Evidence:
    return examine_job(played.job, wishes, played.say)


def works(ranks: int = 2) -> EvidenceBuilder:
    build = EvidenceBuilder(ranks=ranks)
    for rank in range(ranks):
        build.rank(rank).works(REWARD)
    return build


def stands(ranks: int = 2) -> EvidenceBuilder:
    """The last rank sleeps in its rewards, the others wait for it."""
    build = EvidenceBuilder(ranks=ranks)
    build.elsewhere(ranks - 1, REWARD)
    return build


# Whom it looks at.


@pytest.mark.parametrize(
    ("role", "with_engine", "becomes"),
    [
        ("helper", True, "server"),
        ("reward", True, "server"),
        ("helper", False, "helper"),
        ("reward", False, "reward"),
        ("dataloader", True, "dataloader"),
        ("launcher", True, "launcher"),
    ],
)
def test_who_started_an_engine_answers_for_it(
    role: Role, with_engine: bool, becomes: Role, play: Play
) -> None:
    build = works()
    build.child(0, role, pid=200)
    build.child(0, "engine" if with_engine else "helper", pid=300, parent=200)
    build.child(1, "helper", pid=301, parent=101)
    roles = {member.pid: member.role for member in examine(play(build)).job.members}
    assert roles[200] == becomes
    assert (roles[100], roles[101], roles[301]) == ("rank", "rank", "helper")


@pytest.mark.parametrize(
    ("look_s", "slept", "messages"),
    [(0.5, [1.0], ["second sample in 1.0 s"]), (1.5, [], []), (2.0, [], [])],
)
def test_what_a_look_takes_is_part_of_the_time_between_two(
    look_s: float, slept: list[float], messages: list[str], play: Play
) -> None:
    played = play(works())
    played.look_s = look_s
    evidence = examine(played)
    assert played.clock.slept == slept
    assert played.messages == ["inspecting 2 ranks", *messages]
    assert evidence.cost.seconds == 2 * look_s + sum(slept)


def test_a_visit_that_is_interrupted_tells_what_it_has_seen(play: Play) -> None:
    played = play(stands())
    played.interrupted = 1
    evidence = examine(played)
    assert len(evidence.looks) == 1
    assert ["interrupted" in problem.what for problem in evidence.problems] == [True]


def test_before_the_first_look_there_is_no_verdict(play: Play) -> None:
    played = play(stands())
    played.interrupted = 0
    with pytest.raises(KeyboardInterrupt):
        examine(played)


# What only a job that seems to stand is asked.


def test_a_job_that_gets_on_is_asked_for_no_recordings(play: Play) -> None:
    played = play(works())
    assert examine(played).dumps == ()
    assert "read_recorders" not in played.names()


def test_where_nobody_gets_on_or_stands_recorders_are_asked(play: Play) -> None:
    build = EvidenceBuilder(ranks=2)
    for rank in (0, 1):
        build.rank(rank).works(REWARD, moves=False)
    played = play(build)
    evidence = examine(played)
    assert [dump.pid for dump in evidence.dumps] == [100, 101]
    assert len(evidence.looks) == MOST_SAMPLES


@pytest.mark.parametrize("stop", [True, False])
def test_a_job_that_stands_is_asked_for_its_recordings(stop: bool, play: Play) -> None:
    played = play(stands())
    evidence = examine(played, replace(WISHES, stop=stop))
    assert [dump.pid for dump in evidence.dumps] == [100, 101]
    assert "reading the flight recorders" in played.messages


def test_the_evidence_is_judged_three_times_at_most(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Evidence] = []

    def counted(evidence: Evidence) -> JobView:
        built.append(evidence)
        return build(evidence)

    monkeypatch.setattr("grpo_doctor.hang.wants.build", counted)
    examine(play(stands()))
    assert len(built) == 3


@pytest.mark.parametrize(
    ("at_most_s", "given_s"), [(60.0, 2.0), (5.0, 1.5), (2.5, 1.0), (4.75, 1.25)]
)
def test_recorders_are_given_what_is_left_of_the_visit_but_a_second_always(
    at_most_s: float, given_s: float, play: Play
) -> None:
    played = play(stands(1))
    played.look_s, played.recorder_s = 1.75, 0.25  # two looks and nothing between: 3.5 s
    build = played.build
    build.rank(0).stack, build.rank(0).still_s = REWARD, 30.0
    examine(played, replace(WISHES, at_most_s=at_most_s))
    assert played.of("read_recorders")[0] == [100, given_s]


# A third look, and one into C++.


def spins() -> EvidenceBuilder:
    build = stands()
    build.rank(1).works(REWARD, moves=False)
    return build


def polls() -> EvidenceBuilder:
    build = stands()
    build.rank(1).wakes = 50
    return build


def sleeps_in_the_driver() -> EvidenceBuilder:
    build = stands()
    build.rank(1).blocks("file", "/dev/nvidia0")
    return build


@pytest.mark.parametrize(
    ("build", "looks"), [(stands, 2), (spins, 3), (polls, 3), (sleeps_in_the_driver, 3)]
)
def test_a_third_look_is_taken_where_two_do_not_tell(
    build: Callable[[], EvidenceBuilder], looks: int, play: Play
) -> None:
    played = play(build())
    evidence = examine(played)
    assert [look.at_ns for look in evidence.looks] == AT_LOOK[:looks]
    assert [len(rows) for rows in (evidence.stacks, evidence.limits)] == [looks, looks]
    assert played.of("blocked")[-1] == [AT_LOOK[looks - 1]]
    assert played.messages.count("another sample in 1.5 s") == looks - 2
    assert played.clock.slept == [1.5] * (looks - 1)


@pytest.mark.parametrize(("at_most_s", "looks"), [(3.0, 2), (3.25, 3)])
def test_there_is_no_third_look_that_would_end_too_late(
    at_most_s: float, looks: int, play: Play
) -> None:
    assert len(examine(play(polls()), replace(WISHES, at_most_s=at_most_s)).looks) == looks


def in_unknown_code() -> EvidenceBuilder:
    """All wait in a collective, and no recorder tells who does not come."""
    return EvidenceBuilder(ranks=2, recorded=False)


@pytest.mark.parametrize(
    ("at_most_s", "stop", "looked_into"),
    [(4.5, True, [[(100,)]]), (4.25, True, []), (4.5, False, [])],
)
def test_the_native_stack_of_one_that_nothing_explains_is_read_while_there_is_time(
    at_most_s: float, stop: bool, looked_into: list[list[tuple[int]]], play: Play
) -> None:
    played = play(in_unknown_code())
    played.native = {100: Stack(100, FIRST_NS, native=True)}
    evidence = examine(played, replace(WISHES, at_most_s=at_most_s, stop=stop))
    assert played.of("native_stacks") == looked_into
    assert [stack.pid for stack in evidence.stacks[-1] if stack.native] == [100] * len(looked_into)


# Arguments of calls, which no recorder has.

TRIES = frames("acquire /x/site-packages/filelock/_api.py:300", "load /home/me/train.py:4")
MAKES = frames(
    f"_new_process_group_helper {TORCH}/distributed_c10d.py:90",
    f"new_group {TORCH}/distributed_c10d.py:95",
    "prepare /home/me/train.py:5",
)


def test_the_file_of_a_lock_that_a_rank_tries_again_and_again_is_looked_up(play: Play) -> None:
    build = EvidenceBuilder(ranks=3)
    for rank in (1, 2):
        build.elsewhere(rank, TRIES)
    build.rank(2).state = "T"
    played = play(build)
    played.values = {
        pid: {"acquire": {"timeout": "1"}, "_acquire": {"path": "/cache/a.lock"}}
        for pid in (100, 101, 102)
    }
    evidence = examine(played)
    assert played.of("lock_file") == [[101, "/cache/a.lock"]]
    assert [(row.pid, row.target) for row in evidence.blocked] == [(101, "/cache/a.lock")]


def arguments_of(played: Played) -> list[int]:
    """Of which processes."""
    return [argument.pid for argument in examine(played).arguments]


def test_partners_of_a_transfer_and_members_of_new_groups_are_asked_for(play: Play) -> None:
    build = EvidenceBuilder(ranks=5)
    build.elsewhere(1, collective("recv"))
    build.elsewhere(2, MAKES)
    build.elsewhere(3, collective("send"))
    build.rank(3).state = "T"
    played = play(build)
    arguments = {"recv": {"src": "0"}, "send": {"dst": "0"}, "all_reduce": {"op": "SUM"}}
    creates = {"_new_process_group_helper": {"group_name": "7"}}
    played.values = {100 + rank: {**arguments, **creates} for rank in range(5)}
    assert arguments_of(played) == [101, 101, 101, 102, 102, 102]


def test_the_source_of_a_broadcast_is_asked_of_those_that_the_rest_has_left(play: Play) -> None:
    build = EvidenceBuilder(ranks=4)
    for rank in range(4):
        stays = rank in (0, 2)
        build.rank(rank).stack = collective("broadcast" if stays else "barrier")
        build.joins[rank] = []
        build.calls(rank, "broadcast", done=not stays)
        if not stays:
            build.calls(rank, "barrier", number=41)
    played = play(build)
    played.values = {100 + rank: {"broadcast": {"src": "0"}} for rank in range(4)}
    assert arguments_of(played) == [100, 102]


# Dump files alone.


def test_dump_files_are_as_old_as_the_newest(tmp_path: Path) -> None:
    for rank, written_s in enumerate((1_700_000_000, 1_700_000_009, 1_700_000_004)):
        file = tmp_path / f"dump_rank_{rank}"
        file.write_bytes(b'{"entries": []}')
        os.utime(file, (written_s, written_s))
    evidence = examine_dumps(tmp_path)
    assert [dump.rank for dump in evidence.dumps] == [0, 1, 2]
    assert evidence.taken_unix_ns == 1_700_000_009 * SECOND
    assert 0.0 <= evidence.cost.seconds < 60.0
