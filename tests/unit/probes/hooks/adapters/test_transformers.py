"""transformers' loop: where steps begin and end, and what a trainer logs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks import spans
from grpo_doctor_probes.hooks.adapters import transformers
from grpo_doctor_probes.hooks.sums import PhaseSums
from tests.unit.probes.hooks.adapters.framework import Job, hooked

TRAINER = """
class Trainer:
    def __init__(self, zero=True):
        self.zero, self.rows = zero, []
        self.state, self.args = Facts(global_step=0), Facts(to_dict=lambda: {"lr": 1})

    def is_world_process_zero(self):
        return self.zero

    def train(self, steps=2):
        for _ in range(steps):
            self.get_batch_samples(iter(()), 1)
            self.training_step()
            self.state.global_step += 1
            self.log({"loss": 0.5})
        return "trained"

    def get_batch_samples(self, iterator, count):
        return [], count

    def training_step(self):
        pass

    def evaluate(self):
        self.log({"eval_loss": 0.25})

    def log(self, logs):
        self.rows.append(logs)
"""
CALLBACKS = """
class CallbackHandler:
    def on_train_end(self):
        return "ended"
"""


@pytest.fixture
def trainer() -> Any:
    return hooked("transformers.trainer", TRAINER, Facts=SimpleNamespace).Trainer


def test_steps_are_counted_from_the_one_that_comes(job: Job, trainer: Any) -> None:
    made = trainer()
    assert made.train() == "trained"
    assert made.train(1) == "trained"
    assert (job.steps, job.errors) == ([1, 2, 3], 0)
    assert job.spans == ["dataload", "train"] * 3
    assert job.metrics == [(number, {"loss": 0.5}) for number in (1, 2, 3)]
    assert job.facts is not None
    assert job.facts["config"] == {"lr": 1}


def test_the_last_step_ends_before_what_comes_after_training(job: Job, trainer: Any) -> None:
    trainer().get_batch_samples(iter(()), 1)
    handler = hooked("transformers.trainer_callback", CALLBACKS).CallbackHandler()
    assert handler.on_train_end() == "ended"
    assert job.steps == [1]


def test_metrics_are_of_the_first_process(job: Job, trainer: Any) -> None:
    trainer(zero=False).train()
    assert (job.metrics, job.facts) == ([], None)


def test_seconds_are_logged_with_the_steps_and_not_with_an_evaluation(
    job: Job, trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = PhaseSums(enabled=True)
    for module in (spans, transformers):
        monkeypatch.setattr(module, "SUMS", sums)
    made = trainer()
    made.get_batch_samples(iter(()), 1)
    made.evaluate()
    made.log({"loss": 0.5})
    evaluated, logged = made.rows
    assert evaluated == {"eval_loss": 0.25}
    assert {"loss", "grpo_doctor/step_s", "grpo_doctor/eval_s"} <= logged.keys()
    assert dict(job.metrics) == {0: {"loss": 0.5}}
    assert [row for _, row in job.metrics] == [{"eval_loss": 0.25}, {"loss": 0.5}]


def test_without_the_flag_nothing_is_added_to_the_log(job: Job, trainer: Any) -> None:
    made = trainer()
    made.train()
    assert made.rows == [{"loss": 0.5}] * 2
