"""Which ports are asked for an engine's numbers, and what is read of its sleep."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
from collections.abc import Iterator

import pytest

from grpo_doctor_probes.evidence import Job, Member, Role
from grpo_doctor_probes.look.httpengines import engines
from tests.unit.probes.conftest import Pages

TEXT = b'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    """This process serves, to a client that is connected, beside a port without clients."""
    monkeypatch.setattr("grpo_doctor_probes.look.httpengines._AT_MOST_S", 60.0)
    with Pages((200, TEXT)) as pages:
        client = http.client.HTTPConnection("127.0.0.1", pages.server_port)
        client.request("GET", "/")  # once it is answered, the connection is accepted, and stays
        client.getresponse().read()
        with socket.create_server(("127.0.0.1", 0)), contextlib.closing(client):
            yield pages


def member(role: Role, command: str, pid: int = 0, parent: int = 1) -> Member:
    return Member(pid or os.getpid(), parent, 0, role, command.partition(" ")[0], command)


def test_a_server_without_a_port_in_its_command_is_asked_where_its_clients_are(
    server: Pages,
) -> None:
    commands = ("vllm serve model", "python -m vllm.entrypoints.openai.api_server --port 0")
    for command in commands:
        (engine,) = engines(Job("here", (member("server", command),)))
        assert engine.url == f"http://127.0.0.1:{server.server_port}"
        assert engine.values == {"healthy": 1.0, "num_requests_running": 3.0}


ANSWERS = {"healthy": 1.0, "num_requests_running": 3.0}


@pytest.mark.parametrize(
    ("page", "status", "text", "changes"),
    [
        ("/other", 200, b"", {}),
        ("/is_paused", 200, b'{"is_paused": true}', {"paused": 1.0}),
        ("/is_paused", 200, b'{"is_paused": false}', {"paused": 0.0}),
        ("/is_paused", 404, b'{"detail": "Not Found"}', {}),
        ("/is_paused", 200, b"[true]", {}),
        ("/is_paused", 200, b"<html>", {}),
        ("/is_paused", 500, b'{"is_paused": true}', {}),
        ("/health", 503, b"", {"healthy": 0.0}),
        ("/metrics", 404, b"", {"num_requests_running": None}),
    ],
)
def test_what_an_engine_answers(
    server: Pages, page: str, status: int, text: bytes, changes: dict[str, float | None]
) -> None:
    server.pages[page] = (status, text)
    command = f"vllm serve m --port {server.server_port}"
    (engine,) = engines(Job("here", (member("server", command),)))
    values = {name: value for name, value in (ANSWERS | changes).items() if value is not None}
    assert (engine.values, engine.problem) == (values, "")


def test_the_parent_of_an_engine_is_asked(server: Pages) -> None:
    front = member("server", "python my_server.py")
    core = member("engine", "VLLM::EngineCore", pid=1 << 22, parent=os.getpid())
    (engine,) = engines(Job("here", (front, core)))
    assert engine.url.endswith(f":{server.server_port}")


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("command", ["python some_database.py", "ray::LLMServer.run x"])
def test_a_server_that_may_speak_another_protocol_is_left_alone(command: str) -> None:
    assert engines(Job("here", (member("server", command),))) == ()
