"""Processes that run the reward functions, beside the trainer and killable.

They are started once, by exec, so nothing of the trainer is in them: no threads that a fork would
have cut off, no process group, no CUDA. A function of the user's belongs to one worker for the
whole run and is called with the whole batch, because it may compare completions and keep state; a
built-in one is loaded in all of them and its batch is cut into parts.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import subprocess
import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.calls import (
    Answer,
    Call,
    how_it_ended,
    line_in,
    took_too_long,
    why_not_sent,
)
from grpo_doctor_trainer.rewards.process import WorkerProcess, start_worker
from grpo_doctor_trainer.rewards.registry import file_of
from grpo_doctor_trainer.rewards.worker_status import ASK_SIGNAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.rewards.registry import RewardFunction

_PARTS_PER_WORKER = 4  # so that one with hard answers does not keep the others waiting
_LOOK_S = 0.25
_STACK_S = 1.0
_END_S = 2.0


class Pool:
    """The workers of one rank. After an error they are gone, and so is the pool."""

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self._functions = {function.name: function for function in functions}
        self._limit_s = config.reward_timeout
        self._workers: list[WorkerProcess] = []
        self._shared: list[list[Call]] = []
        self._answers: list[Answer] = []
        users = [function.name for function in functions if not function.is_built_in]
        count = config.reward_num_workers
        self._home = {name: index % count for index, name in enumerate(users)}
        self._takes: dict[str, tuple[tuple[str, ...] | None, bool]] = {}
        try:
            for index in range(count):
                own = [f for f in functions if self._home.get(f.name, index) == index]
                self._workers.append(start_worker())
                self._workers[-1].connection.send((config, own))
            for worker in self._workers:
                self._takes |= self._hear(worker)
        except BaseException:
            self._kill()
            raise

    def begin(self, inputs: dict[str, list[Any]], completions: int) -> None:
        """Hands out the calls for a batch.

        Args:
            inputs: all the columns there are, each with one entry per completion.
            completions: how many there are.

        Raises:
            RewardError: the processes have ended, or cannot be given the columns.
        """
        if not self._workers:
            raise RewardError("the reward processes have ended; start the run again")
        self._wait_until_prepared()
        self._answers = []
        awaited: dict[int, list[Call]] = {}
        for name, function in self._functions.items():
            columns, is_async = self._takes[name]
            wanted = inputs if columns is None else [c for c in columns if c in inputs]
            call = Call(name, {column: inputs[column] for column in wanted}, 0, completions)
            if function.is_built_in:
                queue = self._workers[0].pinned if len(self._workers) == 1 else self._shared
                queue.extend([part] for part in self._cut(call))
                continue
            home = self._home[name]
            if home in awaited and is_async:
                awaited[home].append(call)  # together with those that wait already
                continue
            job = [call]
            if is_async:
                awaited[home] = job
            self._workers[home].pinned.append(job)
        self._feed()

    def result(self, name: str, completions: int) -> tuple[list[float], float]:
        """Waits for a function's scores.

        Args:
            name: of the function.
            completions: how many there are.

        Returns:
            one score per completion, NaN where it does not apply, and the seconds that it took.

        Raises:
            RewardError: a function of the batch failed, timed out or took its process with it.
        """
        try:
            while sum(len(a.scores) for a in self._answers if a.name == name) < completions:
                self._receive()
        except RewardError:
            self._kill()
            raise
        parts = sorted((a for a in self._answers if a.name == name), key=lambda part: part.first)
        return [score for part in parts for score in part.scores], sum(p.seconds for p in parts)

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
        self._kill()

    def _wait_until_prepared(self) -> None:
        try:
            for worker in self._workers:
                if not worker.prepared:
                    self._hear(worker)
                    worker.prepared = True
        except RewardError:
            self._kill()
            raise

    def _cut(self, call: Call) -> list[Call]:
        count, workers = call.completions, len(self._workers)
        size = count if workers == 1 else math.ceil(count / (workers * _PARTS_PER_WORKER))
        return [
            Call(
                call.name,
                {name: values[first : first + size] for name, values in call.columns.items()},
                first,
                min(size, count - first),
            )
            for first in range(0, count, size)
        ]

    def _feed(self) -> None:
        for worker in self._workers:
            queue = worker.pinned or self._shared
            if worker.running or not queue:
                continue
            calls = queue.pop(0)
            try:
                message = pickle.dumps(calls, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                self._kill()
                sources = [self._functions[call.name].source for call in calls]
                raise RewardError(why_not_sent(calls, sources, error)) from error
            worker.status.at_completion(0)
            worker.running, worker.since, worker.progress = calls, time.monotonic(), 0
            try:
                worker.connection.send_bytes(message)
            except OSError:
                self._crashed(worker)

    def _receive(self) -> None:
        busy = {worker.connection: worker for worker in self._workers if worker.running}
        # A worker's own children may hold its pipe open, so its death is looked for as well.
        for ready in wait(list(busy), _LOOK_S):
            self._take(busy[ready])  # type: ignore[index]
        for worker in busy.values():
            if worker.running:
                self._look_at(worker)
        self._feed()

    def _take(self, worker: WorkerProcess) -> None:
        try:
            received: Answer | RewardError = worker.connection.recv()
        except (EOFError, OSError):
            self._crashed(worker)
            return
        if isinstance(received, RewardError):
            names = ", ".join(self._functions[call.name].source for call in worker.running)
            raise RewardError(f"the arguments of {names} cannot be read by its process: {received}")
        if received.error is not None:
            raise RewardError(received.error)
        self._answers.append(received)
        worker.running = [call for call in worker.running if call.name != received.name]

    def _look_at(self, worker: WorkerProcess) -> None:
        if worker.process.poll() is not None and not worker.connection.poll():
            self._crashed(worker)
        call, now = worker.running[0], time.monotonic()
        alone = self._functions[call.name].is_built_in
        if alone and (progress := worker.status.progress()) != worker.progress:
            worker.progress, worker.since = progress, now  # the limit is for each completion
        if self._limit_s and now - worker.since > self._limit_s:
            self._late(worker, call, alone)

    def _late(self, worker: WorkerProcess, call: Call, alone: bool) -> None:
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

    def _crashed(self, worker: WorkerProcess) -> None:
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

    def _kill(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers = []
