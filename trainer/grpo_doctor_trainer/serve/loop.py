"""Steps the engine for all requests together; the one thread that touches it."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from grpo_doctor_trainer.rollout.vllm.statistics import Tally
from grpo_doctor_trainer.serve.protocol import Generated, Progress
from grpo_doctor_trainer.serve.state import EngineSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from grpo_doctor_trainer.serve.protocol import Completion, GenerateRequest, Prompt, Sampling

_IDLE_S = 0.2  # how long an idle loop sleeps at most; a call wakes it at once


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


@dataclass
class Job:
    """One `/generate` request under way; the loop writes it, the connection's thread reads it.

    Attributes:
        done: it will not change any more.
        news: it is done, or a completion has ended that the asker wants to hear of.
    """

    request: GenerateRequest
    keys: list[str]
    open_keys: set[str]
    tally: Tally
    done: threading.Event = field(default_factory=threading.Event)
    news: threading.Event = field(default_factory=threading.Event)
    completions: dict[str, Completion] = field(default_factory=dict)
    ended: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    error: Exception | None = None
    now: EngineSnapshot = field(default_factory=EngineSnapshot)

    def watch(self, now: EngineSnapshot) -> None:
        """Notes the engine's state after a step."""
        self.now = now
        self.tally.add(now)

    def progress(self) -> Progress:
        """Says how far it is."""
        now = self.now
        return Progress(len(self.completions), now.running, now.waiting, now.kv_cache)

    def end(self, key: str, completion: Completion) -> None:
        """Takes a completion that has ended."""
        self.completions[key] = completion
        self.open_keys.discard(key)
        if self.request.tell_ended:
            self.ended.put(key)
            self.news.set()

    def ended_since(self) -> dict[int, list[int]]:
        """Gives the tokens of completions that have ended since it was asked before."""
        keys = [self.ended.get() for _ in range(self.ended.qsize())]
        return {self.keys.index(key): self.completions[key].tokens for key in keys}

    def result(self) -> Generated:
        """Gives the completions, once done.

        Raises:
            RequestError: the request was cancelled.
            EngineFailedError: the engine failed.
        """
        if self.error is not None:
            raise self.error
        completions = [self.completions[key] for key in self.keys]
        return Generated(completions, self.tally.statistics(self.now))


def wait_for(job: Job, seconds: float) -> bool:
    """Waits until a job has news, or until the engine has made a step and `seconds` are over.

    Returns:
        whether it is done. False means that there is something to tell.
    """
    steps = job.tally.steps
    ends = time.monotonic() + seconds
    while not job.news.wait(max(0.05, ends - time.monotonic())):
        if job.tally.steps > steps:
            return False
        ends = time.monotonic() + seconds
    job.news.clear()
    return job.done.is_set()


class EngineLoop:
    """Runs an engine in the thread that calls `run`; every other method is for other threads."""

    def __init__(self, engine: SteppedEngine) -> None:
        self._engine = engine
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
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
                self._run_calls()
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
        outcome: Future[Any] = Future()
        self._calls.put((function, outcome))
        while not wait([outcome], _IDLE_S).done:
            if self._stopped.is_set() and not wait([outcome], _IDLE_S).done:
                raise EngineFailedError(self.failure or "the server was stopped")
        return outcome.result()

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
        snapshot: EngineSnapshot = self.call(self._engine.snapshot)
        return snapshot

    def _run_calls(self) -> None:
        block = not self._jobs
        while True:
            try:
                function, outcome = self._calls.get(block=block, timeout=_IDLE_S)
            except queue.Empty:
                return
            try:
                outcome.set_result(function())
            except Exception as error:  # noqa: BLE001 - goes to the thread that asked
                outcome.set_exception(error)
            block = False

    def _add(self, request: GenerateRequest) -> Job:
        keys: list[str] = []
        job = Job(request, keys, set(), Tally(self._engine.snapshot()))
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
        job.news.set()

    def _step(self) -> None:
        finished = self._engine.step()
        now = self._engine.snapshot()
        for job in self._jobs:
            job.watch(now)
        for key, completion in finished:
            job = self._owner[key]
            job.end(key, completion)
            if not job.open_keys:
                self._finish(job, None)
