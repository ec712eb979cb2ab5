"""Dump pipes: a rank that answers, one that is silent, and pipes that nobody reads.

Worker servers on Unix sockets: one that answers, one without a recorder, one that is silent.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest

from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.flight import ask_pipes, ask_servers, dump_requests

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


class Handler(BaseHTTPRequestHandler):
    """What torch's worker server does for two of its handlers."""

    answers: ClassVar[dict[str, bytes]] = {}

    def do_POST(self) -> None:
        body = self.answers.get(self.path.removeprefix("/handler/"))
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_args: object) -> None:
        pass


@contextmanager
def serving(path: Path, answers: dict[str, bytes]) -> Iterator[None]:
    handler = type("Now", (Handler,), {"answers": answers})
    with socketserver.ThreadingUnixStreamServer(str(path), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield
        server.shutdown()
        thread.join()


@pytest.fixture
def serving_job(tmp_path: Path) -> Job:
    """A rank, which is this process, that names a socket in its environment."""
    folder = tmp_path / "proc" / str(os.getpid())
    folder.mkdir(parents=True)
    (folder / "environ").write_text(f"TORCH_WORKER_SERVER_SOCKET={tmp_path}/s\0")
    return Job("here", (Member(os.getpid(), 1, 0, "rank", "python", "x", rank=3),))


def test_each_recorder_of_a_server_is_asked(serving_job: Job, tmp_path: Path) -> None:
    by_handler = {"fr_trace_json": DUMP, "dump_nccl_trace_json": DUMP + b" "}
    with serving(tmp_path / "s", by_handler):
        fr, nccl = ask_servers(serving_job, 5, tmp_path / "proc")
    assert (fr.backend, fr.data, fr.rank, fr.pid) == ("fr", DUMP, 3, os.getpid())
    assert (nccl.backend, nccl.data) == ("nccl", DUMP + b" ")
    assert fr.source == f"server:{tmp_path}/s"


def test_a_server_of_a_build_without_nccl_answers_for_the_other(
    serving_job: Job, tmp_path: Path
) -> None:
    with serving(tmp_path / "s", {"fr_trace_json": DUMP}):
        (dump,) = ask_servers(serving_job, 5, tmp_path / "proc")
    assert (dump.backend, dump.problem) == ("fr", "")


@pytest.mark.parametrize("answers", [{}, {"fr_trace_json": b""}], ids=["neither", "an empty one"])
def test_a_server_without_recorders(
    serving_job: Job, tmp_path: Path, answers: dict[str, bytes]
) -> None:
    with serving(tmp_path / "s", answers):
        (dump,) = ask_servers(serving_job, 5, tmp_path / "proc")
    assert dump.problem == "the server has no recorder to ask"


def test_what_one_recorder_said_counts_though_the_other_says_nonsense(
    serving_job: Job, tmp_path: Path
) -> None:
    by_handler = {"fr_trace_json": DUMP, "dump_nccl_trace_json": b"<html>"}
    with serving(tmp_path / "s", by_handler):
        (dump,) = ask_servers(serving_job, 5, tmp_path / "proc")
    assert (dump.backend, dump.data, dump.problem) == ("fr", DUMP, "")


@pytest.mark.parametrize(("more", "accepted"), [(0, True), (1, False)])
def test_an_answer_may_be_as_long_as_the_limit(
    serving_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, accepted: bool
) -> None:
    monkeypatch.setattr(dump_requests, "MAX_DUMP_BYTES", len(DUMP))
    with serving(tmp_path / "s", {"fr_trace_json": DUMP + b" " * more}):
        (dump,) = ask_servers(serving_job, 60, tmp_path / "proc")
    assert (dump.data == DUMP) is accepted
    assert ("timed out in the midst" in dump.problem) is not accepted


def test_a_server_that_is_not_torchs(serving_job: Job, tmp_path: Path) -> None:
    with serving(tmp_path / "s", {"fr_trace_json": b"<html>"}):
        (dump,) = ask_servers(serving_job, 5, tmp_path / "proc")
    assert "neither JSON nor a pickle" in dump.problem


def test_a_server_that_is_stopped_or_gone(serving_job: Job, tmp_path: Path) -> None:
    (answer,) = ask_servers(serving_job, 5, tmp_path / "proc")
    assert "No such file" in answer.problem
    with socket.socket(socket.AF_UNIX) as silent:  # connections wait in its backlog
        silent.bind(str(tmp_path / "s"))
        silent.listen(1)
        (dump,) = ask_servers(serving_job, 0.2, tmp_path / "proc")
    assert "timed out" in dump.problem


def test_a_job_without_servers_costs_nothing(tmp_path: Path) -> None:
    plain = Job("here", (Member(10, 1, 0, "rank", "python", "x", rank=3),))
    assert ask_servers(plain, 60, tmp_path) == ()
