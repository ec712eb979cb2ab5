"""A process that runs reward functions: `Worker` is the rank's end of its pipe, `main` the other.

It is started once, by exec, so nothing of the trainer is in it: no threads that a fork would have
cut off, no process group, no CUDA, and no torch unless a function imports it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any, NoReturn

from grpo_doctor_probes import phase
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import set_up_console
from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.accuracy import math_verify
from grpo_doctor_trainer.rewards.functions import Answer, Columns, RewardFunction, answers, load

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from grpo_doctor_trainer.rewards.worker import main; main(*map(int, sys.argv[2:]))"
)
_STACK_SIGNAL = signal.SIGUSR1  # has the worker write its stack to a file, as it does in a crash
_FRAME = re.compile(r'^\s*File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_POLL_S = 0.25
_STACK_S = 1.0
_END_S = 2.0


class Worker:
    """One process with some of the functions, which it calls in turn with each batch."""

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self._functions = {function.name: function for function in functions}
        self._limit_s = config.reward_timeout
        self._running: list[str] = []
        self._answers: dict[str, Answer] = {}
        self._texts: list[str] = []
        self._since_s = 0.0
        self._pipe, theirs = Pipe()
        self._stack = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        numbers = (theirs.fileno(), self._stack.fileno(), os.getpid())
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path), *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                pass_fds=numbers[:2],
                start_new_session=True,  # Ctrl-C is for the rank; and all it starts can be killed
            )
        except OSError as error:
            raise RewardError(
                f"no process for the reward functions can be started: {error}; "
                "--reward_num_workers 0 runs them in the trainer's own"
            ) from error
        theirs.close()
        self._pipe.send((config, list(functions)))

    def wait_until_loaded(self) -> None:
        """Wait until the functions are imported."""
        sources = ", ".join(function.source for function in self._functions.values())
        self._received(f"a process that loads the reward functions {sources}")

    def begin(self, columns: Columns) -> None:
        """Send a whole batch to the process, which calls its functions at once."""
        try:
            message = pickle.dumps(columns, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise RewardError(
                f"the columns {', '.join(columns)} cannot be sent to the process of the reward "
                f"functions {', '.join(each.source for each in self._functions.values())}: "
                f"{type(error).__name__}: {error}. Store plain values in them, or use "
                "--reward_num_workers 0"
            ) from error
        self._answers, self._running = {}, list(self._functions)
        self._since_s, self._texts = time.monotonic(), list(columns.get("completions", ()))
        with contextlib.suppress(OSError):  # it has ended: `result` says so
            self._pipe.send_bytes(message)

    def result(self, name: str) -> Answer:
        """Wait for a function's scores."""
        while name not in self._answers:
            function = self._functions[self._running[0]]
            # Its own children may hold its pipe open, so its end is looked for as well.
            if self._pipe.poll(_POLL_S) or self._process.poll() is not None:
                answer = self._received(f"the process of the reward function {function.source}")
                self._answers[answer.name] = answer
                self._running.remove(answer.name)
                self._since_s = time.monotonic()
            elif self._limit_s and time.monotonic() - self._since_s > self._limit_s:
                self._give_up(function)
        return self._answers[name]

    def close(self) -> None:
        """End the process and what it started: an idle one by request; can be called twice."""
        if self._pipe.closed:
            return
        if not self._running:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._pipe.send_bytes(b"")
                self._process.wait(_END_S)
        self._kill()
        self._pipe.close()
        self._stack.close()

    def _kill(self) -> int:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _received(self, who: str) -> Any:
        if not self._pipe.poll() and self._process.poll() is not None:
            self._explain_end(who)
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            self._explain_end(who)
        if isinstance(message, RewardError):
            raise message
        return message

    def _give_up(self, function: RewardFunction) -> NoReturn:
        self._process.send_signal(_STACK_SIGNAL)
        ends_s = time.monotonic() + _STACK_S
        while time.monotonic() < ends_s and not os.fstat(self._stack.fileno()).st_size:
            time.sleep(_POLL_S / 5)
        where = self._line()
        first = f"; the first completion is {self._texts[0][:80]!r}" if self._texts else ""
        raise RewardError(
            f"the reward function {function.source} gave no answer for {len(self._texts)} "
            f"completions within {self._limit_s:g} s (--reward_timeout)"
            f"{where and f'; it was{where}'}{first}. Make it faster, give what it waits for a time "
            "limit, or raise --reward_timeout (0: no limit)"
        )

    def _explain_end(self, who: str) -> NoReturn:
        code = self._kill()  # it may have closed its pipe and still run
        where = self._line()
        how = f"ended with exit code {code}{where}: something in it calls os._exit, or ends it in C"
        if code < 0:
            name = signal.Signals(-code).name
            hint = ", as the kernel does when memory runs out (see dmesg)"
            how = f"was ended by {name}{hint if name == 'SIGKILL' else ''}{where}"
        raise RewardError(f"{who} {how}")

    def _line(self) -> str:
        """Return where in the user's file the process was, if that is known."""
        written = os.pread(self._stack.fileno(), 1 << 18, 0).decode("utf-8", "replace")
        files = {each.file for each in self._functions.values()}
        line = next((line for line in _FRAME.findall(written) if line[0] in files), None)
        return f" at {line[0]}, line {line[1]}, in {line[2]}" if line else ""


def main(pipe: int, stack: int, parent: int) -> None:
    """Load functions, say so, and answer calls until asked to end."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that
        os._exit(1)
    _leave_signals_to_parent()
    # faulthandler needs no interpreter, so it answers even from within C code.
    faulthandler.register(_STACK_SIGNAL, file=stack, all_threads=False)
    faulthandler.enable(file=stack, all_threads=False)
    set_up_console(int(os.environ.get("RANK", "0")))
    with contextlib.suppress(EOFError, ConnectionError):  # the parent is gone
        _serve(Connection(pipe))


def _serve(connection: Connection) -> None:
    config, functions = connection.recv()
    try:
        rewards = [load(function, config) for function in functions]
    except RewardError as error:
        connection.send(error)
        return
    connection.send(None)
    if "accuracy" in {function.source for function in functions}:  # while the rank loads the model
        with contextlib.suppress(RewardError):  # its first call says so
            math_verify()
    loop = asyncio.new_event_loop()
    while received := connection.recv_bytes():
        try:
            columns = pickle.loads(received)  # noqa: S301 - from our parent
        except Exception as error:  # noqa: BLE001 - told to the user
            connection.send(RewardError(f"{type(error).__name__}: {error}"))
            return
        for answer in answers(rewards, columns, loop, lambda name: phase(f"reward/{name}")):
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):  # prints come before the step
                    stream.flush()
            connection.send(answer)


def _leave_signals_to_parent() -> None:
    # Handlers that do nothing, rather than SIG_IGN, which programs that a function starts would
    # inherit: subprocess.Popen.terminate would then do nothing.
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    os.register_at_fork(
        after_in_child=lambda: [signal.signal(number, signal.SIG_DFL) for number in numbers]
    )
