"""The training loop: one step of GRPO, from prompts to new weights, read from top to bottom."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from grpo_doctor_probes import counter, phase, step
from grpo_doctor_trainer.advantages import group_advantages
from grpo_doctor_trainer.completions import decode, write_completions
from grpo_doctor_trainer.distributed import gather_rows, sum_over_ranks
from grpo_doctor_trainer.experience import Experience
from grpo_doctor_trainer.logprobs import logprobs_in_parts
from grpo_doctor_trainer.loss import grpo_loss
from grpo_doctor_trainer.model.load import reference_weights
from grpo_doctor_trainer.rewards.scoring import combine, score
from grpo_doctor_trainer.schedule import learning_rate
from grpo_doctor_trainer.stats import completion_metrics, loss_metrics, reward_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.data.prompts import PromptBatch
    from grpo_doctor_trainer.experience import TokenBatch
    from grpo_doctor_trainer.setup import Run
    from grpo_doctor_trainer.stats import Metrics


def train(run: Run) -> None:
    """Runs every step of the run."""
    config, engine = run.config, run.engine
    accumulation = config.gradient_accumulation_steps
    batches: Iterator[Experience] = iter(())
    found: Metrics = {}

    for number in range(1, run.steps + 1):
        with step(number):
            started = time.perf_counter()
            if (number - 1) % config.steps_per_rollout == 0:
                experience, found = collect(run, number)
                batches = micro_batches(experience, run)

            with phase("train"):
                sums = torch.zeros(())
                for index in range(accumulation):
                    with engine.micro_batch(last=index == accumulation - 1):
                        loss, statistics = grpo_loss(engine.model, next(batches), config)
                        engine.backward(loss)
                    sums = sums.to(statistics.device) + statistics
                sums = sum_over_ranks(sums, run.ranks)
                found |= loss_metrics(sums, accumulation * run.ranks.world_size)

            with phase("optimizer"):
                found["learning_rate"] = learning_rate(config, number, run.steps)
                found["grad_norm"] = engine.step(found["learning_rate"])
                run.log.write(number, found, time.perf_counter() - started)

            if run.checkpoints.due(number, run.steps):
                with phase("checkpoint"):
                    run.checkpoints.save(number)

    run.log.finish()


def collect(run: Run, number: int) -> tuple[Experience, Metrics]:
    """Gathers experience for the next steps: prompts, completions, rewards, earlier log-probs."""
    with phase("dataload"):
        prompts = next(run.prompts)

    with run.offload.during_rollout():
        run.rollout.sync()
        with phase("rollout"):
            tokens = run.rollout.generate(prompts)
            counter("rollout/tokens", float(tokens.completion_mask.sum()))

    with phase("reward"):
        advantages, found = reward(run, number, prompts, tokens)

    if not run.config.off_policy and run.config.beta == 0:
        return Experience(tokens, advantages, None, None), found

    with phase("logprob"):
        old, reference = earlier_logprobs(run, tokens)
    return Experience(tokens, advantages, old, reference), found


def reward(
    run: Run, number: int, prompts: PromptBatch, tokens: TokenBatch
) -> tuple[torch.Tensor, Metrics]:
    """Scores this rank's completions and compares them with their groups, which may span ranks."""
    config, group = run.config, run.config.num_generations
    completions = decode(run.tokenizer, tokens)
    scores = score(run.rewards, prompts.rows, prompts.texts, completions)
    lengths = tokens.completion_mask.sum(dim=1).cpu()
    ends = torch.isin(tokens.completion_tokens.cpu(), torch.tensor(run.end_tokens)).any(dim=1)

    mine = torch.cat([scores, lengths[:, None], ends[:, None]], dim=1)
    every = gather_rows(mine, run.ranks)
    scores, lengths, ends = every[:, :-2], every[:, -2], every[:, -1]
    rewards = combine(scores, config.weights)
    advantages = group_advantages(rewards, group, config.scale_rewards)

    names = [function.name for function in run.rewards]
    found = reward_metrics(rewards, scores, names, group) | completion_metrics(lengths, ends)
    own = slice(run.ranks.rank * len(mine), (run.ranks.rank + 1) * len(mine))
    if config.log_completions and run.ranks.is_main:
        write_completions(config, number, prompts.texts, completions, scores[own], advantages[own])
    return advantages[own].to(run.ranks.device), found


def earlier_logprobs(
    run: Run, tokens: TokenBatch
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Asks the sampling weights, if they will have changed by then, and the reference, if any."""
    config, old, reference = run.config, None, None
    size, temperature = config.per_device_train_batch_size, config.temperature
    if config.off_policy:
        with phase("logprob/old"):
            old = logprobs_in_parts(run.engine.model, tokens, temperature, size)
    if config.beta > 0:
        with (
            phase("logprob/reference"),
            reference_weights(run.engine, run.reference) as model,
        ):
            reference = logprobs_in_parts(model, tokens, temperature, size)
    return old, reference


def micro_batches(experience: Experience, run: Run) -> Iterator[Experience]:
    """Cuts a rollout into shuffled micro-batches, `--num_iterations` times."""
    for _ in range(run.config.num_iterations):
        order = torch.randperm(len(experience.tokens))
        size = run.config.per_device_train_batch_size
        for start in range(0, len(order), size):
            yield experience.select(order[start : start + size].to(run.ranks.device))
