"""Dump pipes: a rank that answers, one that is silent, and pipes that nobody reads."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.flight import ask_pipes

DUMP = json.dumps({"entries": [], "pg_config": {}}).encode()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A rank whose pipe and dump file are in `tmp_path`, on a made-up /proc."""
    (tmp_path / "proc" / "10").mkdir(parents=True)
    (tmp_path / "proc" / "10" / "environ").write_text(
        f"TORCH_NCCL_DEBUG_INFO_PIPE_FILE={tmp_path}/p_\0TORCH_FR_DUMP_TEMP_FILE={tmp_path}/d_\0"
    )
    return Job("here", (Member(10, 1, 0, "rank", "python", "x", rank=3),))


def reader(tmp_path: Path) -> int:
    """The rank's end of the pipe, as NCCL's monitor opens it."""
    os.mkfifo(tmp_path / "p_3.pipe")
    return os.open(tmp_path / "p_3.pipe", os.O_RDONLY | os.O_NONBLOCK)


def test_a_rank_that_is_rung_writes_its_dump(job: Job, tmp_path: Path) -> None:
    end = reader(tmp_path)
    (tmp_path / "d_3").write_bytes(DUMP.replace(b"{", b'{"old": 1, ', 1))
    os.utime(tmp_path / "d_3", (1, 1))

    def monitor() -> None:
        while not _read(end):
            time.sleep(0.01)
        (tmp_path / "d_3").write_bytes(DUMP[:5])  # the file is seen half-written first
        time.sleep(0.1)
        (tmp_path / "d_3").write_bytes(DUMP)

    thread = threading.Thread(target=monitor)
    thread.start()
    (dump,) = ask_pipes(job, 10, tmp_path / "proc")
    thread.join()
    os.close(end)
    assert (dump.data, dump.problem) == (DUMP, "")
    assert (dump.rank, dump.pid, dump.backend) == (3, 10, "nccl")
    assert dump.source == f"pipe:{tmp_path}/p_3.pipe"


def _read(end: int) -> bytes:
    try:
        return os.read(end, 16)
    except BlockingIOError:
        return b""


def test_a_rank_that_does_not_answer_costs_the_time_given(job: Job, tmp_path: Path) -> None:
    end = reader(tmp_path)
    (tmp_path / "d_3").write_bytes(DUMP)  # of before
    (dump,) = ask_pipes(job, 0.1, tmp_path / "proc")
    os.close(end)
    assert dump.data == b""
    assert "in time" in dump.problem


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "is not there"),
        (os.mkfifo, "has no reader"),
        (lambda path: path.write_bytes(b"kept"), "is not a pipe"),
        (os.mkdir, "is closed to us: "),
    ],
    ids=["missing", "no reader", "a file", "a folder"],
)
def test_pipes_that_take_nothing(job: Job, tmp_path: Path, make: object, reason: str) -> None:
    assert callable(make)
    make(tmp_path / "p_3.pipe")
    (dump,) = ask_pipes(job, 5, tmp_path / "proc")
    assert reason in dump.problem
    if reason == "is not a pipe":
        assert (tmp_path / "p_3.pipe").read_bytes() == b"kept"


def test_a_rank_whose_number_is_not_known_has_no_pipe(job: Job, tmp_path: Path) -> None:
    nameless = replace(job.members[0], rank=None)
    assert ask_pipes(Job("here", (nameless,)), 60, tmp_path / "proc") == ()


def test_of_several_ranks_each_gives_its_own_answer(job: Job, tmp_path: Path) -> None:
    (tmp_path / "proc" / "11").symlink_to("10")
    second = replace(job.members[0], pid=11, rank=4)
    end = reader(tmp_path)
    os.mkfifo(tmp_path / "p_4.pipe")
    fifo = os.open(tmp_path / "p_4.pipe", os.O_RDONLY | os.O_NONBLOCK)

    def monitor() -> None:
        while not _read(fifo):
            time.sleep(0.01)
        (tmp_path / "d_4").write_bytes(DUMP)
        while not _read(end):
            time.sleep(0.01)
        (tmp_path / "d_3").write_bytes(DUMP + b" ")

    thread = threading.Thread(target=monitor)
    thread.start()
    dumps = ask_pipes(Job("here", (*job.members, second)), 60, tmp_path / "proc")
    thread.join()
    os.close(end)
    os.close(fifo)
    assert {dump.rank: (dump.data, dump.pid) for dump in dumps} == {
        3: (DUMP + b" ", 10), 4: (DUMP, 11),
    }  # fmt: skip
    assert len(dumps) == 2


def test_a_job_without_pipes_costs_nothing(tmp_path: Path) -> None:
    plain = Job("here", (Member(10, 1, 0, "rank", "python", "x", rank=3),))
    assert ask_pipes(plain, 60, tmp_path) == ()
