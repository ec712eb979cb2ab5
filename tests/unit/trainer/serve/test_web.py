"""Client and server over real HTTP: answers, refusals, silence, and connections that end."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")

from grpo_doctor_trainer.errors import RolloutError  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.client import ServerClient  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.transfer import FileTransfer, make_transfer  # noqa: E402
from grpo_doctor_trainer.serve import protocol  # noqa: E402
from grpo_doctor_trainer.serve.protocol import (  # noqa: E402
    GenerateRequest,
    Progress,
    Prompt,
    Sampling,
)
from grpo_doctor_trainer.serve.state import Folder, Health  # noqa: E402
from grpo_doctor_trainer.serve.web import Service, WebServer  # noqa: E402
from tests.unit.trainer.serve.served import CountingEngine, serving  # noqa: E402


def request(tokens: int = 3, weights: str = "w1", prompt: int = 5) -> GenerateRequest:
    sampling = Sampling(tokens, 1.0, 1.0, -1, 1.0, ())
    return GenerateRequest(weights, [Prompt(1, [prompt])], sampling)


def client_of(server: WebServer, patience_s: float = 10) -> ServerClient:
    client = ServerClient("127.0.0.1", server.server_address[1], patience_s)
    client.health()
    return client


def post(server: WebServer, path: str, body: bytes, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request("POST", path, body, {"Content-Type": "application/json"} | headers)
    response = connection.getresponse()
    return response.status, json.loads(response.read())["error"]


def test_completions_come_with_progress_on_the_way(tmp_path: Path) -> None:
    events: list[Progress] = []
    started = time.monotonic()
    with serving(CountingEngine(step_s=0.05), tmp_path) as server:
        made = client_of(server).generate(request(60), events.append)
    took_s = time.monotonic() - started
    assert made.completions[0].tokens[:3] == [6, 7, 8]
    assert len(made.completions[0].tokens) == 60
    assert 1 <= len(events) <= took_s + 1  # one a second
    assert events[0].running == 1


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "message"),
    [
        ("/nothing", b"{}", {}, 404, "there is no POST /nothing"),
        ("/generate", b"{", {}, 400, "not a GenerateRequest"),
        ("/generate", b"{}", {}, 400, "missing required field `weights`"),
        (
            "/generate",
            protocol.encode(request()).replace(b"[5]", b'["5"]'),
            {},
            400,
            "Expected `int`, got `str` - at `$.prompts[0].tokens[0]`",
        ),
        ("/generate", protocol.encode(request()).replace(b"[5]", b"[]"), {}, 400, "either tokens"),
        ("/generate", protocol.encode(request()).replace(b"[5]", b"[-5]"), {}, 400, ">= 0"),
        ("/generate", protocol.encode(request(prompt=500)), {}, 400, "not in the vocabulary"),
        ("/generate", b"{}", {"Content-Type": "text/plain"}, 415, "application/json"),
        ("/generate", b"{}", {"Content-Length": "-2"}, 411, "Content-Length"),
        (
            "/generate",
            b"{}",
            {"Content-Length": str(protocol.MAX_REQUEST_BYTES + 1)},
            413,
            "more than a request may have",
        ),
        ("/generate", protocol.encode(request(weights="w2")), {}, 409, "another trainer uses it"),
        (
            "/weights/files",
            protocol.encode(protocol.FilesRequest("w2", ["/etc/passwd"])),
            {},
            400,
            "not a safetensors file right inside",
        ),
        ("/weights/receive", b'{"version": "w2"}', {}, 500, "RuntimeError: no group"),
    ],
)
def test_what_is_wrong_with_a_request_is_told(
    tmp_path: Path, path: str, body: bytes, headers: dict[str, str], status: int, message: str
) -> None:
    engine = CountingEngine()
    with serving(engine, tmp_path) as server:
        code, text = post(server, path, body, **headers)
        assert (code, message in text) == (status, True), text
        if path != "/weights/receive":  # after which the weights are nobody's
            assert client_of(server).generate(request(), lambda _: None).completions
    assert not engine.names


def test_weights_by_files_arrive_and_nothing_stays(tmp_path: Path) -> None:
    engine = CountingEngine()
    table = torch.randn(4, 3)
    with serving(engine, tmp_path) as server:
        client = client_of(server)
        device = torch.device("cpu")
        transfer = make_transfer(client, client.health(), device, 10, overlapped=False)
        assert isinstance(transfer, FileTransfer)
        transfer.begin("w2")
        transfer.add([("embedding", table), ("head", table)])  # tied
        transfer.add([("slice", torch.arange(10)[2:5]), ("turned", torch.randn(3, 2).T)])
        assert len(list(tmp_path.rglob("*.safetensors"))) == 2
        transfer.finish()
        assert client.generate(request(weights="w2"), lambda _: None).completions
        assert not list(tmp_path.rglob("*.safetensors"))
        transfer.begin("w3")
        transfer.add([("embedding", table)])
        transfer.abandon()
        assert not list(tmp_path.rglob("*.safetensors"))
        transfer.close()
        assert list(tmp_path.rglob("token"))  # the server's own
    assert engine.names == ["embedding", "head", "slice", "turned"]


@pytest.mark.parametrize("overlapped", [False, True])
def test_other_weights_than_were_sent_are_noticed(tmp_path: Path, overlapped: bool) -> None:
    class Forgetful(CountingEngine):
        def load_files(self, paths: list[str]) -> tuple[str, int]:
            return super().load_files(paths[:-1])

    with serving(Forgetful(), tmp_path) as server:
        client = client_of(server)
        device = torch.device("cpu")
        transfer = make_transfer(client, client.health(), device, 10, overlapped=overlapped)
        assert transfer.describe().endswith("a part in flight") == overlapped
        transfer.begin("w2")
        transfer.add([("a", torch.ones(2))])
        transfer.add([("b", torch.ones(2))])
        with pytest.raises(RolloutError, match=r"got other weights than were sent \(1 tensors for"):
            transfer.finish()
        assert not list(tmp_path.rglob("*.safetensors"))
        transfer.close()


def test_folders_without_room_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(CountingEngine(), tmp_path) as server:
        transfer = FileTransfer(client_of(server), [Folder(str(tmp_path / "gone"), "")])
        transfer.begin("w2")
        with pytest.raises(RolloutError, match=r"no folder of the vLLM server at .* has room"):
            transfer.add([("a", torch.ones(2))])


def test_the_folders_of_a_killed_server_are_removed_by_the_trainer(tmp_path: Path) -> None:
    with serving(CountingEngine(), tmp_path) as server:
        client = client_of(server)
        folders = client.health().folders
        transfer = FileTransfer(client, folders)
    Path(folders[0].path).mkdir()  # as if it had not been removed
    transfer.close()
    assert not Path(folders[0].path).exists()


def test_an_engine_that_breaks_is_told_by_its_log(tmp_path: Path) -> None:
    engine = CountingEngine(step_s=0.01)
    engine.breaks_at = 3
    with serving(engine, tmp_path) as server:
        client = client_of(server)
        with pytest.raises(RolloutError, match=r"could not generate: .*a kernel broke.*/the/log"):
            client.generate(request(100), lambda _: None)
        with pytest.raises(RolloutError, match=r"503.*the engine has failed"):
            client.generate(request(), lambda _: None)


@pytest.mark.slow
def test_a_silent_engine_is_an_error_and_a_slow_one_is_not(tmp_path: Path) -> None:
    engine = CountingEngine(step_s=0.3)
    with serving(engine, tmp_path) as server:
        client = client_of(server, patience_s=3.0)
        assert client.generate(request(12), lambda _: None).completions  # 3.6 s, with progress
        engine.step_s = 10
        with pytest.raises(RolloutError, match=r"silent for 3 s .*--vllm_timeout.*/the/log"):
            client.generate(request(), lambda _: None)


def test_the_requests_of_a_trainer_that_died_are_dropped(tmp_path: Path) -> None:
    engine = CountingEngine(step_s=0.05)
    with serving(engine, tmp_path) as server:
        body = protocol.encode(request(100_000))
        with socket.create_connection(("127.0.0.1", server.server_address[1])) as connection:
            connection.sendall(
                b"POST /generate HTTP/1.0\r\nContent-Type: application/json\r\n"
                + f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            connection.recv(100)
            assert engine.open
        ends = time.monotonic() + 60
        while engine.open:
            assert time.monotonic() < ends
            time.sleep(0.05)
        assert engine.aborted == ["0"]


def listening(answer: bytes) -> tuple[socket.socket, int]:
    """Something that accepts one connection, says one thing and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(10_000)
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            # Closing with a part of the request unread would reset what was just said.
            with contextlib.suppress(OSError):
                while connection.recv(10_000):
                    pass

    threading.Thread(target=serve, daemon=True).start()
    return listener, listener.getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "is gone while it generated"),
        (b"HTTP/1.0 200 OK\r\n\r\n", "ended in the middle of its answer"),
        (b'HTTP/1.0 200 OK\r\n\r\n{"progress":{"fin', "does not answer like"),
        (b"HTTP/1.0 200 OK\r\n\r\n<html>\n", "does not answer like a grpo-doctor rollout server"),
        (b"HTTP/1.0 404 Not Found\r\n\r\n<html>no</html>", r"refused POST /generate \(404\)"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is gone while it generated"),
    ],
)
def test_connections_that_end_or_speak_another_language(answer: bytes, message: str) -> None:
    listener, port = listening(answer)
    with listener, pytest.raises(RolloutError, match=message):
        ServerClient("127.0.0.1", port, 5).generate(request(), lambda _: None)


def test_waiting_tells_how_far_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_doctor_trainer.rollout.vllm.client._TELL_S", 0.1)
    lines: list[str] = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    client = ServerClient("127.0.0.1", port, 5)
    with pytest.raises(RolloutError, match=r"is not ready after 1 s: nothing answers .*--port"):
        client.wait_until_ready(1, lines.append)
    assert "nothing answers" in lines[0]

    service: Any = Service(Health("starting", "vLLM is loading the model", 1, "/the/log"))
    with WebServer("127.0.0.1", port, service) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        lines.clear()
        with pytest.raises(RolloutError, match="vLLM is loading the model; log /the/log"):
            client.wait_until_ready(1, lines.append)
        assert "vLLM is loading" in lines[0]
        with pytest.raises(RolloutError, match=r"503.*the engine is starting.*/the/log"):
            client.generate(request(), lambda _: None)
        service.health = Health("failed", "no memory", 1, "/the/log")
        with pytest.raises(RolloutError, match="failed to start: no memory"):
            client.wait_until_ready(30, lines.append)
        service.health = Health("ready", "", 1, "/the/log", protocol=99)
        with pytest.raises(RolloutError, match="speaks version 99 of the protocol"):
            client.wait_until_ready(30, lines.append)
        service.health = Health("ready", "", 1, "/the/log")
        assert client.wait_until_ready(30, lines.append).status == "ready"
        server.shutdown()
        thread.join(10)
