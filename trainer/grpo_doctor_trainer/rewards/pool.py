"""Hands a batch to the processes that run the reward functions, and puts their scores together.

They are started once, by exec, so nothing of the trainer is in them: no threads that a fork would
have cut off, no process group, no CUDA. A function of the user's belongs to one worker for the
whole run and is called with the whole batch, because it may compare completions and keep state,
unless it says that it looks at each completion alone; a built-in one is loaded in all of them and
its batch is cut into parts.

Functions that look at each completion alone can be called before the batch is whole: `submit` and
`advance` never wait, and leave what goes wrong to `begin`.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.calls import Answer, Call, Scored
from grpo_doctor_trainer.rewards.pending import Pending
from grpo_doctor_trainer.rewards.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.rewards.registry import RewardFunction

_PARTS_PER_WORKER = 4  # so that one with hard answers does not keep the others waiting


class Pool:
    """The workers of one rank. After an error they are gone, and so is the pool.

    Raises:
        RewardError: a function cannot be loaded.
    """

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        users = [function.name for function in functions if not function.is_built_in]
        self._home = {name: i % config.reward_num_workers for i, name in enumerate(users)}
        self._workers = Workers(functions, config, self._home)
        self._styles = {
            function.name: self._workers.styles[function.name] for function in functions
        }
        self._pending = {name: Pending(name, style) for name, style in self._styles.items()}
        self._shared: list[list[Call]] = []
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
            home, is_async = self._home.get(call.name), self._styles[call.name].is_async
            if home is None:
                queue = self._workers[0].pinned if len(self._workers) == 1 else self._shared
                queue.extend([part] for part in self._cut(call))
            elif home in awaited and is_async:
                awaited[home].append(call)  # together with those that wait already
            else:
                job = [call]
                if is_async:
                    awaited[home] = job
                self._workers[home].pinned.append(job)

    def _cut(self, call: Call) -> list[Call]:
        count, workers = call.completions, len(self._workers)
        size = count if workers == 1 else math.ceil(count / (workers * _PARTS_PER_WORKER))
        return [
            Call(
                call.name,
                {name: values[first : first + size] for name, values in call.columns.items()},
                call.indices[first : first + size],
            )
            for first in range(0, count, size)
        ]

    def _feed(self) -> None:
        for index, worker in self._workers.idle():
            queue = worker.pinned or self._shared
            if calls := queue.pop(0) if queue else self._early_job(index):
                self._workers.give(worker, calls)

    def _early_job(self, worker: int) -> list[Call]:
        """What a worker can do of a batch that is not whole: all that waits for a function."""
        names = [name for name, pending in self._pending.items() if pending]
        own = [name for name in names if self._home.get(name) == worker]
        if together := [name for name in own if self._styles[name].is_async]:
            return [self._pending[name].take_all() for name in together]
        if own:
            return [self._pending[own[0]].take_all()]
        for name in names:
            if name not in self._home:
                pending = self._pending[name]
                return [pending.take(math.ceil(len(pending) / len(self._workers)))]
        return []
