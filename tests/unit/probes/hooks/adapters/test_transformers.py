"""transformers' loop: where steps begin and end, and what a trainer logs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.probes.hooks.adapters.framework import Job, hooked
from tests.unit.probes.hooks.hooked_job import TRAINER

CALLBACKS = """
class CallbackHandler:
    def on_train_end(self):
        return "ended"
"""


@pytest.fixture
def trainer() -> Any:
    return hooked("transformers.trainer", TRAINER).Trainer


def test_steps_are_counted_from_the_one_that_comes(job: Job, trainer: Any) -> None:
    made = trainer(steps=2)
    assert made.train() == "trained"
    made.steps = 1
    assert made.train() == "trained"
    assert (job.steps, job.errors) == ([1, 2, 3], 0)
    assert job.spans == ["dataload", "train"] * 3
    assert job.metrics == [(number, {"loss": 0.5, "reward": number}) for number in (1, 2, 3)]
    assert made.logged == {"loss": 0.5, "reward": 3.0}  # nothing is added to the job's own
    assert job.facts["config"]["learning_rate"] == 1e-6


def test_the_last_step_ends_before_what_comes_after_training(job: Job, trainer: Any) -> None:
    trainer().get_batch_samples(iter(()), 1)
    handler = hooked("transformers.trainer_callback", CALLBACKS).CallbackHandler()
    assert handler.on_train_end() == "ended"
    assert job.steps == [1]


def test_metrics_are_of_the_first_process(job: Job, trainer: Any) -> None:
    made = trainer()
    made.is_world_process_zero = lambda: False
    made.train()
    assert (job.metrics, job.facts) == ([], {})
