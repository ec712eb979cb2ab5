"""Scores this rank's completions with the reward functions and adds the scores up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rewards.in_process import InProcess
from grpo_doctor_trainer.rewards.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.data.experience import TokenBatch
    from grpo_doctor_trainer.rewards.registry import RewardFunction
    from grpo_doctor_trainer.rollout import OnEnded


class Rewards:
    """The reward functions of a run and the processes they run in.

    Make it before there are threads and before the device is used: workers start here.

    Attributes:
        names: of the functions.
        overlap: whether any of them scores while the rank does something else.

    Raises:
        RewardError: a function cannot be loaded.
    """

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self.names = [function.name for function in functions]
        self._runner: Pool | InProcess = (
            Pool(functions, config) if config.reward_num_workers else InProcess(functions, config)
        )
        self.overlap = config.overlap_rewards and self._runner.scores_early
        self._was_early = False
        self._count = 0

    def during_rollout(self, prompts: PromptBatch, tokenizer: Any) -> OnEnded | None:
        """Gives what scores the completions of a rollout that have ended, while it goes on.

        Only the functions that look at each completion alone are called by then; `score` waits for
        them, calls the others, and says what went wrong.

        Args:
            prompts: what is to be completed.
            tokenizer: makes text of completions.

        Returns:
            none where no function can be called so early.
        """
        if not isinstance(self._runner, Pool) or not self.overlap:
            return None
        pool, self._was_early = self._runner, True

        def on_ended(completions: Mapping[int, list[int]]) -> None:
            if not completions:
                pool.advance()
                return
            indices, ids = list(completions), list(completions.values())
            texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
            pool.submit(_inputs(prompts, indices, texts, ids), indices)

        return on_ended

    def score(
        self, prompts: PromptBatch, tokens: TokenBatch, completions: list[str]
    ) -> torch.Tensor:
        """Scores each completion with each function: `begin` and `finish` in one.

        Args:
            prompts: what was to be completed.
            tokens: the completions as tokens.
            completions: the same as text, without end and padding tokens.

        Returns:
            [completions, functions], float32; NaN where a function returned None (not applicable).

        Raises:
            RewardError: as `finish` does.
        """
        self.begin(prompts, tokens, completions)
        return self.finish()

    def begin(self, prompts: PromptBatch, tokens: TokenBatch, completions: list[str]) -> None:
        """Hands completions to the functions, where they run beside the trainer.

        Raises:
            RewardError: the processes have ended, or cannot be given the columns.
        """
        self._count = len(completions)
        lengths = tokens.completion_mask.sum(dim=1).tolist()
        ids = [row[:n] for row, n in zip(tokens.completion_tokens.tolist(), lengths, strict=True)]
        inputs = _inputs(prompts, range(self._count), completions, ids)
        self._runner.begin(inputs, self._count)

    def finish(self) -> torch.Tensor:
        """Waits for the scores of what `begin` was given.

        The span `reward/<name>` is how long this rank waited for a function after those before it;
        with several workers they run at once, and the counter `reward/<name>_s` has the seconds
        that the function itself took. How much of that, over all functions, passed during the
        rollout and during the log-probs is in `rollout/reward_s` and `logprob/reward_s`. The
        workers record spans of their own, too.

        Raises:
            RewardError: a function raised, returned something else than one finite number or None
                each, took longer than `--reward_timeout`, or ended its process.
        """
        scores = torch.empty(self._count, len(self.names))
        in_rollout_s = in_logprob_s = 0.0
        for column, name in enumerate(self.names):
            with phase(f"reward/{name}"):
                scored = self._runner.result(name, self._count)
            counter(f"reward/{name}_s", scored.seconds)
            in_rollout_s += scored.in_rollout_s
            in_logprob_s += scored.in_logprob_s
            scores[:, column] = torch.tensor(scored.scores)
        if self._was_early:
            counter("rollout/reward_s", in_rollout_s)
            counter("logprob/reward_s", in_logprob_s)
        self._was_early = False
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
    prompts: PromptBatch, indices: Sequence[int], completions: list[str], ids: list[list[int]]
) -> dict[str, list[Any]]:
    """Gives every column for some completions of a batch, whose texts and tokens these are."""
    rows = [prompts.rows[index] for index in indices]
    columns: dict[str, list[Any]] = {
        name: [row.columns.get(name) for row in rows] for name in prompts.rows[0].columns
    }
    texts = [prompts.texts[index] for index in indices]
    return columns | {"prompts": texts, "completions": completions, "completion_ids": ids}
