"""What tests of the probes share: a recording of this very process, other processes, threads."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.procs import live
from grpo_doctor_probes.record import recorder
from tests.recording import Row, read_rows, spans_file


@dataclass(frozen=True)
class Recorded:
    """What this process recorded into `run_dir`."""

    run_dir: Path

    @property
    def path(self) -> Path:
        return spans_file(self.run_dir)

    @property
    def rows(self) -> list[Row]:
        return read_rows(self.path)

    @property
    def names(self) -> list[str]:
        """Those of its records, in the order of their ends."""
        return [row.name for row in self.rows]

    @property
    def header(self) -> live.Header:
        return live.read_header(self.path)


class Pages(ThreadingHTTPServer):
    """Answers at these paths, each with a status and a text, and `other` at all others."""

    daemon_threads = True

    def __init__(self, other: tuple[int, bytes], **pages: tuple[int, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.other, self.pages = other, {f"/{name}": page for name, page in pages.items()}

    def __enter__(self) -> Pages:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Pages

    def do_GET(self) -> None:
        status, text = self.server.pages.get(self.path, self.server.other)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


class FakeChild:
    """A child process that gives these answers: an error is raised, None is silence, as the end."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers, self.left = list(answers), False
        self.arguments: tuple[str, ...] = ()
        self.requests: list[str] = []
        self.waits: list[float] = []

    def __call__(self, module: str, *arguments: str) -> FakeChild:
        assert not self.requests, "it was started before"
        self.arguments = arguments
        return self

    def ask(self, line: str) -> None:
        self.requests.append(line)

    def line(self, at_most_s: float) -> str | None:
        self.waits.append(at_most_s)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def state(self) -> str:
        return "D"

    def leave(self) -> None:
        self.left = True


@pytest.fixture(autouse=True)
def not_recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test begins and ends without a recording, and with no wish for one."""
    for name in ("GRPO_DOCTOR_RUN_DIR", "GRPO_DOCTOR_MAX_MB", "RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(recorder._Start, "refused", None)
    monkeypatch.setattr(recorder._Start, "inherited", None)
    yield
    recorder.stop()


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recorded]:
    """Records this process as rank 0; no collection comes unasked and adds a counter."""
    assert recorder.start(str(tmp_path))
    gc.disable()
    yield Recorded(tmp_path)
    gc.enable()


@contextmanager
def running(
    *command: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has printed a line and waits for its input, until it is killed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "it did not get ready"
        try:
            yield process
        finally:
            process.kill()


def full(*_: object) -> int:
    """In place of what writes to a disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


def fill(writer: int) -> None:
    """Fills a pipe to its last byte."""
    os.set_blocking(writer, False)
    for size in (65536, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(size))
    os.set_blocking(writer, True)


def active() -> recorder.Recorder:
    """What records this process."""
    assert recorder.ACTIVE is not None
    return recorder.ACTIVE


def in_threads(work: Callable[[], object], count: int = 1) -> None:
    """Does it in so many threads at once, and waits for their end."""
    threads = [threading.Thread(target=work, name=f"worker {n}") for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def until(condition: Callable[[], Any], at_most_s: float = 60.0) -> Any:
    """Wait until a condition holds; what it gave then."""
    deadline = time.monotonic() + at_most_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
    return value
