"""Evaluation between steps: the policy answers the same rows each time, and is scored as ever.

It samples as training does, one completion per row, from a seed of its own: two evaluations differ
by the weights alone, and the run continues as if none had been."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from grpo_doctor_trainer.algorithm.loss import deviation
from grpo_doctor_trainer.logs.completions import decode
from grpo_doctor_trainer.phases import phase, within
from grpo_doctor_trainer.ranks.group import gather_rows, settle
from grpo_doctor_trainer.rewards.scoring import combine
from grpo_doctor_trainer.rollout import seeded

if TYPE_CHECKING:
    from grpo_doctor_trainer.data.experience import TokenBatch
    from grpo_doctor_trainer.data.prompts import Evaluation, PromptBatch
    from grpo_doctor_trainer.logs.metrics import Metrics
    from grpo_doctor_trainer.run import Run


def evaluate_if_due(run: Run, number: int) -> None:
    """Evaluate after every `--eval_steps` steps and after the last, as phase `eval`."""
    every = run.config.eval_steps
    if run.evaluation is None or (number % every and number != run.steps):
        return
    started = time.perf_counter()
    seed = run.config.seed + run.ranks.rank
    with within("eval"), seeded(seed, run.ranks.device):
        answered = _answers(run, run.evaluation)
        values = _scored(run, run.evaluation, answered)
        settle(run.ranks.device)
    run.log.evaluated(number, values | {"eval_runtime": time.perf_counter() - started})


def _answers(run: Run, evaluation: Evaluation) -> list[tuple[PromptBatch, TokenBatch]]:
    run.rollout.sync()
    answered = []
    with run.offload.during_rollout(), run.rollout.awake():
        for numbers in evaluation.batches:
            with phase("dataload"):
                prompts = evaluation.batch(numbers)
            with phase("rollout"):
                answered.append((prompts, run.rollout.generate(prompts).tokens))
    return answered


def _scored(
    run: Run, evaluation: Evaluation, answered: list[tuple[PromptBatch, TokenBatch]]
) -> Metrics:
    parts = []
    for numbers, (prompts, tokens) in zip(evaluation.batches, answered, strict=True):
        with phase("reward"):
            scores = run.rewards.score(prompts, tokens, decode(run.tokenizer, tokens))
        ends = torch.isin(tokens.completion_tokens.cpu(), torch.tensor(run.end_tokens)).any(dim=1)
        lengths = tokens.completion_mask.sum(dim=1).cpu()
        first_time = torch.tensor([number < evaluation.rows for number in numbers])
        parts.append(torch.cat([scores, lengths[:, None], ends[:, None], first_time[:, None]], 1))
    every = gather_rows(torch.cat(parts), run.ranks)
    every = every[every[:, -1] > 0]
    scores, lengths, ends = every[:, :-3], every[:, -3], every[:, -2]
    rewards = combine(scores, run.config.weights)
    means = {
        f"eval_rewards/{name}/mean": float(scores[:, column].nanmean())
        for column, name in enumerate(run.rewards.names)
    }
    return {
        "eval_reward": float(rewards.nanmean()),
        "eval_reward_std": float(deviation(rewards)),
        **means,
        "eval_completions/mean_length": float(lengths.mean()),
        "eval_completions/clipped_ratio": float(1 - ends.mean()),
    }
