"""The processes of the reward functions: started, given calls, heard, and ended if need be."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any, NoReturn

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.calls import (
    Answer,
    Call,
    how_it_ended,
    line_in,
    took_too_long,
    why_not_sent,
)
from grpo_doctor_trainer.rewards.registry import file_of
from grpo_doctor_trainer.rewards.worker_status import ASK_SIGNAL, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.rewards.registry import CallStyle, RewardFunction

_LOOK_S = 0.25
_STACK_S = 1.0
_END_S = 2.0
_PATIENCE_S = 10.0
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from grpo_doctor_trainer.rewards.worker import main; "
    "main(*map(int, sys.argv[2:5]), parent_thread_lasts=sys.argv[5] == '1')"
)


class Workers:
    """The processes of one rank. An error ends them all.

    Args:
        functions: what they run.
        config: the options.
        homes: which process each function belongs to.

    Raises:
        RewardError: a function cannot be loaded.
    """

    def __init__(
        self, functions: Sequence[RewardFunction], config: TrainerConfig, homes: Mapping[str, int]
    ) -> None:
        self._functions = {function.name: function for function in functions}
        self._limit_s = config.reward_timeout
        self._workers: list[WorkerProcess] = []
        self.styles: dict[str, CallStyle] = {}
        try:
            for index in range(config.reward_num_workers):
                own = [f for f in functions if homes[f.name] == index]
                self._workers.append(start_worker())
                self._workers[-1].connection.send((config, own))
            for worker in self._workers:
                self.styles |= self._hear(worker)
        except BaseException:
            self.kill()
            raise

    def __len__(self) -> int:
        return len(self._workers)

    def __getitem__(self, index: int) -> WorkerProcess:
        return self._workers[index]

    def idle(self) -> list[tuple[int, WorkerProcess]]:
        """Gives those that are ready for calls, with their number."""
        self.hear_prepared(waits=False)
        every = enumerate(self._workers)
        return [(i, worker) for i, worker in every if worker.prepared and not worker.running]

    def give(self, worker: WorkerProcess, calls: list[Call]) -> None:
        """Has an idle one make calls, together where they are async.

        Raises:
            RewardError: they cannot be sent, or the process has ended.
        """
        with self._killing_on_error():
            try:
                message = pickle.dumps(calls, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                sources = [self._functions[call.name].source for call in calls]
                raise RewardError(why_not_sent(calls, sources, error)) from error
            worker.status.at_completion(0)
            worker.running, worker.since, worker.progress = calls, time.monotonic(), 0
            try:
                worker.connection.send_bytes(message)
            except OSError:
                self._crashed(worker)

    def answers(self, *, waits: bool) -> list[Answer]:
        """Takes the answers that have come.

        Args:
            waits: for a moment, if there are none, and sees to it that those that run something
                are alive and within their time.

        Raises:
            RewardError: a call failed, timed out or took its process with it.
        """
        busy = {worker.connection: worker for worker in self._workers if worker.running}
        if not busy:
            return []
        with self._killing_on_error():
            # A worker's own children may hold its pipe open, so its death is looked for as well.
            ready = wait(list(busy), _LOOK_S if waits else 0)
            answers = [self._take(busy[connection]) for connection in ready]  # type: ignore[index]
            for worker in busy.values():
                if waits and worker.running:
                    self._look_at(worker)
        return answers

    def close(self) -> None:
        """Ends the processes: those that are idle in order, those that run something at once."""
        for worker in self._workers:
            if worker.running:
                worker.kill()
                continue
            try:
                worker.connection.send_bytes(pickle.dumps(None))
            except OSError:
                worker.kill()
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(_END_S)
        self.kill()

    @contextlib.contextmanager
    def _killing_on_error(self) -> Iterator[None]:
        try:
            yield
        except RewardError:
            self.kill()
            raise

    def hear_prepared(self, *, waits: bool) -> None:
        """Hears which have done what would make a first call slow, or waits until all have."""
        with self._killing_on_error():
            for worker in self._workers:
                if not worker.prepared and (waits or worker.connection.poll()):
                    self._hear(worker)
                    worker.prepared = True

    def _take(self, worker: WorkerProcess) -> Answer:
        try:
            received: Answer | RewardError = worker.connection.recv()
        except (EOFError, OSError):
            self._crashed(worker)
        if isinstance(received, RewardError):
            names = ", ".join(self._functions[call.name].source for call in worker.running)
            raise RewardError(f"the arguments of {names} cannot be read by its process: {received}")
        if received.error is not None:
            raise RewardError(received.error)
        worker.running = [call for call in worker.running if call.name != received.name]
        return received

    def _look_at(self, worker: WorkerProcess) -> None:
        if worker.process.poll() is not None and not worker.connection.poll():
            self._crashed(worker)
        call, now = worker.running[0], time.monotonic()
        alone = self._functions[call.name].is_built_in
        if alone and (progress := worker.status.progress()) != worker.progress:
            worker.progress, worker.since = progress, now  # the limit is for each completion
        if self._limit_s and now - worker.since > self._limit_s:
            self._late(worker, call, alone)

    def _late(self, worker: WorkerProcess, call: Call, alone: bool) -> NoReturn:
        process, function = worker.process, self._functions[call.name]
        process.send_signal(ASK_SIGNAL)
        asked_at = time.monotonic()
        text = ""
        while time.monotonic() - asked_at < _STACK_S and process.poll() is None:
            time.sleep(_LOOK_S / 5)
            if (now := worker.status.text()) and now == text:  # it wrote, and no more
                break
            text = now
        line = line_in(worker.status.stack(call.name), file_of(function))
        texts = call.columns.get("completions") or [None]
        shown = texts[worker.progress if alone else 0]
        raise RewardError(
            took_too_long(
                function, self._limit_s, call.completions, shown, one_alone=alone, line=line
            )
        )

    def _crashed(self, worker: WorkerProcess) -> NoReturn:
        function = self._functions[worker.running[0].name]
        worker.kill()  # it may have closed its pipe and still run
        stack = worker.status.stack(function.name)
        line = line_in(stack, file_of(function))
        raise RewardError(
            f"the process of the reward function {function.source} "
            f"{how_it_ended(worker.process.returncode, line)}"
        )

    def _hear(self, worker: WorkerProcess) -> Any:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            worker.kill()
            line = line_in(worker.status.stack(""), None)
            raise RewardError(
                "a process for the reward functions "
                f"{how_it_ended(worker.process.returncode, line)}, while it loaded "
                + ", ".join(function.source for function in self._functions.values())
            ) from None
        if isinstance(message, RewardError):
            raise message
        return message

    def kill(self) -> None:
        """Ends them at once."""
        for worker in self._workers:
            worker.end()
        self._workers = []


@dataclass
class WorkerProcess:
    """A process with its pipe, and what it has to do.

    Attributes:
        process: the process.
        connection: the pipe to it.
        status: what it leaves there.
        jobs: what it has to do; the calls of a job run together.
        running: the calls that it has not answered yet.
        since: when it began with them, or with the present completion (time.monotonic).
        progress: the completion of the call that it is at.
        prepared: whether it has said that it is ready for calls.
    """

    process: subprocess.Popen[bytes]
    connection: Connection
    status: WorkerStatus
    jobs: list[list[Call]] = field(default_factory=list)
    running: list[Call] = field(default_factory=list)
    since: float = 0.0
    progress: int = -1
    prepared: bool = False

    def kill(self) -> None:
        """Ends the process and what it started; if it has ended, its exit code stays."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_PATIENCE_S)

    def end(self) -> None:
        """Kills the process and lets go of its pipe and file."""
        self.kill()
        self.connection.close()
        os.close(self.status.descriptor)


def start_worker() -> WorkerProcess:
    """Starts a process that imports the reward code alone.

    Raises:
        RewardError: the machine has no room for one more.
    """
    ours, theirs = Pipe()
    with tempfile.TemporaryFile() as file:
        status = WorkerStatus(os.dup(file.fileno()))
    lasts = threading.current_thread() is threading.main_thread()
    numbers = (theirs.fileno(), status.descriptor, os.getpid(), int(lasts))
    try:
        process = subprocess.Popen(
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
    return WorkerProcess(process, ours, status)
