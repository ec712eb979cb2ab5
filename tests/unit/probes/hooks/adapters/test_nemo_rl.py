"""NeMo-RL's driver and its workers, by stand-ins in the shape of its timer and loops."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_probes.hooks.adapters import nemo_rl
from grpo_doctor_probes.record.sidecar import ROLE
from tests.unit.probes.hooks.adapters.framework import Job, hooked

TIMER = """
from contextlib import contextmanager

class Timer:
    def __init__(self): self.running = set()

    def start(self, label, should_log=True):
        if label in self.running:
            raise ValueError(label)
        self.running.add(label)

    def stop(self, label, should_log=True):
        self.running.remove(label)

    def reset(self, label=None): pass

    @contextmanager
    def time(self, label, should_log=True):
        self.start(label, should_log)
        try:
            yield
        finally:
            self.stop(label, should_log)
"""
LOOP = """
def grpo_train(timer, total_steps, last):
    while total_steps < last:
        with timer.time("total_step_time"):
            with timer.time("data_processing"): pass
            with timer.time("prepare_for_generation/total"):
                with timer.time("prepare_for_generation/transfer_and_update_weights"): pass
            with timer.time("generation"): pass
            with timer.time("reward_calculation"): pass
            with timer.time("policy_and_reference_logprobs"): pass
            with timer.time("policy_training"): pass
            with timer.time("unknown"): pass
        timer.reset()
        total_steps += 1

def async_grpo_train(timer, step, waits):
    timer.start("init/total")
    timer.stop("init/total")
    for found in waits:
        with timer.time("total_step_time"):
            with timer.time("exposed_generation"):
                if not found:
                    continue
            with timer.time("policy_training"): pass
        timer.reset()
        step += 1
"""
SPANS = ["dataload", "sync", "sync/transfer", "rollout", "reward", "logprob", "train"]


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, start in (("timer", None), ("in_step", False), ("steps", 0)):
        monkeypatch.setattr(nemo_rl._Driver, name, start)
    return hooked("nemo_rl.utils.timer", TIMER)


@pytest.fixture
def loops(timers: Any) -> Any:
    return hooked("nemo_rl.algorithms.grpo", LOOP)


def test_the_drivers_timer_has_steps_and_phases(job: Job, timers: Any, loops: Any) -> None:
    loops.grpo_train(timers.Timer(), 4, 6)
    assert (job.steps, job.spans, job.errors) == ([5, 6], SPANS * 2, 0)
    assert ROLE.of_this_process() == "driver"


def test_timers_of_other_parts_say_nothing(job: Job, timers: Any, loops: Any) -> None:
    with timers.Timer().time("generation"):
        pass
    assert (job.spans, ROLE.of_this_process()) == ([], None)
    loops.grpo_train(timers.Timer(), 0, 1)
    other = timers.Timer()
    with other.time("generation"):
        pass
    other.reset()
    assert (job.steps, job.spans) == ([1], SPANS)


def test_a_timer_that_runs_already_is_the_jobs_own_error(job: Job, timers: Any) -> None:
    timer = timers.Timer()
    timer.start("total_step_time")
    with pytest.raises(ValueError, match="total_step_time"):
        timer.start("total_step_time")
    assert job.errors == 0


LOGGER = """
class Logger:
    def log_metrics(self, metrics, step, prefix="", step_metric=None): pass
    def log_hyperparams(self, params): pass
"""


def test_settings_and_metrics_are_the_drivers(job: Job, timers: Any) -> None:
    logger = hooked("nemo_rl.utils.logger", LOGGER).Logger()
    logger.log_metrics({"loss": 1.0}, 1, prefix="train")
    logger.log_hyperparams({"grpo": {"x": 1}, "cluster": {"num_nodes": 2, "gpus_per_node": 8}})
    logger.log_metrics({"loss": 0.5}, 2, prefix="train")
    logger.log_metrics({"mean": 0.5}, 2, prefix="timing/train")
    assert job.metrics == [(2, {"train/loss": 0.5})]
    assert (job.facts["framework"], job.facts["world_size"]) == ("nemo-rl", 16)
