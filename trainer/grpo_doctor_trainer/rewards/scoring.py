"""Scores this rank's completions with the reward functions and adds the scores up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rewards.in_process import InProcess
from grpo_doctor_trainer.rewards.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.data.experience import TokenBatch
    from grpo_doctor_trainer.rewards.registry import RewardFunction


class Rewards:
    """The reward functions of a run and the processes they run in.

    Make it before there are threads and before the device is used: workers start here.

    Raises:
        RewardError: a function cannot be loaded.
    """

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self.names = [function.name for function in functions]
        self._runner: Pool | InProcess = (
            Pool(functions, config) if config.reward_num_workers else InProcess(functions, config)
        )

    def score(
        self, prompts: PromptBatch, tokens: TokenBatch, completions: list[str]
    ) -> torch.Tensor:
        """Scores each completion with each function.

        The span `reward/<name>` is how long this rank waited for a function after those before it;
        with several workers they run at once, and the counter `reward/<name>_s` has the seconds
        that the function itself took. The workers record spans of their own, too.

        Args:
            prompts: what was to be completed.
            tokens: the completions as tokens.
            completions: the same as text, without end and padding tokens.

        Returns:
            [completions, functions], float32; NaN where a function returned None (not applicable).

        Raises:
            RewardError: a function raised, returned something else than one finite number or None
                each, took longer than `--reward_timeout`, or ended its process.
        """
        count = len(completions)
        scores = torch.empty(count, len(self.names))
        self._runner.begin(_inputs(prompts, tokens, completions), count)
        for column, name in enumerate(self.names):
            with phase(f"reward/{name}"):
                values, seconds = self._runner.result(name, count)
            counter(f"reward/{name}_s", seconds)
            scores[:, column] = torch.tensor(values)
        return scores

    def close(self) -> None:
        """Ends the processes; can be called twice."""
        self._runner.close()


def combine(scores: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    """Adds the weighted scores of each completion, leaving out what is not applicable.

    Args:
        scores: [completions, functions], NaN where not applicable.
        weights: one per function.

    Returns:
        [completions], NaN for those to which no function applies.
    """
    sums = (scores * torch.tensor(weights)).nansum(dim=1)
    return sums.masked_fill(scores.isnan().all(dim=1), torch.nan)


def _inputs(
    prompts: PromptBatch, tokens: TokenBatch, completions: list[str]
) -> dict[str, list[Any]]:
    rows = prompts.rows
    columns = {name: [row.columns.get(name) for row in rows] for name in rows[0].columns}
    lengths = tokens.completion_mask.sum(dim=1).tolist()
    ids = [row[:n] for row, n in zip(tokens.completion_tokens.tolist(), lengths, strict=True)]
    return columns | {"prompts": prompts.texts, "completions": completions, "completion_ids": ids}
