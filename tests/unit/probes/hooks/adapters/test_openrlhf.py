"""OpenRLHF's controllers and actors."""

from __future__ import annotations

from argparse import Namespace
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks.adapters.openrlhf import flat
from grpo_doctor_probes.record.sidecar import ROLE
from tests.unit.probes.hooks.adapters.framework import Job, hooked

INFINITE = float("inf")
SAMPLES = """
class SamplesGenerator:
    def generate_samples(self):
        return ["sample"]
"""
TRAINER = """
class BasePPOTrainer:
    resume = 0

    def init_checkpoint_states(self):
        return {"global_step": self.resume}

    def save_logs_and_checkpoints(self, *args, **kwargs):
        return "saved"

class PPOTrainer(BasePPOTrainer):
    def __init__(self, args=None):
        self.args, self.strategy = args, Namespace(args=args)

    def fit(self, work, *further):
        return work()

    def evaluate(self, logs):
        return logs

class Other:
    fit = PPOTrainer.fit
"""


@pytest.fixture
def trainer() -> Any:
    """A controller, and what it generates samples with as `generate`."""
    made = hooked("openrlhf.trainer.ppo_trainer", TRAINER, Namespace=Namespace).PPOTrainer()
    made.strategy.args = Namespace()
    samples = hooked("openrlhf.trainer.ppo_utils.samples_generator", SAMPLES)
    made.generate = samples.SamplesGenerator().generate_samples
    return made


def two_steps(trainer: Any) -> str:
    for number in (1, 2):
        assert trainer.generate() == ["sample"]
        trainer.generate()  # the same step needs more
        trainer.save_logs_and_checkpoints(number, {"loss": 0.5})
    return "done"


def test_a_step_lasts_from_its_first_samples_to_the_next_ones(job: Job, trainer: Any) -> None:
    assert trainer.fit(lambda: two_steps(trainer)) == "done"
    assert (job.steps, job.errors) == ([1, 2], 0)
    trainer.fit(trainer.generate)  # samples after which nothing came are no step
    assert job.steps == [1, 2]
    assert job.metrics == [(1, {"loss": 0.5}), (2, {"loss": 0.5})]


def test_a_run_that_resumes_goes_on_counting(job: Job, trainer: Any) -> None:
    trainer.resume = 40
    assert trainer.init_checkpoint_states() == {"global_step": 40}
    trainer.generate()
    trainer.save_logs_and_checkpoints(41, {})
    trainer.generate()
    assert job.recording.header.step == 42
    assert job.steps == [41]


def test_metrics_of_an_evaluation_are_of_the_step_that_it_follows(job: Job, trainer: Any) -> None:
    trainer.generate()
    trainer.save_logs_and_checkpoints(1, {"loss": 0.5})
    assert trainer.evaluate({"eval_pass1": 0.25}) == {"eval_pass1": 0.25}
    assert trainer.evaluate(None) is None
    assert job.metrics == [(1, {"loss": 0.5}), (1, {"eval_pass1": 0.25})]


EVALUATES = """
class PPOTrainer:
    def evaluate(self, generate):
        return generate()
"""


def test_what_an_evaluation_generates_is_of_the_step_before(job: Job, trainer: Any) -> None:
    evaluating = hooked("openrlhf.trainer.ppo_trainer", EVALUATES).PPOTrainer()
    assert evaluating.evaluate(trainer.generate) == ["sample"]
    assert job.recording.header.step is None
    trainer.generate()
    assert job.recording.header.step == 1


def test_what_is_no_controller_has_no_steps(
    job: Job, trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ROLE, "_name", "rollout-loop")
    trainer.fit(lambda: two_steps(trainer))
    assert (job.steps, job.facts) == ([], {})


@pytest.mark.parametrize(
    ("settings", "number", "saved"),
    [
        *(
            ({"ckpt": Namespace(save_steps=every)}, number, saved)
            for every, number, saved in (
                (2, 4, True), (2, 3, False), (1, 1, True), (0, 4, False), (-1, 4, False),
                (INFINITE, 4, False),
            )
        ),
        ({"save_steps": 2}, 4, True),  # before 0.10.2
        ({}, 4, False),
        (None, 4, False),
    ],
)  # fmt: skip
def test_a_checkpoint_is_a_phase_where_one_is_due(
    job: Job, trainer: Any, settings: dict[str, Any] | None, number: int, saved: bool
) -> None:
    trainer.args = None if settings is None else Namespace(**settings)
    assert trainer.save_logs_and_checkpoints(number, {}) == "saved"
    assert (job.spans, job.errors) == (["checkpoint"] if saved else [], 0)


@pytest.mark.parametrize(
    ("args", "kwargs", "metrics"),
    [
        ((3, {"loss": 0.5}), {}, [(3, {"loss": 0.5})]),
        ((object(), 3), {"logs_dict": {"loss": 0.5}}, [(3, {"loss": 0.5})]),
        ((True, 3, {"loss": 0.5}), {}, [(3, {"loss": 0.5})]),  # not every int is a number
        ((), {"global_step": 3}, [(3, {})]),
        (({"loss": 0.5},), {}, []),
    ],
)
def test_metrics_are_found_among_the_arguments(
    job: Job, trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], metrics: list[Any]
) -> None:
    trainer.generate()
    assert trainer.save_logs_and_checkpoints(*args, **kwargs) == "saved"
    assert job.metrics == metrics
    trainer.generate()
    assert job.recording.header.step == (4 if metrics else 1)


@pytest.mark.parametrize(
    ("settings", "world"),
    [
        ({"actor": Namespace(num_nodes=2, num_gpus_per_node=4)}, 8),
        ({"actor_num_nodes": 2, "actor_num_gpus_per_node": 4}, 8),
        ({"actor": Namespace(num_nodes=2)}, 1),
        ({"actor": Namespace(num_gpus_per_node=4)}, 1),
        ({}, 1),
    ],
)
def test_the_run_has_as_many_ranks_as_its_actor(
    job: Job, trainer: Any, settings: dict[str, Any], world: int
) -> None:
    trainer.strategy.args = Namespace(**settings)
    trainer.fit(lambda: None)
    assert (job.facts["framework"], job.facts["world_size"], job.errors) == ("openrlhf", world, 0)


def test_settings_are_flat_and_what_is_switched_off_is_left_out() -> None:
    inner = Namespace(save_steps=INFINITE, path=None, keep=0)
    settings = Namespace(ckpt=inner, lr=1e-6, more=SimpleNamespace(deep=Namespace(x=[1])), off="")
    assert dict(flat(settings)) == {"ckpt.keep": 0, "lr": 1e-6, "more.deep.x": [1], "off": ""}


@pytest.mark.parametrize("attribute", [True, False])
def test_an_asynchronous_controller_waits_for_samples_at_its_queue(
    job: Job, trainer: Any, attribute: bool
) -> None:
    queue: Any = Queue()
    queue.put("samples")
    if attribute:
        trainer.rollout_queue = queue

    def work() -> None:
        assert queue.get() == "samples"  # as it is by then

    trainer.fit(work, {"get": "no queue"}, *([] if attribute else [queue]))
    assert job.spans == ["rollout/wait"]
    assert job.errors == 0


ASYNC = """
class GenerateSamplesActor:
    def __init__(self, slots=None):
        if slots is not None:
            self.rollout_slots = slots

    def fit(self):
        return self.rollout_slots.get() if hasattr(self, "rollout_slots") else "no slots"
"""


def test_a_generator_waits_for_a_place_in_the_queue(job: Job) -> None:
    module = hooked("openrlhf.trainer.ppo_trainer_async", ASYNC)
    slots: Any = Queue()
    slots.put(3)
    assert module.GenerateSamplesActor(slots).fit() == 3
    assert module.GenerateSamplesActor().fit() == "no slots"
    assert job.spans == ["rollout/queue"]
    assert ROLE.of_this_process() == "rollout-loop"


AGENT = """
class SingleTurnAgentExecutor:
    def __init__(self, reward_func=None):
        self.reward_func = reward_func
"""


def test_a_reward_of_an_executor_has_its_name(job: Job) -> None:
    module = hooked("openrlhf.utils.agent", AGENT)

    def exact(text: str) -> int:
        return len(text)

    assert module.SingleTurnAgentExecutor(exact).reward_func("abc") == 3
    assert module.SingleTurnAgentExecutor().reward_func is None
    assert (job.spans, job.errors) == (["reward/exact"], 0)


@pytest.mark.parametrize(
    ("name", "role"), [("PolicyModelActor", "actor"), ("ReferenceModelActor", "reference")]
)
def test_the_actor_of_a_model_has_a_role(job: Job, name: str, role: str) -> None:
    code = "class BaseModelActor:\n    def _setup_distributed(self, strategy): return strategy"
    base = hooked("openrlhf.trainer.ray.launcher", code).BaseModelActor
    assert type(name, (base,), {})()._setup_distributed("zero") == "zero"
    assert (ROLE.of_this_process(), job.errors) == (role, 0)
