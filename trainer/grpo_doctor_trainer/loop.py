"""The training loop. One step of GRPO, from prompts to new weights, reads from top to bottom here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
from grpo_doctor_probes import counter, phase, step

from grpo_doctor_trainer.advantages import group_advantages
from grpo_doctor_trainer.completions import write_completions
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
    """Runs every step."""
    batches: Iterator[Experience] = iter(())
    for number in range(1, run.steps + 1):
        started = time.perf_counter()
        with step(number):
            if (number - 1) % run.config.steps_per_rollout == 0:
                experience, found = collect(run, number)
                batches = micro_batches(experience, run)
            ...
    run.log.finish()
