"""The trainer's side of the HTTP connection: one request at a time, each with a deadline."""

from __future__ import annotations

import http.client
import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.serve import protocol
from grpo_doctor_trainer.serve.state import VERSION, Health

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_trainer.rollout import OnEnded

_T = TypeVar("_T")
_HEALTH_TIMEOUT_S = 10.0
_POLL_S = 0.5
_TELL_S = 15.0  # how often a wait says that it goes on
# A machine that vanished sends nothing: seconds without traffic, between probes, and probes.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class ServerClient:
    """Talks to one server.

    Args:
        host: where it runs.
        port: its HTTP port.
        patience_s: seconds of silence until it is an error.
    """

    def __init__(self, host: str, port: int, patience_s: float) -> None:
        self._host, self._port, self._patience = host, port, patience_s
        self.log = ""

    @property
    def address(self) -> str:
        """Where the server is."""
        return f"http://{self._host}:{self._port}"

    def health(self) -> Health:
        """Asks how the server is.

        Raises:
            OSError: nothing answers there.
            RolloutError: something else answers there.
        """
        health = self._ask("GET", "/health", b"", Health, _HEALTH_TIMEOUT_S)
        self.log = health.log
        if health.protocol != VERSION:
            raise self._error(
                f"speaks version {health.protocol} of the protocol, this trainer "
                f"{VERSION}: install the same grpo-doctor on both"
            )
        return health

    def wait_until_ready(self, seconds: float, tell: Callable[[str], None]) -> Health:
        """Waits for the server to come up.

        Args:
            seconds: until it is an error.
            tell: is given a line now and then while it waits.

        Raises:
            RolloutError: it has failed, or is not there in time.
        """
        started = reported = time.monotonic()
        while True:
            try:
                health = self.health()
                if health.status == "ready":
                    return health
                if health.status == "failed":
                    raise self._error(f"failed to start: {health.detail}")
                state = f"{health.detail}; log {health.log}"
            except OSError as error:
                state = f"nothing answers ({error})"
            now = time.monotonic()
            if now - started > seconds:
                raise self._error(
                    f"is not ready after {seconds:g} s: {state}. Start it with "
                    f"`python -m grpo_doctor_trainer.serve --port {self._port}` and the same "
                    "--model, or raise --vllm_server_timeout"
                )
            if now - reported > _TELL_S:
                reported = now
                tell(f"waiting for the server at {self.address}, {now - started:.0f} s: {state}")
            time.sleep(_POLL_S)

    def generate(
        self,
        request: protocol.GenerateRequest,
        progress: Callable[[protocol.Progress], None],
        on_ended: OnEnded | None = None,
    ) -> protocol.Generated:
        """Has prompts completed.

        Args:
            request: the prompts of this rank.
            progress: is called about once a second while the engine makes steps.
            on_ended: with `tell_ended`, is given completions as they end.

        Raises:
            RolloutError: the server refused, failed, died or fell silent.
        """
        return self._call(lambda: self._generate(request, progress, on_ended), "while it generated")

    def call(self, path: str, message: Any, kind: type[_T]) -> _T:
        """Sends a message and waits for the answer.

        Args:
            path: of the server.
            message: the body of the request.
            kind: of the answer.

        Raises:
            RolloutError: the server refused, failed, died or fell silent.
        """
        body = protocol.encode(message)
        return self._call(
            lambda: self._ask("POST", path, body, kind, self._patience), f"during {path}"
        )

    def own_address(self) -> str:
        """Gives the address of this machine as seen from the server's."""
        with socket.create_connection((self._host, self._port), _HEALTH_TIMEOUT_S) as connection:
            return str(connection.getsockname()[0])

    def _call(self, function: Callable[[], _T], when: str) -> _T:
        try:
            return function()
        except TimeoutError as error:
            raise self._error(
                f"has been silent for {self._patience:g} s {when}. If it only needs longer, raise "
                "--vllm_timeout"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._error(
                f"is gone {when} ({type(error).__name__}: {error}). Start it again, and the "
                "trainer with --resume_from_checkpoint"
            ) from error

    def _generate(
        self,
        request: protocol.GenerateRequest,
        progress: Callable[[protocol.Progress], None],
        on_ended: OnEnded | None,
    ) -> protocol.Generated:
        with closing(self._connect(self._patience)) as connection:
            response = self._send(connection, "POST", "/generate", protocol.encode(request))
            for line in response:
                event = self._decoded(protocol.Event, line)
                if event.progress is not None:
                    progress(event.progress)
                if on_ended is not None:
                    on_ended(event.ended)
                if event.error is not None:
                    raise self._error(f"could not generate: {event.error}")
                if event.result is not None:
                    return event.result
            raise ConnectionResetError("it ended in the middle of its answer")

    def _ask(self, method: str, path: str, body: bytes, kind: type[_T], timeout_s: float) -> _T:
        with closing(self._connect(timeout_s)) as connection:
            response = self._send(connection, method, path, body)
            return self._decoded(kind, response.read())

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        connection.connect()
        for option, value in _KEEPALIVE:
            connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes
    ) -> http.client.HTTPResponse:
        connection.request(method, path, body or None, {"Content-Type": protocol.JSON_TYPE})
        response = connection.getresponse()
        if response.status != http.client.OK:
            text = response.read()
            try:
                reason = protocol.decode(protocol.Failure, text).error
            except protocol.ProtocolError:
                reason = text[:200].decode("utf-8", "replace")
            raise self._error(f"refused {method} {path} ({response.status}): {reason}")
        return response

    def _decoded(self, kind: type[_T], body: bytes) -> _T:
        try:
            return protocol.decode(kind, body)
        except protocol.ProtocolError as error:
            raise self._error(
                f"does not answer like a grpo-doctor rollout server ({error}). Check "
                "--vllm_server_host and --vllm_server_port"
            ) from error

    def _error(self, trouble: str) -> RolloutError:
        log = f" Its log: {self.log}" if self.log else ""
        return RolloutError(f"the vLLM server at {self.address} {trouble}.{log}")
