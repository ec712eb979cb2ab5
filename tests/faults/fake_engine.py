"""A rollout engine as vLLM's from outside: an HTTP front with /health, /metrics and /generate, and
an engine core in a child process of that name.

`python fake_engine.py FOLDER HOW`, and HOW says what the core does from the second request on:
`waits` for room in its cache for ever, `spins` (preempts one request for the other for ever), or
`works` for 8 s. Writes FOLDER/engine.json when it is up.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

PR_SET_NAME = 15
WORK_S = 8.0
CORE = "VLLM::EngineCore"
_METRICS = """\
vllm:num_requests_running{{model_name="tiny"}} {running}
vllm:num_requests_waiting{{model_name="tiny"}} {waiting}
vllm:kv_cache_usage_perc{{model_name="tiny"}} {cache}
vllm:generation_tokens_total{{model_name="tiny"}} {tokens}
"""


def start(folder: Path, how: str) -> subprocess.Popen[bytes]:
    """The engine, as a child of this process."""
    command = [sys.executable, "-S", __file__, str(folder), how]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def core(requests: socket.socket, how: str) -> None:
    """Answers the first request at once, the later ones as HOW says; a `t` is a token."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, CORE.encode(), 0, 0, 0)
    requests.recv(1)
    requests.send(b"e")
    while requests.recv(1):
        while how == "spins":
            pass
        if how == "waits":
            threading.Event().wait()
        until = time.monotonic() + WORK_S
        while time.monotonic() < until:
            sum(range(200_000))
            requests.send(b"t")
        requests.send(b"e")


class _Front(BaseHTTPRequestHandler):
    core: ClassVar[socket.socket]
    tokens: ClassVar[int] = 0
    waiting: ClassVar[int] = 0

    def do_GET(self) -> None:
        front = type(self)
        page = ""
        if self.path == "/metrics":
            page = _METRICS.format(
                running=0, waiting=front.waiting, cache=float(front.waiting > 0),
                tokens=front.tokens,
            )  # fmt: skip
        self._answer(page)

    def do_POST(self) -> None:
        front = type(self)
        front.waiting += 1
        if not front._ask():
            threading.Event().wait()  # the core is dead, and this front does not know what to do
        front.waiting -= 1
        self._answer("tokens")

    @classmethod
    def _ask(cls) -> bool:
        try:
            cls.core.send(b"g")
            while (said := cls.core.recv(1)) == b"t":
                cls.tokens += 1
        except OSError:
            return False
        return said == b"e"

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Keeps the log quiet."""


def serve(folder: Path, how: str) -> None:
    """The HTTP front and its core."""
    ours, theirs = socket.socketpair()
    pid = subprocess.Popen(
        [CORE, "-S", __file__, "core", str(theirs.fileno()), how],
        executable=sys.executable, pass_fds=[theirs.fileno()],
    ).pid  # fmt: skip
    theirs.close()
    _Front.core = ours
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Front)
    facts = {"port": server.server_address[1], "core": pid, "front": os.getpid()}
    (folder / "engine.part").write_text(json.dumps(facts))
    (folder / "engine.part").rename(folder / "engine.json")
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "core":
        core(socket.socket(fileno=int(sys.argv[2])), sys.argv[3])
    else:
        serve(Path(sys.argv[1]), sys.argv[2])
