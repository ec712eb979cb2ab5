"""A rollout engine as vLLM's from outside: an HTTP front with /health, /metrics and /generate, and
an engine core in a child process of that name.

`python fake_engine.py FOLDER HOW`, and HOW says what the core does from the second request on:
`waits` for room in its cache for ever, `spins` (preempts one request for the other for ever), or
`works` for 8 s. Writes FOLDER/engine.json when it is up.

What vLLM 0.32 does is looked at in `tests/integration/test_attach_vllm.py`. Two things differ. Its
own front notices that its core has died, answers 500 and ends; this one waits, as fronts do that
frameworks put before an engine. And it does not start with a cache in which its longest sequence
has no room, so that its preemptions end; those of earlier versions did not.
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
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

PR_SET_NAME = 15
WORK_S = 8.0
CORE = "VLLM::EngineCore"
_METRICS = """\
vllm:num_requests_running{{engine="0",model_name="tiny"}} {running}
vllm:num_requests_waiting{{engine="0",model_name="tiny"}} {waiting}
vllm:kv_cache_usage_perc{{engine="0",model_name="tiny"}} {cache}
vllm:num_preemptions_total{{engine="0",model_name="tiny"}} {preempted}
vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {tokens}
"""


def start(folder: Path, mode: str) -> subprocess.Popen[bytes]:
    """The engine, as a child of this process."""
    command = [sys.executable, "-S", __file__, str(folder), mode]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def core(requests: socket.socket, mode: str) -> None:
    """Answers the first request at once, the later ones as HOW says.

    `t` is a token, `p` a preemption, `e` the end.
    """
    ctypes.CDLL(None).prctl(PR_SET_NAME, CORE.encode(), 0, 0, 0)
    requests.recv(1)
    requests.send(b"e")
    while requests.recv(1):
        while mode == "spins":
            sum(range(200_000))
            requests.send(b"p")
        if mode == "waits":
            threading.Event().wait()
        until = time.monotonic() + WORK_S
        while time.monotonic() < until:
            sum(range(200_000))
            requests.send(b"t")
        requests.send(b"e")


class _Front(BaseHTTPRequestHandler):
    core: ClassVar[socket.socket]
    messages: ClassVar[Counter[bytes]] = Counter()
    open_requests: ClassVar[int] = 0
    runs: ClassVar[bool] = False

    def do_GET(self) -> None:
        front = type(self)
        page = ""
        if self.path == "/metrics":
            page = _METRICS.format(
                running=front.open_requests * front.runs,
                waiting=front.open_requests * (not front.runs),
                cache=float(front.open_requests > 0),
                tokens=front.messages[b"t"], preempted=front.messages[b"p"],
            )  # fmt: skip
        self._answer(page)

    def do_POST(self) -> None:
        front = type(self)
        front.open_requests += 1
        if not front._ask():
            threading.Event().wait()  # the core is dead, and this front does not know what to do
        front.open_requests -= 1
        self._answer("tokens")

    @classmethod
    def _ask(cls) -> bool:
        try:
            cls.core.send(b"g")
            while (message := cls.core.recv(1)) in (b"t", b"p"):
                cls.messages[message] += 1
        except OSError:
            return False
        return message == b"e"

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Keeps the log quiet."""


def serve(folder: Path, mode: str) -> None:
    """The HTTP front and its core."""
    ours, theirs = socket.socketpair()
    pid = subprocess.Popen(
        [CORE, "-S", __file__, "core", str(theirs.fileno()), mode],
        executable=sys.executable, pass_fds=[theirs.fileno()],
    ).pid  # fmt: skip
    theirs.close()
    _Front.core, _Front.runs = ours, mode == "works"
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
