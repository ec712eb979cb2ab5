"""Scores this rank's completions with the reward functions and adds the scores up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rewards.functions import RewardFunction
from grpo_doctor_trainer.rewards.pool import InProcess, Pool


class Rewards:
    """The reward functions of a run and the processes they run in.

    Make it before there are threads and before the device is used: processes start here.
    """

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self.names = [function.name for function in functions]
        self._runner: Pool | InProcess = (
            Pool(functions, config) if config.reward_num_workers else InProcess(functions, config)
        )

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
        inputs: dict[str, list[Any]] = {
            name: [row.columns.get(name) for row in prompts.rows]
            for name in prompts.rows[0].columns
        }
        texts = {"prompts": prompts.texts, "completions": completions, "completion_ids": ids}
        self._runner.begin(inputs | texts)
        columns = []
        for name in self.names:
            with phase(f"reward/{name}"):
                answer = self._runner.result(name)
            counter(f"reward/{name}_s", answer.seconds)
            columns.append(torch.tensor(answer.scores))
        return torch.stack(columns, dim=1)

    def close(self) -> None:
        """End the processes; can be called twice."""
        self._runner.close()


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
