"""What TRL's trainers are beside transformers': the asynchronous one and its rollout loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from grpo_doctor_probes.hooks.adapters.trl_async import WAIT, fetch_span
from grpo_doctor_probes.hooks.describing import framework_of
from tests.unit.probes.hooks.adapters.framework import Job, hooked

TRAINER = "trl.experimental.async_grpo.async_grpo_trainer"
LOOP = """
class _AsyncRolloutLoop:
    def __init__(self, reward_funcs=()):
        self.reward_funcs = list(reward_funcs)

    async def _execute_tool_calls(self, calls, tools, more=None):
        said = [tools[name]() for name in calls if name in tools]
        return [await each if hasattr(each, "send") else each for each in said], more

    def _push_metrics(self, values):
        return values
"""


@pytest.fixture
def loop() -> Any:
    def accuracy() -> float:
        return 1.0

    module = hooked("trl.experimental.async_grpo.async_rollout_worker", LOOP)
    return module._AsyncRolloutLoop([accuracy])


@pytest.mark.parametrize(
    ("bases", "span"),
    [
        ([], "dataload"),
        ([("trl.trainer.grpo_trainer", "GRPOTrainer")], "dataload"),
        ([(TRAINER, "AsyncGRPOTrainer")], WAIT),
        ([(TRAINER, "AsyncGRPOTrainer"), ("mine", "Mine")], WAIT),
        ([("mine", "AsyncGRPOTrainer")], "dataload"),
        ([(TRAINER, "Other")], "dataload"),
    ],
)
def test_to_fetch_batches_of_a_rollout_loop_is_to_wait_for_it(
    bases: list[tuple[str, str]], span: str
) -> None:
    kind: type = object
    for module, name in bases:
        kind = type(name, (kind,), {"__module__": module})
    assert fetch_span(kind(), iter(()), num_batches=1) == span


@pytest.mark.parametrize("by_name", [True, False])
def test_tools_have_their_names(job: Job, loop: Any, by_name: bool) -> None:
    def search() -> str:
        return "found"

    async def ask() -> str:
        return "answered"

    tools, calls = {"search": search, "ask": ask, "id": object}, ["search", "ask"]
    run = (
        loop._execute_tool_calls(calls, tools=tools, more=3)
        if by_name
        else loop._execute_tool_calls(calls, tools, 3)
    )
    assert asyncio.run(run) == (["found", "answered"], 3)
    assert job.spans == ["rollout/tools", "rollout/tools/search", "rollout/tools/ask"]
    assert tools["search"] is search  # the job's own dictionary


def test_a_reward_of_the_loop_has_its_name(job: Job, loop: Any) -> None:
    assert loop.reward_funcs[0]() == 1.0
    assert job.spans == ["reward/accuracy"]


@pytest.mark.parametrize(
    ("values", "spans"),
    [
        ({"rollout/score_s": 0.1}, []),
        ({"rollout/backpressure_s": 1e-5}, ["rollout/queue"]),
        ({"rollout/score_block_s": 1e-5}, ["reward/queue"]),
        ({"rollout/backpressure_s": None, "rollout/score_block_s": 1e-5}, ["reward/queue"]),
        ({}, []),
    ],
)
def test_a_wait_is_written_where_its_length_is_told(
    job: Job, loop: Any, values: dict[str, float | None], spans: list[str]
) -> None:
    assert loop._push_metrics(values) is values
    assert (job.spans, job.errors) == (spans, 0)


def test_unsloths_copy_of_the_trainer_has_the_same_phases(job: Job) -> None:
    code = """
    class _UnslothGRPOTrainer:
        def _prepare_inputs(self, inputs):
            return self._calculate_rewards(inputs)

        def _calculate_rewards(self, inputs):
            return inputs

    class UnslothGRPOTrainer(_UnslothGRPOTrainer): pass
    """
    trainer = hooked("UnslothGRPOTrainer", code).UnslothGRPOTrainer()
    assert trainer._prepare_inputs([7]) == [7]
    assert (job.spans, job.errors) == (["rollout", "reward"], 0)
    assert framework_of(trainer) == "unsloth"
