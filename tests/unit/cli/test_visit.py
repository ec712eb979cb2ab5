"""Several jobs on one host: how they are listed."""

from __future__ import annotations

import os
import time

import pytest

from grpo_doctor.cli.attach_evidence import _MOST_LISTED, several
from grpo_doctor_probes.evidence import Job, Member


def job(*ranks: int | None, command: str = "python train.py", pid: int = 100) -> Job:
    members = tuple(
        Member(pid + i, 1, 100, "server" if rank is None else "rank", "python", command, rank=rank)
        for i, rank in enumerate(ranks)
    )
    return Job("node", members, len(ranks))


def test_a_line_has_the_command_that_attaches_to_it() -> None:
    (head, line) = several([job(0, 1)]).splitlines()
    assert head == "1 jobs run here; choose one:"
    assert "grpo-doctor attach 100 " in line
    assert "2 ranks (pid 100, 101), since " in line
    assert line.endswith("python train.py")


def test_four_processes_are_named() -> None:
    assert "(pid 100, 101, 102, 103)," in several([job(0, 1, 2, 3)])
    assert "5 ranks (pid 100, 101, 102, 103, ...)," in several([job(0, 1, 2, 3, 4)])


def test_ranks_come_before_other_processes_and_those_count_where_there_is_no_rank() -> None:
    assert "attach 101 " in several([job(None, 0)])
    assert "1 rank (pid 101)" in several([job(None, 0)])
    assert "attach 100 " in several([job(None)])
    assert "0 ranks (pid 100)" in several([job(None)])


def test_many_jobs_are_counted() -> None:
    all_listed = several([job(0, pid=100 + n) for n in range(_MOST_LISTED)])
    assert "more" not in all_listed
    text = several([job(0, pid=100 + n) for n in range(_MOST_LISTED + 3)], named=True)
    assert text.splitlines()[0].endswith("jobs belong to the given processes; choose one:")
    assert text.endswith("  and 3 more")


def test_a_hostile_command_changes_no_line() -> None:
    assert len(several([job(0, command="python\n\x1b[31m x")]).splitlines()) == 2


@pytest.mark.parametrize(
    ("age_s", "words"), [(0, "0 s"), (30, "30 s"), (3600, "60 min 00 s"), (-5, "0 s")]
)
def test_for_how_long_a_job_has_run(
    monkeypatch: pytest.MonkeyPatch, age_s: int, words: str
) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda _: 7200.0)
    ticks = (7200 - age_s) * os.sysconf("SC_CLK_TCK")
    member = Member(100, 1, ticks, "rank", "python", "python t.py", rank=0)
    assert f", since {words}: " in several([Job("node", (member,), 1)])
