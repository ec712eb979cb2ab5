"""Runs the reward functions in the trainer's own process, for `--reward_num_workers 0`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.calls import (
    Answer,
    Call,
    Scored,
    answer,
    answer_async,
    line_in,
    took_too_long,
)
from grpo_doctor_trainer.rewards.registry import file_of, load, prepare
from grpo_doctor_trainer.rewards.time_limit import TookTooLong, time_limit
from grpo_doctor_trainer.rewards.worker_status import lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.rewards.registry import LoadedReward, RewardFunction


class InProcess:
    """The same as `Pool`, without processes: a time limit interrupts Python code only."""

    scores_early = False

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self._rewards = {function.name: load(function, config) for function in functions}
        prepare(functions)
        self._limit_s = config.reward_timeout
        self._calls: dict[str, Call] = {}
        self._answers: dict[str, Answer] = {}
        self._loop = asyncio.new_event_loop()

    def begin(self, inputs: dict[str, list[Any]], completions: int) -> None:
        """Prepares the calls for a batch; `inputs` are all the columns there are."""
        self._answers = {}
        for name, reward in self._rewards.items():
            self._calls[name] = Call(name, reward.style.of(inputs), tuple(range(completions)))

    def result(self, name: str, _completions: int) -> Scored:
        """Calls a function; the first async one brings all the others.

        Raises:
            RewardError: it failed, or took too long.
        """
        reward = self._rewards[name]
        if name not in self._answers:
            async_rewards = [each for each in self._rewards.values() if each.style.is_async]
            self._run(reward, async_rewards if reward.style.is_async else [])
        outcome = self._answers[name]
        if outcome.error is not None:
            raise RewardError(outcome.error)
        return Scored(outcome.scores, outcome.seconds)

    def close(self) -> None:
        """Closes the event loop; can be called twice."""
        if not self._loop.is_closed() and (tasks := asyncio.all_tasks(self._loop)):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _run(self, reward: LoadedReward, group: list[LoadedReward]) -> None:
        call = self._calls[reward.function.name]
        # Built-in functions bound each completion by themselves.
        alone = reward.function.is_built_in
        try:
            with time_limit(0 if alone else self._limit_s):
                if group:
                    answers = self._loop.run_until_complete(self._gather(group))
                else:
                    answers = [answer(reward, call, lambda _index: None)]
        except TookTooLong as late:
            raise RewardError(self._too_long(reward, late)) from None
        self._answers |= {outcome.name: outcome for outcome in answers}

    def _too_long(self, reward: LoadedReward, late: TookTooLong) -> str:
        stack = late.stack
        for task in asyncio.all_tasks(self._loop):
            if task.get_name() in self._rewards:  # one that still waits, and where
                reward, stack = self._rewards[task.get_name()], lines_of(task)
        call = self._calls[reward.function.name]
        return took_too_long(
            reward.function,
            self._limit_s,
            call.completions,
            (call.columns.get("completions") or [None])[0],
            one_alone=False,
            line=line_in(stack, file_of(reward.function)),
        )

    async def _gather(self, group: list[LoadedReward]) -> list[Answer]:
        names = [reward.function.name for reward in group]
        tasks = [
            asyncio.create_task(answer_async(reward, self._calls[name]), name=name)
            for reward, name in zip(group, names, strict=True)
        ]
        return await asyncio.gather(*tasks)
