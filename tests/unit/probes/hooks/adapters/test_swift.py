"""ms-swift's trainers: over transformers' loop, and on Megatron."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks import describing
from tests.unit.probes.hooks.adapters.framework import Job, hooked

MIXIN = """
class RolloutTrainerMixin:
    multi_turn_scheduler = None

    def _prepare_scheduler(self):
        return "prepared"
"""


class Scheduler:
    def step(self) -> str:
        return "turn"


def test_turns_of_a_scheduler_are_tools(job: Job) -> None:
    made = hooked("swift.rlhf_trainers.rollout_mixin", MIXIN).RolloutTrainerMixin()
    assert made._prepare_scheduler() == "prepared"
    made.multi_turn_scheduler = type("Scheduler", (Scheduler,), {})()
    assert made._prepare_scheduler() == "prepared"
    assert made.multi_turn_scheduler.step() == "turn"
    assert (job.spans, job.errors) == (["rollout/tools"], 0)


LAUNCH = """
class SwiftSft:
    def __init__(self, args): self.args = args
    def train(self, trainer): return trainer
"""


def test_the_launchers_arguments_are_kept_for_the_settings(job: Job) -> None:
    launch = hooked("swift.pipelines.train.sft", LAUNCH).SwiftSft(SimpleNamespace(lora_rank=8))
    assert launch.train("trainer") == "trainer"
    assert describing.PARSED == {"lora_rank": 8}


BASE = """
class BaseMegatronTrainer:
    def train(self):
        return "trained"

    def train_step(self, *args):
        return args

    def on_log(self, logs):
        logs.pop("n_steps", None)

    def _prepare_data_iterator(self):
        return iter([1, 2]), None
"""


class Optimizer:
    def step(self) -> str:
        return "stepped"


def optimizer() -> Any:
    """One of a class of its own: what is hooked is the class."""
    return type("Optimizer", (Optimizer,), {})()


def length() -> float:
    return 1.0


@pytest.fixture
def megatron() -> Any:
    made = hooked("swift.megatron.trainers.base", BASE).BaseMegatronTrainer()
    made.args, made.state = SimpleNamespace(lr=1, _hidden=1), SimpleNamespace(iteration=6)
    made.optimizer, made.reward_funcs = optimizer(), [length]
    return made


def test_a_step_on_megatron_begins_with_train_step(job: Job, megatron: Any) -> None:
    assert megatron.train_step("data") == ("data",)
    assert megatron.optimizer.step() == "stepped"
    assert job.recording.header.step == 7
    assert (job.spans, job.errors) == (["train", "optimizer"], 0)


@pytest.mark.parametrize(("rank", "first"), [(None, True), ("0", True), ("1", False)])
def test_the_first_rank_describes_the_run_and_writes_its_metrics(
    job: Job, megatron: Any, monkeypatch: pytest.MonkeyPatch, rank: str | None, first: bool
) -> None:
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    assert megatron.train() == "trained"
    megatron.on_log({"loss": 0.5, "n_steps": 1})
    assert (job.facts and job.facts["config"]) == ({"lr": 1} if first else None)
    assert megatron.reward_funcs[0]() == 1.0
    assert job.spans == ["reward/length"]
    assert job.metrics == ([(6, {"loss": 0.5})] if first else [])


def test_batches_are_timed_and_an_iterator_that_is_none_stays_so(job: Job, megatron: Any) -> None:
    train, evaluation = megatron._prepare_data_iterator()
    assert evaluation is None
    assert list(train) == [1, 2]
    assert job.spans == ["dataload"] * 3  # that there is no more takes time too
