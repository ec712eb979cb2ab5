"""Runs the reward functions: in processes of their own, or in the trainer's.

The processes are started once, by exec, so nothing of the trainer is in them: no threads that a
fork would have cut off, no process group, no CUDA. A function belongs to one process for the whole
run and is called with the whole batch, because it may compare completions and keep state.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from multiprocessing.connection import Pipe
from typing import Any, NoReturn

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.functions import Answer, Columns, RewardFunction, answers, load
from grpo_doctor_trainer.rewards.worker import STACK_SIGNAL

_LOOK_S = 0.25
_STACK_S = 1.0
_END_S = 2.0
_PATIENCE_S = 10.0
_FRAME = re.compile(r'^\s*File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from grpo_doctor_trainer.rewards.worker import main; main(*map(int, sys.argv[2:]))"
)


def _picked(inputs: Columns, names: tuple[str, ...] | None) -> Columns:
    return {name: inputs[name] for name in (inputs if names is None else names) if name in inputs}


class InProcess:
    """The functions in this process, for a debugger: `--reward_num_workers 0`."""

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self._rewards = [load(function, config) for function in functions]
        self._inputs: dict[str, Columns] = {}
        self._answers: dict[str, Answer] = {}
        self._loop = asyncio.new_event_loop()

    def begin(self, inputs: Columns) -> None:
        """Keep the columns; the functions are called by `result`."""
        self._inputs = {r.function.name: _picked(inputs, r.columns) for r in self._rewards}
        self._answers = {}

    def result(self, name: str) -> Answer:
        """Call a function; the first async one brings all the others."""
        if name not in self._answers:
            wanted = next(each for each in self._rewards if each.function.name == name)
            every = [each for each in self._rewards if each.is_async] if wanted.is_async else []
            found = answers(every or [wanted], self._inputs, self._loop, lambda _: nullcontext())
            self._answers |= {answer.name: answer for answer in found}
        if (error := self._answers[name].error) is not None:
            raise RewardError(error)
        return self._answers[name]

    def close(self) -> None:
        """Close the event loop; can be called twice."""
        self._loop.close()


class Pool:
    """The processes of one rank. After an error they are gone, and so is the pool."""

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        count = min(config.reward_num_workers, len(functions))
        self._workers: dict[str, Worker] = {}
        self._answers: dict[str, Answer] = {}
        try:
            for index in range(count):
                own = functions[index::count]
                worker = Worker(own, config)
                self._workers |= {function.name: worker for function in own}
            for worker in self._each():
                worker.load()
        except BaseException:
            self._kill()
            raise

    def begin(self, inputs: Columns) -> None:
        """Send a whole batch to the processes, which run their functions at once."""
        if not self._workers:
            raise RewardError("the reward processes have ended; start the run again")
        self._answers = {}
        with self._killing_on_error():
            for worker in self._each():
                worker.send(inputs)

    def result(self, name: str) -> Answer:
        """Wait for a function's scores."""
        with self._killing_on_error():
            while name not in self._answers:
                if (answer := self._workers[name].answer()) is not None:
                    self._answers[answer.name] = answer
        return self._answers[name]

    def close(self) -> None:
        """End the processes: idle ones by request, busy ones at once; can be called twice."""
        for worker in self._each():
            worker.close()
        self._kill()

    def _each(self) -> list[Worker]:
        return list(dict.fromkeys(self._workers.values()))

    @contextlib.contextmanager
    def _killing_on_error(self) -> Any:
        try:
            yield
        except RewardError:
            self._kill()
            raise

    def _kill(self) -> None:
        for worker in self._each():
            worker.end()
        self._workers = {}


class Worker:
    """One process, its pipe, and the file for its stack."""

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self._functions = {function.name: function for function in functions}
        self._limit_s = config.reward_timeout
        self._columns: Mapping[str, tuple[str, ...] | None] = {}
        self._running: list[str] = []
        self._texts: list[str] = []
        self._since_s = 0.0
        self._pipe, theirs = Pipe()
        self._stack = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        numbers = (theirs.fileno(), self._stack.fileno(), os.getpid())
        try:
            self.process = subprocess.Popen(
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

    def load(self) -> None:
        """Wait until the functions are imported."""
        sources = ", ".join(function.source for function in self._functions.values())
        self._columns = self._received(f"a process that loads the reward functions {sources}")

    def send(self, inputs: Columns) -> None:
        """Have all functions called with their columns of a batch."""
        own = {name: _picked(inputs, names) for name, names in self._columns.items()}
        try:
            message = pickle.dumps(own, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise RewardError(self._why_not_sent(own, error)) from error
        self._running, self._since_s = list(own), time.monotonic()
        self._texts = list(inputs.get("completions", ()))
        with contextlib.suppress(OSError):  # it has ended: `answer` says so
            self._pipe.send_bytes(message)

    def answer(self) -> Answer | None:
        """Return the next answer, or None after a moment without one."""
        source = self._functions[self._running[0]].source
        # Its own children may hold its pipe open, so its end is looked for as well.
        if not self._pipe.poll(_LOOK_S):
            if self.process.poll() is not None and not self._pipe.poll():
                self._ended(f"the process of the reward function {source}")
            if self._limit_s and time.monotonic() - self._since_s > self._limit_s:
                self._late(self._functions[self._running[0]])
            return None
        answer: Answer = self._received(f"the process of the reward function {source}")
        if answer.error is not None:
            raise RewardError(answer.error)
        self._running.remove(answer.name)
        self._since_s = answer.ended_s
        return answer

    def close(self) -> None:
        """Ask an idle process to end."""
        if not self._running:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._pipe.send_bytes(b"")
                self.process.wait(_END_S)

    def end(self) -> None:
        """Kill the process and what it started; if it has ended, its exit code stays."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_PATIENCE_S)
        self._pipe.close()
        self._stack.close()

    def _received(self, who: str) -> Any:
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            self._ended(who)
        if isinstance(message, RewardError):
            raise message
        return message

    def _line(self, function: RewardFunction | None) -> str:
        """Say where in the user's file the process was, if that is known."""
        written = os.pread(self._stack.fileno(), 1 << 18, 0).decode("utf-8", "replace")
        lines = _FRAME.findall(written)
        files = {function.file} if function else {each.file for each in self._functions.values()}
        line = next((line for line in lines if line[0] in files), None)
        return f" at {line[0]}, line {line[1]}, in {line[2]}" if line else ""

    def _late(self, function: RewardFunction) -> NoReturn:
        self.process.send_signal(STACK_SIGNAL)
        ends_s = time.monotonic() + _STACK_S
        while time.monotonic() < ends_s and not os.fstat(self._stack.fileno()).st_size:
            time.sleep(_LOOK_S / 5)
        where = self._line(function)
        first = f"; the first completion is {self._texts[0][:80]!r}" if self._texts else ""
        raise RewardError(
            f"the reward function {function.source} gave no answer for {len(self._texts)} "
            f"completions within {self._limit_s:g} s (--reward_timeout)"
            f"{where and f'; it was{where}'}{first}. Make it faster, give what it waits for a time "
            "limit, or raise --reward_timeout (0: no limit)"
        )

    def _ended(self, who: str) -> NoReturn:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # it may have closed its pipe and still run
        code, where = self.process.wait(_PATIENCE_S), self._line(None)
        how = f"ended with exit code {code}{where}: something in it calls os._exit, or ends it in C"
        if code < 0:
            name = signal.Signals(-code).name
            hint = ", as the kernel does when memory runs out (see dmesg)"
            how = f"was ended by {name}{hint if name == 'SIGKILL' else ''}{where}"
        raise RewardError(f"{who} {how}")

    def _why_not_sent(self, inputs: Mapping[str, Columns], error: Exception) -> str:
        for name, columns in inputs.items():
            for column, values in columns.items():
                try:
                    pickle.dumps(values)
                except Exception as problem:  # noqa: BLE001 - told to the user
                    return (
                        f"the column {column} cannot be sent to the process of the reward function "
                        f"{self._functions[name].source}: {type(problem).__name__}: {problem}. "
                        "Store plain values in it, or use --reward_num_workers 0"
                    )
        return f"the arguments of {', '.join(inputs)} cannot be sent: {error}"
