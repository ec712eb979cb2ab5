"""A module of ours in a process of its own, that is asked by lines and never waited for.

A call into a driver may never return, nor may the process that made it then be ended: `nvidia-smi`
in state D is a known sight (leptonai/gpud#117). A process that made that call in a thread could
not answer Ctrl-C. So a child makes it, and its silence is the answer.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time

from grpo_doctor_probes.procs.procstat import state_of

CHILD = "grpo_doctor_probes.gpu.child"
# Without `site`: what a `sitecustomize` of the user prints would be among the answers.
_START = (
    "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); import importlib;"
    "importlib.import_module(sys.argv[1]).main(sys.argv[2:])"
)
_CHUNK_BYTES = 1 << 16
_MOST_BYTES = 1 << 22  # of one line
_UNINTERRUPTIBLE = "D"
_left_behind: list[subprocess.Popen[bytes]] = []


class EndedError(Exception):
    """The child has ended; the message says how."""


class Child:
    """Runs `main(arguments)` of a module in a session of its own: Ctrl-C is not for it.

    It must read its standard input and end at the end of that, which is also how it learns that we
    have died. Raises OSError where no process can be started.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        _reap()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, "\n".join(sys.path), module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        self._buffer = b""
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._output, self._input = self._process.stdout, self._process.stdin
        os.set_blocking(self._output.fileno(), False)
        self._poll = select.poll()
        self._poll.register(self._output, select.POLLIN)

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def ask(self, line: str) -> None:
        """Send a line; send no second one before the answer. Raises EndedError."""
        try:
            self._input.write(line.encode() + b"\n")
        except OSError as error:
            raise EndedError(self._how_it_ended()) from error

    def line(self, at_most_s: float) -> str | None:
        """The next line that it says; None where none has come in time. Raises EndedError."""
        deadline = time.monotonic() + at_most_s
        while b"\n" not in self._buffer:
            if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1e3):
                return None
            part = os.read(self._output.fileno(), _CHUNK_BYTES)
            if not part or len(self._buffer) > _MOST_BYTES:
                raise EndedError(self._how_it_ended())
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace")

    def state(self) -> str:
        """Return the letter of its state, as in /proc/PID/stat; empty where it has gone."""
        return state_of(f"/proc/{self.pid}")

    def leave(self) -> None:
        """Have no more to do with it. It is ended, but for one in state D, which no signal reaches:
        that one ends by itself when its call returns, since no one reads what it says.
        """
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError):
                pipe.close()
        if self.state() != _UNINTERRUPTIBLE:
            with contextlib.suppress(OSError):
                self._process.kill()
        _left_behind.append(self._process)
        _reap()

    def _how_it_ended(self) -> str:
        code = self._process.poll()
        return "its process ended" if code is None else f"its process ended with {code}"


def _reap() -> None:
    """Collect those that have ended by now."""
    _left_behind[:] = [process for process in _left_behind if process.poll() is None]
