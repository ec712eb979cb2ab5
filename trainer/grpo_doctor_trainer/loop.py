"""The training loop: one step of GRPO, from prompts to new weights, read from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch

from grpo_doctor_probes import counter, step
from grpo_doctor_trainer.algorithm.logprobs import logprobs_in_parts
from grpo_doctor_trainer.algorithm.loss import (
    check_gap,
    group_advantages,
    grpo_loss,
    tokens_in_loss,
)
from grpo_doctor_trainer.checkpoint import Checkpointer, Progress
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import Experience, Feed, TokenBatch
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.interrupts import stop_if_asked
from grpo_doctor_trainer.memory import Offload, report_memory
from grpo_doctor_trainer.model.load import reference_weights
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks import Ranks, gather_rows, settle
from grpo_doctor_trainer.rewards.scoring import Rewards, combine
from grpo_doctor_trainer.rollout import RolloutEngine
from grpo_doctor_trainer.steplog import (
    Metrics,
    StepLog,
    completion_metrics,
    decode,
    loss_metrics,
    reward_metrics,
    write_completions,
)


@dataclass(frozen=True)
class Run:
    """Everything the loop uses."""

    config: TrainerConfig
    ranks: Ranks
    steps: int
    prompts: Generator[PromptBatch, None, None]
    tokenizer: Any
    end_tokens: tuple[int, ...]
    engine: Engine
    reference: Any | None
    rollout: RolloutEngine
    offload: Offload
    rewards: Rewards
    checkpoints: Checkpointer
    log: StepLog
    start: Progress

    def close(self) -> None:
        """End what runs alongside the loop; also after an error."""
        self.prompts.close()  # or its workers live until the last frame that saw them is gone
        self.rewards.close()
        self.rollout.close()


def train(run: Run) -> None:
    """Run every step of the run."""
    config, engine = run.config, run.engine
    accumulation = config.gradient_accumulation_steps
    feed, values = run.start.feed, dict(run.start.metrics)

    for number in range(run.start.number + 1, run.steps + 1):
        stop_if_asked()
        with step(number):
            started = time.perf_counter()
            if feed is None or feed.empty:
                feed, values = collect(run, number)

            with phase("train"):
                micro_batches = next_micro_batches(feed, config)
                mean_tokens = tokens_in_loss(micro_batches, run.ranks)
                sums = []
                for index, micro_batch in enumerate(micro_batches):
                    batch = micro_batch.tokens
                    places = batch.filled if config.share_prompts else batch.places
                    counter("train/token_places", float(places))
                    with (
                        phase("train/micro_batch"),
                        engine.micro_batch(last=index == accumulation - 1),
                    ):
                        loss, counts = grpo_loss(engine.model, micro_batch, config, mean_tokens)
                        engine.backward(loss)
                    sums.append(counts)
                values |= loss_metrics(sums, run.ranks)
                check_gap(config, values)

            with phase("optimizer"):
                values["learning_rate"] = config.learning_rate_at(number, run.steps)
                values["grad_norm"] = engine.step(values["learning_rate"])
                settle(run.ranks.device)
                report_memory(run.ranks.device)
                run.log.write(number, values, time.perf_counter() - started)

            if run.checkpoints.due(number, run.steps):
                with phase("checkpoint"):
                    run.checkpoints.save(Progress(number, feed, values, run.log.state()))

    run.log.finish()


def collect(run: Run, number: int) -> tuple[Feed, Metrics]:
    """Gather experience for the next steps: prompts, completions, rewards, earlier log-probs."""
    config = run.config
    with phase("dataload"):
        prompts = next(run.prompts)

    run.rollout.sync()
    with run.offload.during_rollout(), run.rollout.awake(), phase("rollout"):
        completed = run.rollout.generate(prompts)
        counter("rollout/tokens", float(completed.tokens.completion_mask.sum()))

    with phase("reward"):
        completions = decode(run.tokenizer, completed.tokens)
        advantages, mask, values = reward(run, number, prompts, completed.tokens, completions)

    old = reference = None
    if config.off_policy or config.beta > 0:
        with phase("logprob"):
            old, reference = earlier_logprobs(run, completed.tokens)
            settle(run.ranks.device)

    experience = Experience(completed.tokens, advantages, old, reference, completed.logprobs, mask)
    size, iterations = config.per_device_train_batch_size, config.num_iterations
    return Feed.shuffled(experience, size=size, iterations=iterations), values


def reward(
    run: Run, number: int, prompts: PromptBatch, tokens: TokenBatch, completions: list[str]
) -> tuple[torch.Tensor, torch.Tensor | None, Metrics]:
    """Score completions and compare each with its group, which may span ranks.

    Returns:
        the advantages, which completions are in the loss (none: all), and metrics.
    """
    config, group = run.config, run.config.num_generations
    mine = score(run, prompts, tokens, completions)
    every = gather_rows(mine, run.ranks)
    scores, lengths, ends = every[:, :-2], every[:, -2], every[:, -1]
    rewards = combine(scores, config.weights)
    advantages = group_advantages(rewards, group, config.scale_rewards)

    values = reward_metrics(rewards, scores, run.rewards.names, group) | completion_metrics(
        lengths, ends
    )
    own = slice(run.ranks.rank * len(mine), (run.ranks.rank + 1) * len(mine))
    if config.log_completions and run.ranks.is_main:
        with phase("reward/log_completions"):
            write_completions(
                config, number, prompts.texts, completions, scores[own], advantages[own]
            )
    mask = ends[own].to(run.ranks.device) if config.mask_truncated_completions else None
    return advantages[own].to(run.ranks.device), mask, values


def score(
    run: Run, prompts: PromptBatch, tokens: TokenBatch, completions: list[str]
) -> torch.Tensor:
    """Wait for the reward functions.

    Returns:
        [completions, functions + 2]: the scores, the tokens of a completion, and whether it ended.
    """
    scores = run.rewards.score(prompts, tokens, completions)
    lengths = tokens.completion_mask.sum(dim=1).cpu()
    ends = torch.isin(tokens.completion_tokens.cpu(), torch.tensor(run.end_tokens)).any(dim=1)
    return torch.cat([scores, lengths[:, None], ends[:, None]], dim=1)


def next_micro_batches(feed: Feed, config: TrainerConfig) -> list[Experience]:
    """Take the micro-batches of one optimizer step, and count their tokens."""
    count = config.gradient_accumulation_steps
    micro_batches = feed.take(count, by_prompt=config.groups_prompts)
    counter("train/tokens", float(sum(batch.tokens.filled for batch in micro_batches)))
    return micro_batches


def earlier_logprobs(
    run: Run, tokens: TokenBatch
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Ask the sampling weights, if they will have changed by then, and the reference, if any.

    Returns:
        both [completions, tokens], float32; none where nothing compares with them.
    """
    config, old, reference = run.config, None, None
    size, temperature = config.per_device_train_batch_size, config.temperature
    share = config.share_prompts
    if config.off_policy:
        with phase("logprob/old"):
            old = logprobs_in_parts(
                run.engine.model, tokens, temperature, size, share_prompts=share
            )
    if config.beta > 0:
        with phase("logprob/reference"), reference_weights(run.engine, run.reference) as model:
            reference = logprobs_in_parts(model, tokens, temperature, size, share_prompts=share)
    return old, reference
