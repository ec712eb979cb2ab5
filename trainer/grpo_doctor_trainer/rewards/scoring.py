"""Scores this rank's completions with the reward functions and adds the scores up.

A function belongs to one process for the whole run and is called with the whole batch, because it
may compare completions and keep state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rewards.functions import Answer, Columns, RewardFunction, answers, load
from grpo_doctor_trainer.rewards.worker import Worker


class InProcess:
    """The functions in this process, for a debugger: `--reward_num_workers 0`."""

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self._rewards = {function.name: load(function, config) for function in functions}
        self._columns: Columns = {}
        self._answers: dict[str, Answer] = {}
        self._loop = asyncio.new_event_loop()

    def begin(self, columns: Columns) -> None:
        """Keep the columns; the functions are called by `result`."""
        self._columns, self._answers = columns, {}

    def result(self, name: str) -> Answer:
        """Call a function; the first async one brings all the others."""
        if name not in self._answers:
            wanted, every = self._rewards[name], self._rewards.values()
            called = [each for each in every if each.is_async] if wanted.is_async else [wanted]
            found = answers(called, self._columns, self._loop, lambda _: nullcontext())
            self._answers |= {answer.name: answer for answer in found}
        return self._answers[name]

    def close(self) -> None:
        """Close the event loop; can be called twice."""
        self._loop.close()


class Rewards:
    """The reward functions of a run and the processes they run in.

    Make it before there are threads and before the device is used: processes start here.
    """

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self.names = [function.name for function in functions]
        self._runners: dict[str, Worker | InProcess] = {}
        count = min(config.reward_num_workers, len(functions))
        try:
            for index in range(max(1, count)):
                own = functions[index :: max(1, count)]
                runner = Worker(own, config) if count else InProcess(own, config)
                self._runners |= dict.fromkeys((function.name for function in own), runner)
            for runner in self._each():
                if isinstance(runner, Worker):
                    runner.wait_until_loaded()
        except BaseException:
            self.close()
            raise

    def score(
        self, prompts: PromptBatch, tokens: TokenBatch, completions: list[str]
    ) -> torch.Tensor:
        """Score each completion with each function.

        The span `reward/<name>` is how long this rank waited for a function after those before it;
        the counter `reward/<name>_s` has the seconds that the function itself took. Worker
        processes record spans of their own, too.

        Returns:
            [completions, functions], float32; NaN where a function returned None (not applicable).
        """
        lengths = tokens.completion_mask.sum(dim=1).tolist()
        ids = [row[:n] for row, n in zip(tokens.completion_tokens.tolist(), lengths, strict=True)]
        columns: dict[str, list[Any]] = {
            name: [row.columns.get(name) for row in prompts.rows]
            for name in prompts.rows[0].columns
        }
        columns |= {"prompts": prompts.texts, "completions": completions, "completion_ids": ids}
        for runner in self._each():
            runner.begin(columns)
        scores = []
        for name in self.names:
            with phase(f"reward/{name}"):
                answer = self._runners[name].result(name)
            if answer.error is not None:
                raise RewardError(answer.error)
            counter(f"reward/{name}_s", answer.seconds)
            scores.append(torch.tensor(answer.scores))
        return torch.stack(scores, dim=1)

    def close(self) -> None:
        """End the processes; can be called twice."""
        for runner in self._each():
            runner.close()

    def _each(self) -> list[Worker | InProcess]:
        return list(dict.fromkeys(self._runners.values()))


def combine(scores: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    """Add the weighted scores of each completion, leaving out what is not applicable.

    Args:
        scores: [completions, functions], NaN where not applicable.
        weights: one per function.

    Returns:
        [completions], NaN for those to which no function applies.
    """
    sums = (scores * torch.tensor(weights)).nansum(dim=1)
    return sums.masked_fill(scores.isnan().all(dim=1), torch.nan)
