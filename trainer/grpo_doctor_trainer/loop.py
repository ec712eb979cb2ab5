"""The training loop: one step of GRPO, from prompts to new weights, read from top to bottom.

Evaluation samples as training does, one completion per row, from a seed of its own: two evaluations
differ by the weights alone, and the run continues as if none had been."""

from __future__ import annotations

import time

import torch

from grpo_doctor_probes import counter, step
from grpo_doctor_trainer.algorithm.logprobs import logprobs_in_parts
from grpo_doctor_trainer.algorithm.loss import (
    check_gap,
    deviation,
    group_advantages,
    grpo_loss,
    tokens_in_loss,
)
from grpo_doctor_trainer.checkpoint import Progress
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import Experience, Feed, TokenBatch
from grpo_doctor_trainer.data.prompts import Evaluation, PromptBatch
from grpo_doctor_trainer.interrupts import stop_if_asked
from grpo_doctor_trainer.logs.metrics import (
    Metrics,
    completion_metrics,
    loss_metrics,
    reward_metrics,
)
from grpo_doctor_trainer.logs.steplog import decode, write_completions
from grpo_doctor_trainer.memory import report_memory
from grpo_doctor_trainer.model.load import reference_weights
from grpo_doctor_trainer.phases import phase, within
from grpo_doctor_trainer.ranks import gather_rows, settle
from grpo_doctor_trainer.rewards.scoring import combine
from grpo_doctor_trainer.rollout import seeded
from grpo_doctor_trainer.run import Run


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

            evaluate_if_due(run, number)
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


def evaluate_if_due(run: Run, number: int) -> None:
    """Evaluate after every `--eval_steps` steps and after the last, as phase `eval`."""
    every = run.config.eval_steps
    if run.evaluation is None or (number % every and number != run.steps):
        return
    started = time.perf_counter()
    seed = run.config.seed + run.ranks.rank
    with within("eval"), seeded(seed, run.ranks.device):
        values = evaluate(run, run.evaluation)
        settle(run.ranks.device)
    run.log.evaluated(number, values | {"eval_runtime": time.perf_counter() - started})


def evaluate(run: Run, evaluation: Evaluation) -> Metrics:
    """Answer each row once, score the answers, and take means over all ranks."""
    run.rollout.sync()
    answered = []
    with run.offload.during_rollout(), run.rollout.awake():
        for numbers in evaluation.batches:
            with phase("dataload"):
                prompts = evaluation.batch(numbers)
            with phase("rollout"):
                answered.append((numbers, prompts, run.rollout.generate(prompts).tokens))
    parts = []
    for numbers, prompts, tokens in answered:
        with phase("reward"):
            scored = score(run, prompts, tokens, decode(run.tokenizer, tokens))
        first_time = torch.tensor([[float(number < evaluation.rows)] for number in numbers])
        parts.append(torch.cat([scored, first_time], dim=1))
    every = gather_rows(torch.cat(parts), run.ranks)
    every = every[every[:, -1] > 0]
    scores, lengths, ends = every[:, :-3], every[:, -3], every[:, -2]
    rewards = combine(scores, run.config.weights)
    means = zip(run.rewards.names, scores.nanmean(dim=0).tolist(), strict=True)
    return {
        "eval_reward": float(rewards.nanmean()),
        "eval_reward_std": float(deviation(rewards)),
        **{f"eval_rewards/{name}/mean": mean for name, mean in means},
        "eval_completions/mean_length": float(lengths.mean()),
        "eval_completions/clipped_ratio": float(1 - ends.mean()),
    }
