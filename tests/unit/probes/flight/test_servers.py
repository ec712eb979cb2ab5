"""Worker servers on Unix sockets: one that answers, one without a recorder, one that is silent."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest

from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.flight import ask_servers

DUMP = json.dumps({"entries": [], "pg_config": {}}).encode()


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
def job(tmp_path: Path) -> Job:
    """A rank, which is this process, that names a socket in its environment."""
    folder = tmp_path / "proc" / str(os.getpid())
    folder.mkdir(parents=True)
    (folder / "environ").write_text(f"TORCH_WORKER_SERVER_SOCKET={tmp_path}/s\0")
    return Job("here", (Member(os.getpid(), 1, 0, "rank", "python", "x", rank=3),))


def test_each_recorder_of_a_server_is_asked(job: Job, tmp_path: Path) -> None:
    both = {"fr_trace_json": DUMP, "dump_nccl_trace_json": DUMP + b" "}
    with serving(tmp_path / "s", both):
        fr, nccl = ask_servers(job, 5, tmp_path / "proc")
    assert (fr.backend, fr.data, fr.rank, fr.pid) == ("fr", DUMP, 3, os.getpid())
    assert (nccl.backend, nccl.data) == ("nccl", DUMP + b" ")
    assert fr.source == f"server:{tmp_path}/s"


def test_a_server_of_a_build_without_nccl_answers_for_the_other(job: Job, tmp_path: Path) -> None:
    with serving(tmp_path / "s", {"fr_trace_json": DUMP}):
        (dump,) = ask_servers(job, 5, tmp_path / "proc")
    assert (dump.backend, dump.problem) == ("fr", "")


def test_a_server_that_is_not_torchs(job: Job, tmp_path: Path) -> None:
    with serving(tmp_path / "s", {"fr_trace_json": b"<html>"}):
        (dump,) = ask_servers(job, 5, tmp_path / "proc")
    assert "neither JSON nor a pickle" in dump.problem


def test_a_server_that_is_stopped_or_gone(job: Job, tmp_path: Path) -> None:
    (gone,) = ask_servers(job, 5, tmp_path / "proc")
    assert "No such file" in gone.problem
    with socket.socket(socket.AF_UNIX) as silent:  # connections wait in its backlog
        silent.bind(str(tmp_path / "s"))
        silent.listen(1)
        (dump,) = ask_servers(job, 0.2, tmp_path / "proc")
    assert "timed out" in dump.problem


def test_a_job_without_servers_costs_nothing(tmp_path: Path) -> None:
    plain = Job("here", (Member(10, 1, 0, "rank", "python", "x", rank=3),))
    assert ask_servers(plain, 60, tmp_path) == ()
