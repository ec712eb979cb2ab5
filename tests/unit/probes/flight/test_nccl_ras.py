"""The RAS client against processes that speak NCCL's protocol, well and badly."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.flight import nccl_ras, ras
from grpo_doctor_probes.flight.nccl_ras import RasError, parse_address, repaired
from tests.unit.probes.flight.ras_server import status, talk

PATIENCE_S = 60.0
Serve = Callable[..., int]  # (kind, *process numbers of its mesh): the server's own


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def serve(port: int) -> Iterator[Serve]:
    """Starts a server on the port, beside those already there."""
    servers: list[subprocess.Popen[str]] = []

    def serve_one(kind: str, *pids: int) -> int:
        script = Path(__file__).with_name("ras_server.py")
        command = [sys.executable, str(script), str(port), kind, *map(str, pids)]
        servers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert servers[-1].stdout
        return int(servers[-1].stdout.readline())

    yield serve_one
    for server in servers:
        server.kill()
        server.communicate()


def job(tmp_path: Path, port: int, *pids: int) -> tuple[Job, Path]:
    """Ranks whose environment names the port, in the network we are in."""
    members = []
    for number, pid in enumerate(pids):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "environ").write_text(f"NCCL_RAS_ADDR=127.0.0.1:{port}\0")
        (folder / "net").symlink_to("/proc/self/net")
        members.append(Member(pid, 1, 0, "rank", "python", "x", rank=number))
    return Job("here", tuple(members)), tmp_path


def test_a_mesh_that_names_the_whole_job_is_asked_twice_a_second_apart(
    serve: Serve, port: int, tmp_path: Path
) -> None:
    serve("trainer", 501, 502)
    ranks_of_job, proc = job(tmp_path, port, 501, 502)
    answer, again = ras(ranks_of_job, 5, proc)
    assert (answer.address, answer.problem) == (f"127.0.0.1:{port}", "")
    assert again.text == answer.text
    assert again.at_ns - answer.at_ns >= 1_000_000_000
    ranks = json.loads(answer.text)["communicators"][0]["ranks"]
    assert [rank["pid"] for rank in ranks] == [501, 502]


def test_a_stopped_process_costs_its_tries_and_is_mentioned(
    serve: Serve, port: int, tmp_path: Path
) -> None:
    stopped = serve("trainer", 501)
    os.kill(stopped, signal.SIGSTOP)
    ranks_of_job, proc = job(tmp_path, port, 501)
    start_s = time.monotonic()
    (answer,) = ras(ranks_of_job, 0.5, proc)
    assert time.monotonic() - start_s < 60
    assert answer.text == ""
    assert "may be stopped" in answer.problem
    os.kill(stopped, signal.SIGCONT)
    assert all(answer.text for answer in ras(ranks_of_job, 5, proc))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("silent", "timed out"),
        ("slow", "timed out"),
        ("stranger", "not NCCL's RAS"),
        ("broken", "not JSON"),
        ("text", "answers in text alone"),
    ],
)
def test_servers_that_are_of_no_use_say_why(
    serve: Serve, port: int, tmp_path: Path, kind: str, reason: str
) -> None:
    serve(kind)
    ranks_of_job, proc = job(tmp_path, port, 501)
    (answer,) = ras(ranks_of_job, 0.5, proc)
    assert answer.text == ""
    assert reason in answer.problem


def test_the_json_of_2_28_9_is_mended(serve: Serve, port: int, tmp_path: Path) -> None:
    """It leaves out the comma after `nvml_dev`, but only of ranks that are missing."""
    serve("lost", 70, 71, 72)
    ranks_of_job, proc = job(tmp_path, port, 71)
    answer, _ = ras(ranks_of_job, 5, proc)
    (communicator,) = json.loads(answer.text)["communicators"]
    missing = communicator["missing_ranks"]
    assert [(rank["pid"], rank["nvml_dev"]) for rank in missing] == [(70, 0), (71, 1), (72, 2)]
    assert missing[1]["status"]["unresponsive"]


@contextmanager
def answering(port: int, meshes: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Answers on the port with one mesh after the other, the last one for ever; a list of which."""
    indices: list[int] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                indices.append(min(len(indices), len(meshes) - 1))
                with connection, contextlib.suppress(OSError):
                    talk(connection, status(list(meshes[indices[-1]])), "trainer")

    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen(16)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield indices
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is time for one round, and on a busy machine for every answer of it."""
    monkeypatch.setattr(nccl_ras, "_AGAIN_S", PATIENCE_S)
    monkeypatch.setattr(nccl_ras, "_TRY_S", PATIENCE_S)


@pytest.mark.parametrize(
    ("pids", "meshes", "times"),
    [
        ((501, 502), [(501, 502)], 1),
        ((501,), [(501, 502)], 1),  # it names processes of other hosts too
        ((501, 601), [(501,), (601,)], 2),
        ((501, 601), [(501,), (501,), (601,)], 3),
        ((501, 999), [(501,)], 7),  # six times nothing new
        ((501, 999), [(501,), (501,), (501,), (502,)], 10),  # what is new begins the count anew
        ((999,), [(500 + n,) for n in range(30)], 16),  # who names others for ever is given up
    ],
)
def test_it_is_asked_until_every_process_is_known_or_nothing_new_is_heard(
    port: int,
    tmp_path: Path,
    once: None,
    pids: tuple[int, ...],
    meshes: list[tuple[int, ...]],
    times: int,
) -> None:
    ranks_of_job, proc = job(tmp_path, port, *pids)
    with answering(port, meshes) as indices:
        answers = ras(ranks_of_job, PATIENCE_S, proc)
    assert len(indices) == times
    named_ranks = [json.loads(answer.text)["communicators"][0]["ranks"] for answer in answers]
    heard = dict.fromkeys(meshes[number] for number in indices)
    assert [tuple(rank["pid"] for rank in ranks) for ranks in named_ranks] == list(heard)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ("localhost", 28028)),
        ("node7:1234", ("node7", 1234)),
        ("[::1]:99", ("::1", 99)),
        (":1234", ("localhost", 1234)),
        ("node7:", ("node7", 28028)),
        ("node7:²", ("node7", 28028)),  # a digit, but no number
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["[" * 100_000, "{" + '"a":' * 3, "9" * 5000])
def test_an_answer_that_is_no_json_is_refused_and_no_more(text: str) -> None:
    with pytest.raises(RasError):
        repaired(text)
