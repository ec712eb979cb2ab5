"""Hands a batch to the processes that run the reward functions, and puts their scores together.

They are started once, by exec, so nothing of the trainer is in them: no threads that a fork would
have cut off, no process group, no CUDA. A function belongs to one worker for the
whole run and is called with the whole batch, because it may compare completions and keep state,
unless it says that it looks at each completion alone, as the built-in ones do.

Functions that look at each completion alone can be called before the batch is whole: `submit` and
`advance` never wait, and leave what goes wrong to `begin`.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.calls import Answer, Call, Scored
from grpo_doctor_trainer.rewards.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.rewards.registry import CallStyle, RewardFunction


class Pool:
    """The workers of one rank. After an error they are gone, and so is the pool.

    Raises:
        RewardError: a function cannot be loaded.
    """

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self._home = {f.name: n % config.reward_num_workers for n, f in enumerate(functions)}
        self._workers = Workers(functions, config, self._home)
        self._styles = {
            function.name: self._workers.styles[function.name] for function in functions
        }
        self._pending = {name: Pending(name, style) for name, style in self._styles.items()}
        self._answers: list[Answer] = []
        self._early: set[int] = set()
        self._whole_since_s = 0.0
        self._awaited_since_s: float | None = None
        self._failure = "the reward processes have ended; start the run again"

    @property
    def scores_early(self) -> bool:
        """Whether any function can be called before a batch is whole."""
        return any(style.per_completion for style in self._styles.values())

    def submit(self, inputs: Mapping[str, list[Any]], indices: Sequence[int]) -> None:
        """Takes completions of a batch that is not whole yet, and hands out what it can.

        Args:
            inputs: all the columns there are, each with one entry per completion.
            indices: where these completions are in the batch.
        """
        if not self._early:
            self._answers = []
        self._early.update(indices)
        for name, style in self._styles.items():
            if style.per_completion:
                self._pending[name].add(inputs, indices)
        self.advance()

    def advance(self) -> None:
        """Takes the answers that are there and hands out more, without waiting for anything."""
        try:
            self._answers += self._workers.answers(waits=False)
            self._feed()
        except RewardError as error:
            self._failure = str(error)

    def begin(self, inputs: Mapping[str, list[Any]], completions: int) -> None:
        """Hands out the calls for a whole batch, but for those of completions submitted before.

        Args:
            inputs: all the columns there are, each with one entry per completion.
            completions: how many there are.

        Raises:
            RewardError: the processes have ended, or cannot be given the columns; or a call failed
                before the batch was whole.
        """
        self._whole_since_s, self._awaited_since_s = time.monotonic(), None
        if not self._workers:
            raise RewardError(self._failure)
        self._workers.hear_prepared(waits=True)
        if not self._early:
            self._answers = []
        indices = [index for index in range(completions) if index not in self._early]
        remaining = {name: [values[index] for index in indices] for name, values in inputs.items()}
        self._early = set()
        for name, style in self._styles.items():
            if style.per_completion:
                self._pending[name].add(remaining, indices)
            else:
                self._pending[name].add(inputs, range(completions))
        self._queue([pending.take_all() for pending in self._pending.values() if pending])
        self._feed()

    def result(self, name: str, completions: int) -> Scored:
        """Waits for a function's scores.

        Args:
            name: of the function.
            completions: how many there are.

        Raises:
            RewardError: a function of the batch failed, timed out or took its process with it.
        """
        if self._awaited_since_s is None:
            self._awaited_since_s = time.monotonic()
        while sum(len(a.scores) for a in self._answers if a.name == name) < completions:
            self._answers += self._workers.answers(waits=True)
            self._feed()
        parts = [answer for answer in self._answers if answer.name == name]
        scores = [math.nan] * completions
        for part in parts:
            for index, score in zip(part.indices, part.scores, strict=True):
                scores[index] = score
        in_rollout_s = sum(part.seconds_before(self._whole_since_s) for part in parts)
        unawaited_s = sum(part.seconds_before(self._awaited_since_s) for part in parts)
        seconds = sum(part.seconds for part in parts)
        return Scored(scores, seconds, in_rollout_s, unawaited_s - in_rollout_s)

    def close(self) -> None:
        """Ends the processes: those that are idle in order, those that run something at once."""
        self._workers.close()

    def _queue(self, calls: list[Call]) -> None:
        awaited: dict[int, list[Call]] = {}
        for call in calls:
            home, is_async = self._home[call.name], self._styles[call.name].is_async
            if is_async and home in awaited:
                awaited[home].append(call)  # together with those that wait already
                continue
            job = [call]
            if is_async:
                awaited[home] = job
            self._workers[home].jobs.append(job)

    def _feed(self) -> None:
        for index, worker in self._workers.idle():
            if calls := worker.jobs.pop(0) if worker.jobs else self._early_job(index):
                self._workers.give(worker, calls)

    def _early_job(self, worker: int) -> list[Call]:
        """What a worker can do of a batch that is not whole: all that waits for a function."""
        own = [name for name, home in self._home.items() if home == worker and self._pending[name]]
        together = [name for name in own if self._styles[name].is_async]
        return [self._pending[name].take_all() for name in together or own[:1]]


class Pending:
    """What one function has not been called with yet, in the order in which it ended."""

    def __init__(self, name: str, style: CallStyle) -> None:
        self._name = name
        self._style = style
        self._indices: list[int] = []
        self._columns: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._indices)

    def add(self, inputs: Mapping[str, list[Any]], indices: Sequence[int]) -> None:
        """Takes in completions of the batch.

        Args:
            inputs: all the columns there are, each with one entry per completion.
            indices: where these completions are in the batch.
        """
        self._indices += indices
        for name, values in self._style.of(inputs).items():
            self._columns.setdefault(name, []).extend(values)

    def take_all(self) -> Call:
        """Makes a call of all."""
        call = Call(self._name, self._columns, tuple(self._indices))
        self._indices, self._columns = [], {}
        return call
