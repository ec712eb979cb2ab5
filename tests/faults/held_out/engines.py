"""Rollout engines as vLLM's and SGLang's from outside, each with one way to bring out nothing.

`python engines.py HOW FOLDER [LOCK]` writes FOLDER/engine.json with its port and PIDs. HOW:
`pauses` between POST /pause and POST /resume; `shards` tokens over two workers; `compiles` with
LOCK held, in its core; `routes` to a worker with HTTP, whose return it waits for where it has gone.
"""

from __future__ import annotations

import ctypes
import fcntl
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

PR_SET_NAME = 15
HOST = "127.0.0.1"
CORE = "VLLM::EngineCore"
Child = Callable[[socket.socket], None]


class _Front(BaseHTTPRequestHandler):
    """Health, metrics, and what `generate` of the class says."""

    generate: ClassVar[Callable[[], None]]
    running: ClassVar[int] = 0
    tokens: ClassVar[int] = 0
    runs: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        front = type(self)
        page = ""
        if self.path == "/metrics":
            page = (
                f'vllm:num_requests_running{{engine="0"}} {front.running}\n'
                f'vllm:num_requests_waiting{{engine="0"}} 0\n'
                f'vllm:generation_tokens_total{{engine="0"}} {front.tokens}\n'
            )
        self._answer(page)

    def do_POST(self) -> None:
        front = type(self)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/pause":
            front.runs.clear()
        elif self.path == "/resume":
            front.runs.set()
        elif self.path == "/generate":
            front.running += 1
            front.runs.wait()
            front.generate()
            front.tokens += 1
            front.running -= 1
        self._answer("{}")

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Keeps the log quiet."""


def _forked(name: str, child: Child) -> tuple[socket.socket, int]:
    """A child process of that name, and our end of its socket."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
        child(theirs)
        os._exit(0)
    theirs.close()
    return ours, pid


def _echo(requests: socket.socket) -> None:
    """A worker: one piece of a token for every request."""
    while requests.recv(1):
        requests.send(b"t")


def _sharded(requests: socket.socket, facts: Path) -> None:
    """A core with two workers, both of which every token needs."""
    workers = [_forked(f"VLLM::Worker_TP{shard}", _echo) for shard in range(2)]
    facts.write_text(json.dumps([pid for _, pid in workers]))
    while requests.recv(1):
        for worker, _ in workers:
            worker.send(b"g")
        for worker, _ in workers:
            worker.recv(1)
        requests.send(b"t")


def _compiling(requests: socket.socket, lock: Path) -> None:
    """A core that compiles its kernels at the first request, as one process of a host at a time."""
    while requests.recv(1):
        with lock.open("w") as cache:
            fcntl.flock(cache, fcntl.LOCK_EX)
        requests.send(b"t")


def _serving(port_to: socket.socket) -> None:
    server = ThreadingHTTPServer((HOST, 0), _Front)
    port_to.send(str(server.server_port).encode())
    server.serve_forever()


def _ask(core: socket.socket) -> Callable[[], None]:
    def ask() -> None:
        core.send(b"g")
        core.recv(1)

    return ask


def _route(port: int) -> None:
    """Asks the worker, and waits for its return while there is nobody."""
    while True:
        try:
            worker = http.client.HTTPConnection(HOST, port)
            worker.request("POST", "/generate", b"{}")
            worker.getresponse().read()
        except OSError:
            time.sleep(1)
        else:
            return


def serve(mode: str, folder: Path, lock: str = "") -> None:
    """The front, with what stands behind it."""
    _Front.runs.set()
    _Front.generate = staticmethod(lambda: None)
    pids: dict[str, int] = {}
    if mode == "shards":
        core, pids["core"] = _forked(CORE, lambda end: _sharded(end, folder / "workers.json"))
        _Front.generate = staticmethod(_ask(core))
    elif mode == "compiles":
        core, pids["core"] = _forked(CORE, lambda end: _compiling(end, Path(lock)))
        _Front.generate = staticmethod(_ask(core))
    elif mode == "routes":
        connection, pids["worker"] = _forked("sglang::worker", _serving)
        port = int(connection.recv(16))
        _Front.generate = staticmethod(lambda: _route(port))
    server = ThreadingHTTPServer((HOST, 0), _Front)
    (folder / "engine.part").write_text(json.dumps(pids | {"port": server.server_port}))
    (folder / "engine.part").rename(folder / "engine.json")
    server.serve_forever()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
