"""The HTTP side of the server: reads requests, asks the loop, writes answers."""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from grpo_doctor_trainer.serve import protocol
from grpo_doctor_trainer.serve.folders import checked_files
from grpo_doctor_trainer.serve.loop import EngineFailedError, RequestError, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_trainer.serve.loop import EngineLoop, Job
    from grpo_doctor_trainer.serve.state import Health

_READ_TIMEOUT_S = 60.0
_UNFINISHED = "unfinished"
_TELL_S = 1.0  # how often a running request tells of its progress
_BEAT_S = 0.2  # and that it goes on, to one that has something to do meanwhile


class ServedEngine(Protocol):
    """What the server asks of an engine besides completions, called between its steps."""

    def load_files(self, paths: list[str]) -> tuple[str, int]:
        """Takes over weights from files; gives their signature and number."""

    def join(self, request: protocol.JoinRequest) -> None:
        """Joins the trainer's group of collectives."""

    def receive(self) -> tuple[str, int]:
        """Takes over weights from the group; gives their signature and number."""


@dataclass
class Service:
    """What the connections share. Until there is an engine, only `/health` answers.

    Attributes:
        health: what `/health` tells.
        engine: the engine; none while it starts.
        loop: what steps it.
    """

    health: Health
    engine: ServedEngine | None = None
    loop: EngineLoop | None = None


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class WebServer(ThreadingHTTPServer):
    """Listens; one thread per connection. Raises `OSError` if the address is taken."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, host: str, port: int, service: Service) -> None:
        self.service = service
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of clients that went away; the base class prints a traceback."""


class _Handler(BaseHTTPRequestHandler):
    server: WebServer
    server_version = "grpo-doctor"
    timeout = _READ_TIMEOUT_S

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        """Answers what only looks."""
        self._serve({"/health": self._health, "/statistics": self._statistics})

    def do_POST(self) -> None:
        """Answers what makes the engine do something."""
        self._serve(
            {
                "/generate": self._generate,
                "/weights/files": self._weights_files,
                "/weights/join": self._weights_join,
                "/weights/receive": self._weights_receive,
            }
        )

    def _serve(self, routes: dict[str, Callable[[], None]]) -> None:
        route = routes.get(self.path)
        try:
            if route is None:
                raise _RefusedError(404, f"there is no {self.command} {self.path}")
            route()
        except _RefusedError as error:
            self._fail(error.status, str(error))
        except (protocol.ProtocolError, RequestError) as error:
            self._fail(400, str(error))
        except EngineFailedError as error:
            self._fail(503, f"the engine has failed: {error}")
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True  # the asker has gone
        except Exception as error:  # noqa: BLE001 - told to the asker, and the server goes on
            self._fail(500, f"{type(error).__name__}: {error}")

    def _health(self) -> None:
        self._answer(self.server.service.health)

    def _statistics(self) -> None:
        self._answer(self._ready()[1].snapshot())

    def _generate(self) -> None:
        request = self._read(protocol.GenerateRequest)
        _, loop = self._ready()
        have = self.server.service.health.weights
        if request.weights != have:
            raise _RefusedError(
                409,
                f"the server has weights {have or 'of its start'!r} and not {request.weights!r}: "
                "another trainer uses it, or it was started anew",
            )
        job = loop.start(request)
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/jsonl")
            self.end_headers()
            self._tell_until_done(job)
        except BaseException:
            loop.cancel(job)
            raise

    def _tell_until_done(self, job: Job) -> None:
        hears_ends, last_s = job.request.tell_ended, time.monotonic()
        while not wait_for(job, _BEAT_S if hears_ends else _TELL_S):
            if self._asker_has_gone():
                raise ConnectionResetError
            progress = None
            if not hears_ends or time.monotonic() - last_s >= _TELL_S:
                progress, last_s = job.progress(), time.monotonic()
            self._line(protocol.Event(progress, job.ended_since()))
        try:
            event = protocol.Event(result=job.result())
        except Exception as error:  # noqa: BLE001 - the status has been sent: it goes into a line
            event = protocol.Event(error=str(error))
        self._line(event)

    def _asker_has_gone(self) -> bool:
        # It sends nothing after its request, so anything to read is the end of the connection.
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable)

    def _weights_files(self) -> None:
        request = self._read(protocol.FilesRequest)
        paths = checked_files(request.files, self.server.service.health.folders)
        engine, loop = self._ready()
        self._take(request.version, lambda: engine.load_files([str(p) for p in paths]), loop)

    def _weights_join(self) -> None:
        request = self._read(protocol.JoinRequest)
        engine, loop = self._ready()
        loop.call(lambda: engine.join(request))
        self._answer({})

    def _weights_receive(self) -> None:
        request = self._read(protocol.ReceiveRequest)
        engine, loop = self._ready()
        self._take(request.version, engine.receive, loop)

    def _take(
        self, version: str, function: Callable[[], tuple[str, int]], loop: EngineLoop
    ) -> None:
        service = self.server.service
        started = time.perf_counter()
        # If it fails half way the weights are nobody's: no request for a version is served then.
        service.health = replace(service.health, weights=_UNFINISHED)
        signature, tensors = loop.call(function)
        service.health = replace(service.health, weights=version)
        seconds = time.perf_counter() - started
        self._answer(protocol.WeightsTaken(signature, tensors, seconds))

    def _ready(self) -> tuple[ServedEngine, EngineLoop]:
        service = self.server.service
        if service.engine is None or service.loop is None:
            raise _RefusedError(503, f"the engine is {service.health.status}")
        return service.engine, service.loop

    def _read(self, kind: type[Any]) -> Any:
        # A page in a browser can only send this type after asking, which nothing here answers.
        if self.headers.get_content_type() != protocol.JSON_TYPE:
            raise _RefusedError(415, f"the body has to be {protocol.JSON_TYPE}")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _RefusedError(411, "a Content-Length is missing")
        if int(length) > protocol.MAX_REQUEST_BYTES:
            self.close_connection = True
            raise _RefusedError(
                413,
                f"{length} bytes are more than a request may have ({protocol.MAX_REQUEST_BYTES})",
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionResetError
        return protocol.decode(kind, body)

    def _answer(self, message: Any, status: int = 200) -> None:
        body = protocol.encode(message)
        self.send_response(status)
        self.send_header("Content-Type", protocol.JSON_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _fail(self, status: int, message: str) -> None:
        try:
            self._answer(protocol.Failure(message), status)
        except OSError:
            self.close_connection = True

    def _line(self, event: protocol.Event) -> None:
        self.wfile.write(protocol.encode(event) + b"\n")
        self.wfile.flush()
