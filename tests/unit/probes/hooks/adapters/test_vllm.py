"""vLLM's engine in a trainer's process, behind a server, and in a process of its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks.adapters.vllm import takes_weights
from grpo_doctor_probes.hooks.engine_load import LOAD
from grpo_doctor_probes.hooks.spans import _OPEN
from grpo_doctor_probes.record.sidecar import ROLE
from tests.unit.probes.hooks.adapters.framework import Job, hooked

CORE = """
class EngineCore:
    def __init__(self, scheduler):
        self.scheduler = scheduler

    def step(self):
        self.scheduler.left = max(0, self.scheduler.left - 1)
        return list(spans())

    def abort_requests(self, ids):
        self.scheduler.left = 0

    def sleep(self, level=1):
        self.pause_scheduler()
        return list(spans())

    def pause_scheduler(self):
        return "paused"

    def resume_scheduler(self):
        return "resumed"

    def collective_rpc(self, method, *args):
        return [method, *args]
"""


class Scheduler:
    left = 0
    kv_cache_manager = SimpleNamespace(usage=0.5)

    def has_unfinished_requests(self) -> bool:
        return self.left > 0

    def get_request_counts(self) -> tuple[int, int]:
        return self.left, 0


@pytest.fixture
def core() -> Any:
    module = hooked("vllm.v1.engine.core", CORE, spans=lambda: _OPEN.names)
    return module.EngineCore(Scheduler())


def test_in_its_own_process_generation_lasts_as_long_as_there_are_requests(
    job: Job, core: Any
) -> None:
    ROLE.take("engine")
    assert core.step() == []
    core.scheduler.left = 3
    assert [core.step() for _ in range(3)] == [["rollout/generate"]] * 3
    assert _OPEN.names == []
    core.scheduler.left = 2
    core.step()
    assert _OPEN.names == ["rollout/generate"]
    core.abort_requests([1, 2])
    assert _OPEN.names == []
    assert (job.spans, job.errors) == (["rollout/generate"] * 2, 0)
    peaks = [r.value for r in job.recording.rows if r.name == "engine/running_requests_peak"]
    assert peaks == [2.0, 1.0]  # once for each time that it had requests


def test_a_scheduler_of_another_version_costs_the_counters_and_not_the_step(
    job: Job, core: Any
) -> None:
    core.scheduler = SimpleNamespace(left=2)
    assert core.step() == ["rollout/generate"]
    assert (job.spans, job.errors) == (["rollout/generate"], 1)


SCHEDULER = """
class Scheduler:
    def _preempt_request(self, request, timestamp):
        return request
"""


def test_preemptions_are_counted_where_the_scheduler_reports_them(job: Job, core: Any) -> None:
    LOAD.finish()
    scheduler = hooked("vllm.v1.core.sched.scheduler", SCHEDULER).Scheduler()
    assert scheduler._preempt_request("request", 1.0) == "request"
    core.scheduler.left = 1
    core.step()
    LOAD.finish()
    counted = [row.value for row in job.recording.rows if row.name == "engine/preemptions"]
    assert counted[-1] == 1.0


def test_a_pause_ends_generation_and_lasts_until_it_is_resumed(job: Job, core: Any) -> None:
    ROLE.take("engine")
    core.resume_scheduler()  # it was never paused
    core.scheduler.left = 2
    core.step()
    for _ in range(2):
        core.pause_scheduler()
        assert _OPEN.names == ["sync/pause"]
    assert core.collective_rpc("update_weight", 1) == ["update_weight", 1]
    assert core.resume_scheduler() == "resumed"
    assert _OPEN.names == []
    assert core.sleep() == ["offload"]  # and no pause
    assert _OPEN.names == []
    assert job.spans == ["rollout/generate", "sync/pause", "sync", "offload"]


@pytest.mark.parametrize(
    ("method", "brings"),
    [
        ("update_weight", True),
        ("update_named_param", True),
        ("param_weight", True),
        ("init_weight_transfer_engine", False),
        ("get_params", False),
        ("shutdown_weight_transfer_engine", False),
        ("sleep", False),
        ("init_process_group", False),
        (SimpleNamespace(__name__="load_weights"), True),
        (SimpleNamespace(__name__="ping"), False),
        (None, False),
    ],
)
def test_which_calls_bring_weights(job: Job, core: Any, method: Any, brings: bool) -> None:
    assert takes_weights(method) is brings
    assert core.collective_rpc(method) == [method]
    assert job.spans == (["sync"] if brings else [])


SERVED = """
class AsyncLLM:
    def __init__(self):
        pass

    async def collective_rpc(self, method, timeout=None):
        return [method, list(spans())]
"""


@pytest.mark.parametrize(("rank", "role"), [(None, "rollout"), ("1", None)])
def test_an_engine_of_a_server_is_no_rank_and_one_of_a_trainer_is(
    job: Job, monkeypatch: pytest.MonkeyPatch, rank: str | None, role: str | None
) -> None:
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    engine = hooked("vllm.v1.engine.async_llm", SERVED, spans=lambda: _OPEN.names).AsyncLLM()
    assert ROLE.of_this_process() == role
    assert asyncio.run(engine.collective_rpc("load_weights")) == ["load_weights", ["sync"]]
    assert asyncio.run(engine.collective_rpc("ping")) == ["ping", []]
    assert job.spans == ["sync"]
