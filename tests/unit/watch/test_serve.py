"""The live page's server: who may read it, and what it sends."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from grpo_doctor.watch.serve import Live, Server, forwarding
from grpo_doctor.watch.snapshot import Watched
from grpo_doctor_reports.schema.watch import Snapshot
from tests.recording import run_job

JOB = """
    from grpo_doctor_probes import phase, step
    for number in range(6):
        with step(number), phase("train"):
            pass
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """The server of a recorded run."""
    run_job(JOB, tmp_path)
    heard: list[Snapshot] = []
    live = Live(Watched(tmp_path), heard.append)
    with Server(live, b"<p>page</p>", 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.05,))
        thread.start()
        live.start()
        yield serving
        live.close()
        serving.shutdown()
        thread.join()


def ask(server: Server, path: str, token: str | None = None, **headers: str) -> tuple[int, bytes]:
    """Status and body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    token = server.token if token is None else token
    connection.request("GET", f"{path}?token={token}", headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_the_page_needs_the_token_and_this_host(server: Server) -> None:
    assert urlsplit(server.url).query == f"token={server.token}"
    assert ask(server, "/") == (200, b"<p>page</p>")
    for path in ("/", "/report", "/events"):
        assert ask(server, path, token="")[0] == 403
        assert ask(server, path, token=server.token[:-1])[0] == 403
        assert ask(server, path, Host="example.org")[0] == 403
        assert ask(server, path, Origin="https://example.org")[0] == 403
    own = f"localhost:{server.port}"
    assert ask(server, "/", Host=own, Origin=f"http://{own}")[0] == 200
    assert ask(server, "/../secret")[0] == 404


def test_events_of_two_watchers_and_the_report(server: Server) -> None:
    """Each gets the snapshot at once, and the report once it is drawn, by a real child."""
    streams = []
    for _ in range(2):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        connection.request("GET", f"/events?token={server.token}")
        streams.append((connection, connection.getresponse()))
    for _, stream in streams:
        assert stream.readline() == b"event: now\n"
        data = stream.readline().removeprefix(b"data: ")
        assert [step["number"] for step in json.loads(data)["steps"]] == list(range(6))
        while (line := stream.readline()) != b"event: report\n":
            assert line
        assert stream.readline() == b"data: 1\n"
    for connection, _ in streams:
        connection.close()
    status, report = ask(server, "/report")
    assert status == 200
    assert report.startswith(b"<!doctype html>")
    deadline_s = time.monotonic() + 60
    while server.live.now.findings is None:
        assert time.monotonic() < deadline_s
    assert all(finding.id.startswith("GD") for finding in server.live.now.findings)


def test_a_port_in_use_is_an_error(server: Server) -> None:
    with pytest.raises(OSError, match="in use"):
        Server(server.live, b"", server.port)


def test_the_command_for_a_laptop() -> None:
    assert forwarding(8700).startswith("ssh -N -L 8700:127.0.0.1:8700 ")
