"""Steps the engine for all requests together; the one thread that touches it."""

from __future__ import annotations

import itertools
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from grpo_doctor_trainer.serve.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from grpo_doctor_trainer.serve.protocol import Completion, GenerateRequest, Prompt, Sampling
    from grpo_doctor_trainer.serve.state import EngineSnapshot

_IDLE_S = 0.2  # how long an idle loop sleeps at most; a command wakes it at once


class EngineFailedError(Exception):
    """The engine raised while it was stepped: nothing it holds can be trusted any more."""


class RequestError(Exception):
    """A request that the engine refuses, while it goes on with the others."""


@dataclass(frozen=True)
class NewSequence:
    """One completion to make."""

    key: str
    prompt: Prompt
    sampling: Sampling
    seed: int | None


class SteppedEngine(Protocol):
    """An engine that is stepped from outside."""

    def add(self, sequence: NewSequence) -> None:
        """Takes a completion to make; raises `RequestError` if it cannot."""

    def step(self) -> list[tuple[str, Completion]]:
        """Runs one forward pass; gives the completions it finished, by key."""

    def abort(self, keys: Iterable[str]) -> None:
        """Forgets completions."""

    def snapshot(self) -> EngineSnapshot:
        """Looks at the engine."""


class _Command:
    """A function that another thread wants to be run between two steps."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self._function()
        except Exception as error:  # noqa: BLE001 - goes to the thread that asked
            self.error = error
        self.done.set()


class EngineLoop:
    """Runs an engine in the thread that calls `run`; every other method is for other threads."""

    def __init__(self, engine: SteppedEngine) -> None:
        self._engine = engine
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._jobs: list[Job] = []
        self._owner: dict[str, Job] = {}
        self._numbers = itertools.count()
        self._stopped = threading.Event()
        self.failure: str | None = None

    def run(self) -> None:
        """Steps until `stop`.

        Raises:
            EngineFailedError: the engine raised; every open request has been told.
        """
        try:
            while not self._stopped.is_set():
                self._run_commands()
                if self._jobs:
                    self._step()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            raise EngineFailedError(self.failure) from error
        finally:
            self._stopped.set()
            reason = self.failure or "the server was stopped"
            for job in list(self._jobs):
                self._finish(job, EngineFailedError(reason))

    def stop(self) -> None:
        """Ends `run` after the step it is in."""
        self._stopped.set()

    def call(self, function: Callable[[], Any]) -> Any:
        """Runs a function between two steps of the engine and waits for its result.

        Raises:
            EngineFailedError: the loop has ended.
        """
        command = _Command(function)
        self._commands.put(command)
        while not command.done.wait(_IDLE_S):
            if self._stopped.is_set() and not command.done.wait(_IDLE_S):
                raise EngineFailedError(self.failure or "the server was stopped")
        if command.error is not None:
            raise command.error
        return command.value

    def start(self, request: GenerateRequest) -> Job:
        """Hands a request to the engine; the job's `done` says when it is finished.

        Raises:
            RequestError: the engine refuses it.
            EngineFailedError: the loop has ended.
        """
        job: Job = self.call(lambda: self._add(request))
        return job

    def cancel(self, job: Job) -> None:
        """Drops a request whose asker has gone."""
        if not self._stopped.is_set():
            self.call(lambda: self._drop(job))

    def snapshot(self) -> EngineSnapshot:
        """Looks at the engine."""
        found: EngineSnapshot = self.call(self._engine.snapshot)
        return found

    def _run_commands(self) -> None:
        block = not self._jobs
        while True:
            try:
                command = self._commands.get(block=block, timeout=_IDLE_S)
            except queue.Empty:
                return
            command.run()
            block = False

    def _add(self, request: GenerateRequest) -> Job:
        keys: list[str] = []
        job = Job(request, keys, set(), self._engine.snapshot())
        try:
            for prompt in request.prompts:
                for _ in range(prompt.copies):
                    seed = None if request.seed is None else request.seed + len(keys)
                    key = str(next(self._numbers))
                    self._engine.add(NewSequence(key, prompt, request.sampling, seed))
                    keys.append(key)
                    job.open_keys.add(key)
                    self._owner[key] = job
        except Exception:
            self._drop(job)
            raise
        self._jobs.append(job)
        return job

    def _drop(self, job: Job) -> None:
        if job.open_keys:
            self._engine.abort(sorted(job.open_keys))
        self._finish(job, RequestError("cancelled"))

    def _finish(self, job: Job, error: Exception | None) -> None:
        for key in job.keys:
            self._owner.pop(key, None)
        if job in self._jobs:
            self._jobs.remove(job)
        job.error = error
        job.done.set()

    def _step(self) -> None:
        finished = self._engine.step()
        now = self._engine.snapshot()
        for job in self._jobs:
            job.watch(now)
        for key, completion in finished:
            job = self._owner[key]
            job.completions[key] = completion
            job.open_keys.discard(key)
            if not job.open_keys:
                self._finish(job, None)
