"""verl's driver with its timers, and the workers of other roles."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from grpo_doctor_probes.hooks.adapters.verl_async import WAIT, waits_for_samples
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.sidecar import ROLE
from tests.unit.probes.hooks.adapters.framework import Job, hooked

TIMERS = """
from contextlib import contextmanager

@contextmanager
def marked_timer(name, timing, color=None):
    timing.append(name)
    yield timing

simple_timer = marked_timer
"""


@pytest.fixture
def timers() -> Any:
    return hooked("verl.utils.profiler", TIMERS)


@pytest.mark.parametrize(
    ("name", "span"),
    [
        ("gen", "rollout"),
        ("reward", "reward"),
        ("old_log_prob", "logprob/old"),
        ("update_actor", "train"),
        ("timing_s/param_sync", "sync"),
        ("testing", "eval"),
        ("generate_sequences", "rollout/generate"),
        ("tool_calls", "rollout/tools"),
        ("unknown", None),
    ],
)
@pytest.mark.parametrize("timer", ["marked_timer", "simple_timer"])
def test_a_timer_is_a_phase_by_its_name(
    job: Job, timers: Any, timer: str, name: str, span: str | None
) -> None:
    timed: list[str] = []
    with getattr(timers, timer)(name, timed, color="red") as value:
        assert value is timed
    assert (timed, job.spans, job.errors) == ([name], [span] if span else [], 0)


def test_a_timer_that_another_module_has_too_is_hooked_once(job: Job, timers: Any) -> None:
    again = hooked("verl.utils.debug", "", marked_timer=timers.marked_timer)
    assert again.marked_timer is timers.marked_timer
    own = hooked("verl.utils.debug", TIMERS)
    with own.marked_timer("reward", []):
        pass
    assert job.spans == ["reward"]


class PPOTrainer:
    def __init__(self, timers: Any, number: int | None = 7) -> None:
        self.timers, self.global_steps = timers, number

    def work(self, *names: str) -> None:
        for name in names:
            with self.timers.marked_timer(name, []):
                pass


class OneStepOffRayTrainer(PPOTrainer):
    """Whose samples another process makes."""


def test_a_step_begins_with_its_timer_and_has_the_trainers_number(job: Job, timers: Any) -> None:
    PPOTrainer(timers, None).work("step")  # of what has no number
    assert (job.recording.header.step, ROLE.of_this_process()) == (None, None)
    trainer = PPOTrainer(timers)
    trainer.work("gen", "step")
    assert job.recording.header.step == 7
    assert ROLE.of_this_process() == "driver"
    trainer.global_steps = 8
    trainer.work("step", "gen", "unknown")
    assert (job.steps, job.spans, job.errors) == ([7], ["rollout", "rollout"], 0)


def test_what_takes_samples_of_another_process_waits_for_them(job: Job, timers: Any) -> None:
    trainer = OneStepOffRayTrainer(timers)
    trainer.work("gen", "reward")
    assert job.spans == [WAIT, "reward"]
    assert waits_for_samples(trainer)
    assert not waits_for_samples(PPOTrainer(timers))
    assert not waits_for_samples(None)


LEGACY = """
class RayPPOTrainer:
    def init_workers(self):
        return "made"

    def fit(self):
        return list(self.train_dataloader)

class RayRollouterTrainer(RayPPOTrainer):
    pass
"""


class Loader:
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


def test_batches_of_the_loader_are_timed_once_each(job: Job) -> None:
    module = hooked("verl.trainer.ppo.ray_trainer", LEGACY)
    trainer = module.RayPPOTrainer()
    trainer.train_dataloader = type("Loader", (Loader,), {"__iter__": Loader.__iter__})()
    assert trainer.init_workers() == "made"
    for _ in range(2):
        assert trainer.fit() == [1, 2]
    assert job.spans == ["init", *["dataload"] * 6]  # that there is no third takes time too
    assert job.errors == 0


@pytest.mark.parametrize(
    ("name", "role"), [("RayPPOTrainer", "driver"), ("RayRollouterTrainer", "rollouter")]
)
def test_a_trainers_class_tells_who_makes_the_workers(job: Job, name: str, role: str) -> None:
    getattr(hooked("verl.trainer.ppo.ray_trainer", LEGACY), name)().init_workers()
    assert ROLE.of_this_process() == role


TRACKING = """
class Tracking:
    def __init__(self, project, experiment, backend="console", config=None):
        self.config = config

    def log(self, data, step):
        return data, step
"""
RL: dict[str, Any] = {"actor_rollout_ref": {"rollout": {"n": 8}}}


@pytest.mark.parametrize(
    ("config", "world"),
    [
        (RL, 1),
        ({**RL, "trainer": None}, 1),
        ({**RL, "trainer": {"nnodes": 2, "n_gpus_per_node": 4}}, 8),
        ({**RL, "trainer": {"nnodes": 2}}, 2),
        ({**RL, "trainer": {"nnodes": None, "n_gpus_per_node": 4}}, 4),
        ({"trainer": {"nnodes": 2}}, None),  # supervised fine-tuning
        (["actor_rollout_ref"], None),
        (None, None),
    ],
)
@pytest.mark.parametrize("by_name", [True, False])
def test_a_run_is_described_by_the_settings_of_its_logger(
    job: Job, config: Any, world: int | None, by_name: bool
) -> None:
    tracking = hooked("verl.utils.tracking", TRACKING).Tracking
    arguments = ("p", "e", "console")
    made = tracking(*arguments, config=config) if by_name else tracking(*arguments, config)
    assert made.config == config
    assert job.facts.get("world_size") == world
    assert ROLE.of_this_process() == (None if world is None else "driver")
    assert job.errors == 0


@pytest.mark.parametrize("role", ["driver", "actor", None])
def test_metrics_are_the_drivers(job: Job, role: str | None) -> None:
    if role is not None:
        ROLE.take(role)
    tracking = hooked("verl.utils.tracking", TRACKING).Tracking("p", "e")
    assert job.facts == {}
    assert tracking.log({"reward": 0.5}, 3) == ({"reward": 0.5}, 3)
    assert job.metrics == ([(3, {"reward": 0.5})] if role == "driver" else [])


REWARD = """
def get_custom_reward_fn(config):
    return make(config)
"""


def exact(text: str, bonus: int = 0) -> int:
    return len(text) + bonus


def call_raw(raw: Any, *args: Any, **kwargs: Any) -> Any:
    """verl's own wrapper, which has a name of its own."""
    return raw(*args, **kwargs)


NAMELESS = {"custom_reward_function": {"name": ""}}


class Scorer:
    def __call__(self, text: str) -> int:
        return len(text)


@pytest.mark.parametrize(
    ("made", "config", "name"),
    [
        (exact, {}, "exact"),
        (exact, {"custom_reward_function": {"name": "mine"}}, "mine"),
        (exact, {"reward": {"custom_reward_function": {"name": "moved"}}}, "moved"),
        (exact, {"reward": {}, "custom_reward_function": {"name": "mine"}}, "mine"),
        (exact, {"custom_reward_function": None}, "exact"),
        (exact, None, "exact"),
        (functools.partial(call_raw, exact), {}, "exact"),
        (functools.partial(call_raw, functools.partial(call_raw, exact)), {}, "exact"),
        (functools.partial(call_raw, exact, bonus=0), NAMELESS, "exact"),
        (functools.partial(exact, bonus=0), {}, None),
        (functools.partial(exact, "abc"), {}, None),  # its first argument is no function
        (Scorer(), {}, None),
    ],
)
def test_a_reward_function_is_called_by_the_name_that_the_user_gave_it(
    job: Job, made: Any, config: Any, name: str | None
) -> None:
    module = hooked("verl.trainer.ppo.reward", REWARD, make=lambda _: made)
    function = module.get_custom_reward_fn(config)
    has_text = isinstance(made, functools.partial) and made.args == ("abc",)
    assert (function() if has_text else function("abc")) == 3
    assert (job.spans, job.errors) == ([f"reward/{name}"] if name else [], 0)


ROLLOUTER = """
class FullyAsyncRollouter:
    def __init__(self):
        pass

    async def reset_staleness(self):
        return "reset"
"""
MODULE = "verl.experimental.fully_async_policy.fully_async_rollouter"


def resumed(**facts: Any) -> None:
    """A rollouter with these facts gets new weights."""
    rollouter = hooked(MODULE, ROLLOUTER).FullyAsyncRollouter()
    started = time.time()
    vars(rollouter).update(
        paused=True, idle_start_time=started, step_start_time=started - 1.0,
        staleness_samples=0, max_required_samples=8,
    )  # fmt: skip
    vars(rollouter).update(facts)
    with pytest.raises(StopIteration) as stop:
        rollouter.reset_staleness().send(None)
    assert stop.value.value == "reset"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, "full"),
        ({"staleness_samples": 7}, "full"),
        ({"staleness_samples": 8}, "staleness"),
        ({"staleness_samples": 9}, "staleness"),
        ({"paused": False}, None),
        ({"idle_start_time": 1.0, "step_start_time": 1.0}, None),  # of the step before
        ({"idle_start_time": 1.0, "step_start_time": 2.0}, None),
    ],
)
def test_a_rollouter_that_has_stopped_says_why(
    job: Job, facts: dict[str, Any], reason: str | None
) -> None:
    resumed(**facts)
    expected = [] if reason is None else ["rollout/queue", f"rollout/queue/{reason}"]
    assert (job.spans, job.errors) == (expected, 0)
    assert all(0 <= row.end_ns - row.start_ns < 60e9 for row in job.recording.rows)


def test_recording_may_begin_with_the_first_wait(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed()
    assert recorder.ACTIVE is None
    monkeypatch.setenv("GRPO_DOCTOR_RUN_DIR", str(tmp_path))
    resumed()
    assert recorder.ACTIVE is not None
