"""Whose flight recorders are asked, how, and which dump files are too old to count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.collection.examine import Visit, ask_recorders
from grpo_doctor_probes.evidence import FlightDump, Locals, Position
from tests.evidence import FIRST_NS, SECOND, UNIX_NS, EvidenceBuilder, frames, with_look
from tests.unit.hang.collection.played import Play, Played

LINE = frames("compute_loss /home/me/train.py:5", "main /home/me/train.py:9")


def ask(visit: Visit, *, at_most_s: float = 60.0) -> None:
    ask_recorders(visit, at_most_s=at_most_s)


def file(
    rank: int | None, age_s: float, *, pid: int | None = None, data: bytes = b"{}"
) -> FlightDump:
    written_ns = UNIX_NS - int(age_s * SECOND)
    return FlightDump("file:/tmp/dump", rank, pid, at_unix_ns=written_ns, data=data)


def ages_of(visit: Visit) -> list[float]:
    """Of the files that were kept, in seconds."""
    files = [dump for dump in visit.seen.dumps if dump.source.startswith("file")]
    return [(UNIX_NS - dump.at_unix_ns) / SECOND for dump in files]


# Which files count.


def test_files_count_that_were_written_since_the_job_stands_or_two_seconds_before(
    play: Play,
) -> None:
    build = EvidenceBuilder(ranks=3)
    for rank, still_s in enumerate((4.0, 9.0, 6.0)):
        build.rank(rank).still_s = still_s
    played = play(build)
    played.files = tuple(file(0, age_s) for age_s in (0.0, 10.0, 11.0, 11.5))
    played.files += (file(1, 1.0, data=b""),)
    visit = played.visited()
    ask(visit)
    assert ages_of(visit) == [0.0, 10.0, 11.0]


def test_where_the_kernel_does_not_tell_how_long_a_rank_stands_files_of_now_count(
    play: Play,
) -> None:
    build = EvidenceBuilder(ranks=2)
    for rank in (0, 1):
        build.rank(rank).still_s = FIRST_NS / SECOND  # it never ran, or nobody says when
    played = play(build)
    played.files = (file(0, 2.0), file(0, 2.5))
    visit = played.visited()
    evidence = played.evidence
    for pid, process in ((row.pid, row) for row in evidence.looks[1].processes):
        evidence = with_look(
            evidence, 1, pid, threads=(replace(process.threads[0], last_ran_ns=0),)
        )
    visit.put(looks=evidence.looks)
    ask(visit)
    assert ages_of(visit) == [2.0]


@pytest.mark.parametrize(
    ("spin", "work", "is_read"),
    [((1,), (), True), ((1,), (0,), False), ((), (), False), ((), (0,), False)],
)
def test_a_host_that_spins_may_have_done_so_for_half_an_hour(
    spin: tuple[int, ...], work: tuple[int, ...], is_read: bool, play: Play
) -> None:
    build = EvidenceBuilder(ranks=2)
    for rank in (0, 1):
        build.rank(rank).still_s = 1.0
    for rank in (*spin, *work):
        build.rank(rank).works(LINE, moves=rank in work)
    played = play(build)
    played.files = (file(0, 1801.0),)
    visit = played.visited()
    visit.add(
        positions=[
            Position(100 + rank, 100 + rank, FIRST_NS, "libcuda.so.1", "libcuda.so.1")
            for rank in spin
        ],
        locals_seen=[Locals(100 + rank, FIRST_NS, "same") for rank in spin],
    )
    ask(visit)
    assert ages_of(visit) == ([1801.0] if is_read else [])


# Who is asked.


def questioned_pids(played: Played) -> list[int]:
    return [pid for pid, _ in played.of("read_recorders")]


def test_who_has_written_a_file_is_not_read(play: Play) -> None:
    played = play(EvidenceBuilder(ranks=4))
    played.files = (file(1, 0.0), file(None, 0.0, pid=102), file(3, 0.0, data=b""))
    ask(played.visited())
    assert questioned_pids(played) == [100, 103]


def test_a_rank_of_unknown_number_is_asked_and_known_by_its_process(play: Play) -> None:
    build = EvidenceBuilder(ranks=3)
    for rank in (1, 2):
        process = build.rank(rank)
        process.member = replace(process.member, rank=None)
    played = play(build)
    played.files = (file(None, 0.0, pid=None), file(None, 0.0, pid=101))
    ask(played.visited())
    assert questioned_pids(played) == [100, 102]


@pytest.mark.parametrize("state", ["Z", "X"])
def test_who_has_ended_or_was_not_seen_is_not_read(state: str, play: Play) -> None:
    build = EvidenceBuilder(ranks=4)
    build.rank(1).state = state
    played = play(build)
    visit = played.visited()
    visit.put(looks=with_look(played.evidence, 1, 102).looks)
    ask(visit)
    assert questioned_pids(played) == [100, 103]


# For how long.


@pytest.mark.parametrize(
    ("at_most_s", "given_s"),
    [(60.0, [2.0, 2.0, 2.0]), (4.0, [2.0, 2.0, 1.0]), (3.0, [2.0, 1.5]), (0.0625, [0.0625])],
)
def test_the_time_that_is_left_is_given_to_one_rank_after_the_other(
    at_most_s: float, given_s: list[float], play: Play
) -> None:
    played = play(EvidenceBuilder(ranks=3))
    played.recorder_s = 1.5
    visit = played.visited()
    ask(visit, at_most_s=at_most_s)
    assert [seconds for _, seconds in played.of("read_recorders")] == given_s
    without = [dump.rank for dump in visit.seen.dumps if "no time left" in dump.problem]
    assert without == list(range(len(given_s), 3))
