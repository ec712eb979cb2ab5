"""The live page: a server on loopback that sends what changed as server-sent events.

A request needs the token of the printed address, and must name this server as its host: a page of
another site can neither read nor guess it.
"""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from grpo_doctor.watch.snapshot import Watched, as_json
from grpo_doctor_reports.schema.watch import FindingNow, Snapshot

LOOPBACK = "127.0.0.1"
_LOOK_S, _BEAT_S = 0.5, 15.0
# A report takes a processor for seconds: at most a tenth of the time.
_REPORT_S, _REPORT_SHARE = 5.0, 10.0
_REPORT_AT_MOST_S = 600.0


class Live:
    """The newest snapshot and report of a run, and who waits for the next one."""

    def __init__(self, watched: Watched, hear: Callable[[Snapshot], None]) -> None:
        self._watched, self._hear = watched, hear
        self._news = threading.Condition()
        self._stop = threading.Event()
        self.now = watched.look()
        self.report = b""
        self.version = 0
        self._findings: list[FindingNow] | None = None

    def start(self) -> None:
        """Look at the run from now on, and draw its report, each in a thread."""
        for work in (self._look, self._draw):
            threading.Thread(target=work, daemon=True, name="grpo-doctor-watch").start()

    def close(self) -> None:
        """End both."""
        self._stop.set()
        with self._news:
            self._news.notify_all()

    def next(self, seen: tuple[float, int], at_most_s: float) -> tuple[Snapshot, int] | None:
        """Wait for a snapshot or a report that is not the `seen` one; None when time is up."""

        def is_new() -> bool:
            return self._stop.is_set() or seen != (self.now.now_unix_s, self.version)

        with self._news:
            return (self.now, self.version) if self._news.wait_for(is_new, at_most_s) else None

    @property
    def is_over(self) -> bool:
        """Whether `close` was called."""
        return self._stop.is_set()

    def _look(self) -> None:
        took_s = 0.0
        while not self._stop.wait(max(_LOOK_S, 5 * took_s)):
            begun_s = time.monotonic()
            now = msgspec.structs.replace(self._watched.look(), findings=self._findings)
            took_s = time.monotonic() - begun_s
            self._hear(now)
            with self._news:
                self.now = now
                self._news.notify_all()

    def _draw(self) -> None:
        """Draw the report in a process of its own, whose memory goes with it."""
        drawn, wait_s = "", 0.0
        while not self._stop.wait(wait_s):
            wait_s = _REPORT_S
            state = f"{self.now.steps[-1:]}{self.now.state}{len(self.now.verdicts)}"
            if state == drawn or self.now.state == "gone":
                continue
            begun_s = time.monotonic()
            command = [sys.executable, "-m", "grpo_doctor", "report", "--quiet", "--read-only"]
            command += ["--findings-first", "-o", "-", "--format", "html"]
            try:
                done = subprocess.run(
                    [*command, str(self._watched.run_dir)],
                    stdin=subprocess.DEVNULL, capture_output=True,
                    timeout=_REPORT_AT_MOST_S, check=False,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired):
                continue
            wait_s = max(_REPORT_S, _REPORT_SHARE * (time.monotonic() - begun_s))
            if done.returncode == 0 and not self._stop.is_set():
                findings, _, page = done.stdout.partition(b"\n")
                self._findings = msgspec.json.decode(findings, type=list[FindingNow])
                with self._news:
                    drawn, self.report = state, page
                    self.version += 1
                    self._news.notify_all()


class Server(ThreadingHTTPServer):
    """Serves one run on loopback."""

    daemon_threads = True

    def __init__(self, live: Live, page: bytes, port: int) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.live, self.page, self.token = live, page, secrets.token_urlsafe(16)

    @property
    def port(self) -> int:
        """The port that was asked for, or a free one."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address with the token."""
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that go away."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer the page, the report, or the stream of events."""
        target = urlsplit(self.path)
        token = parse_qs(target.query).get("token", [""])[0]
        names = [f"{name}:{self.server.port}" for name in (LOOPBACK, "localhost")]
        origin = self.headers.get("Origin")
        foreign = origin is not None and origin.removeprefix("http://") not in names
        if (
            not secrets.compare_digest(token.encode(), self.server.token.encode())
            or self.headers.get("Host") not in names
            or foreign
        ):
            self._answer(HTTPStatus.FORBIDDEN, b"This page needs the address that was printed.")
        elif target.path == "/":
            self._answer(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")
        elif target.path == "/report":
            self._answer(HTTPStatus.OK, self.server.live.report, "text/html; charset=utf-8")
        elif target.path == "/events":
            self._events()
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"Nothing is here.")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self._say_kind(kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _say_kind(self, kind: str) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")

    def _events(self) -> None:
        self.send_response(HTTPStatus.OK)
        self._say_kind("text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.connection.settimeout(2 * _BEAT_S)
        live, seen = self.server.live, (0.0, -1)
        while not live.is_over:
            news = live.next(seen, _BEAT_S)
            if news is None:
                self.wfile.write(b": still here\n\n")
                continue
            snapshot, version = news
            self.wfile.write(b"event: now\ndata: " + as_json(snapshot) + b"\n\n")
            if version != seen[1] and version:
                self.wfile.write(b"event: report\ndata: %d\n\n" % version)
            seen = (snapshot.now_unix_s, version)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep the terminal for what matters."""


def forwarding(port: int) -> str:
    """Return the command that brings the page to a laptop."""
    return f"ssh -N -L {port}:{LOOPBACK}:{port} {socket.gethostname()}"
