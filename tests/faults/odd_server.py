"""Servers that are up and of no use: what reward functions, loaders and rollouts wait for.

`python odd_server.py HOW [FOLDER]` prints its address as JSON and ends with its standard input.
HOW is the name of a function below.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"


class _Http(BaseHTTPRequestHandler):
    """Is well by its GET /health; its POST is `answer`."""

    protocol_version = "HTTP/1.1"
    chunk = b"d\r\ndata: token\n\n\r\n"

    def do_GET(self) -> None:
        if self.path == "/health":
            self.say(200, b"{}")
        else:
            self.answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer()

    def answer(self) -> None:
        self.say(200, b'{"score": 1.0}')

    def say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def chunks(self, every_s: float) -> Iterator[None]:
        """A stream of pieces, one for each turn of the caller's loop."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in itertools.count():
            self.wfile.write(self.chunk)
            yield
            time.sleep(every_s)

    def log_message(self, *_: Any) -> None:
        """Keeps the log quiet."""


class _Generates(_Http):
    def answer(self) -> None:
        threading.Event().wait()


class _Limits(_Http):
    def answer(self) -> None:
        self.say(429, b"too many requests", Retry_After="3600")


class _LimitsBriefly(_Http):
    turn = itertools.count(1)

    def answer(self) -> None:
        if next(self.turn) % 4:
            self.say(429, b"too many requests", Retry_After="2")
        else:
            super().answer()


class _Breaks(_Http):
    def answer(self) -> None:
        for count, _ in enumerate(self.chunks(0.1)):
            if count == 3:
                threading.Event().wait()


class _Streams(_Http):
    def answer(self) -> None:
        for count, _ in enumerate(self.chunks(0.4)):
            if count == 30:
                break
        self.wfile.write(b"0\r\n\r\n")


class _Signs(_Http):
    chunk = b"9\r\n: alive\n\n\r\n"

    def answer(self) -> None:
        for _ in self.chunks(1.0):
            pass


class _LongTail(_Http):
    def answer(self) -> None:
        time.sleep(random.choice((0.1, 0.2, 0.4, 0.8, 3.0)))
        super().answer()


class _Thorough(_Http):
    def answer(self) -> None:
        time.sleep(4.0)
        super().answer()


_HTTP: dict[str, type[_Http]] = {
    "answers": _Http,
    "generates": _Generates,
    "limits": _Limits,
    "limits-briefly": _LimitsBriefly,
    "breaks": _Breaks,
    "streams": _Streams,
    "long-tail": _LongTail,
    "signs": _Signs,
    "takes-four-seconds": _Thorough,
}


def full_backlog() -> dict[str, Any]:
    """Accepts nobody, and its queue is full: the next to come is not even refused."""
    listener = socket.socket()
    listener.bind((HOST, 0))
    listener.listen(0)
    _KEPT.append(listener)
    for _ in range(2):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(listener.getsockname())
        _KEPT.append(client)
    return {"port": listener.getsockname()[1]}


def silent_socket(folder: str) -> dict[str, Any]:
    """Takes requests on a Unix socket and answers none."""
    listener = socket.socket(socket.AF_UNIX)
    path = str(Path(folder, "sandbox.sock"))
    listener.bind(path)
    listener.listen()
    _KEPT.append(listener)

    def accept() -> None:
        while True:
            _KEPT.append(listener.accept()[0])

    threading.Thread(target=accept, daemon=True).start()
    return {"socket": path}


def silent_resolver() -> dict[str, Any]:
    """A name server that answers nobody."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    address = f"127.9.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"
    server.bind((address, 53))
    _KEPT.append(server)
    return {"resolver": address}


_KEPT: list[socket.socket] = []


def start(mode: str, folder: str) -> dict[str, Any]:
    if mode in _HTTP:
        server = ThreadingHTTPServer((HOST, 0), _HTTP[mode])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return {"port": server.server_address[1]}
    if mode == "silent-socket":
        return silent_socket(folder)
    return full_backlog() if mode == "full-backlog" else silent_resolver()


@contextlib.contextmanager
def running(mode: str) -> Iterator[dict[str, Any]]:
    """The server as a process that is nobody's of the job: where it listens, and its `server`."""
    with tempfile.TemporaryDirectory(prefix="server-") as folder:
        process = spawn(mode, folder)
        try:
            yield facts(process)
        finally:
            process.kill()
            process.wait()


def spawn(mode: str, folder: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-S", __file__, mode, folder]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def facts(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a server says once it is up, and its `server` process."""
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer | {"server": process.pid}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(start(sys.argv[1], sys.argv[2])) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)
