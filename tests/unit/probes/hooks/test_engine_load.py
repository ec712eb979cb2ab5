"""The counters of vLLM's engine, and what its scheduler does with requests of a trajectory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks.engine_load import EngineLoad
from tests.unit.probes.conftest import Recorded
from tests.unit.probes.hooks.hooked_job import trajectories


@dataclass
class Scheduler:
    running: int
    waiting: int
    usage: float

    @property
    def kv_cache_manager(self) -> Scheduler:
        return self

    def get_request_counts(self) -> tuple[int, int]:
        return self.running, self.waiting


def counters(recording: Recorded) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for row in recording.rows:
        if row.kind == "counter":
            values.setdefault(row.name.removeprefix("engine/"), []).append(row.value)
    return values


def outputs(prompt: int, *lengths: int) -> SimpleNamespace:
    completions = [SimpleNamespace(token_ids=[7] * length) for length in lengths]
    return SimpleNamespace(prompt_token_ids=[5] * prompt, outputs=completions)


def test_a_rollout_is_summed_up_and_the_next_begins_with_nothing(recording: Recorded) -> None:
    load = EngineLoad()
    load.counts_preemptions()
    load.preempted(object(), 1.0)
    load.sample(Scheduler(2, 6, 0.5))
    load.sample(Scheduler(4, 0, 0.25))
    load.finish()
    load.sample(Scheduler(1, 1, 0.125))
    load.finish()
    values = counters(recording)
    shown = {name: values.pop(name) for name in ("running_requests", "waiting_requests")}
    assert shown == {"running_requests": [2.0], "waiting_requests": [6.0]}  # at most every 50 ms
    assert values == {
        "kv_cache_pct": [50.0],
        "steps": [2.0, 1.0],
        "running_requests_peak": [4.0, 1.0],
        "running_requests_mean": [3.0, 1.0],
        "waiting_requests_peak": [6.0, 1.0],
        "waiting_requests_mean": [3.0, 1.0],
        "kv_cache_peak_pct": [50.0, 12.5],
        "preemptions": [1.0, 0.0],
    }


def test_tokens_are_counted_where_the_completions_come(recording: Recorded) -> None:
    """The engine has another process: nothing of its scheduler is known in this one."""
    load = EngineLoad()
    load.around(lambda: [outputs(3, 1, 2, 3, 4, 5), outputs(10, 0, 1024, 1025)])()
    assert counters(recording) == {
        "prompt_tokens": [45.0],
        "generated_tokens": [2064.0],
        "completions_of_1_to_1_tokens": [2.0],
        "completions_of_2_to_2_tokens": [1.0],
        "completions_of_3_to_4_tokens": [2.0],
        "completions_of_5_to_8_tokens": [1.0],
        "completions_of_513_to_1024_tokens": [1.0],
        "completions_of_1025_to_2048_tokens": [1.0],
    }


def test_a_rollout_that_fails_raises_its_own_error_and_the_next_is_counted(
    recording: Recorded,
) -> None:
    load = EngineLoad()

    def fail() -> list[Any]:
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        load.around(fail)()
    chat = load.around(load.around(lambda: [outputs(2, 4)]))  # a rollout within one is one
    assert len(chat()) == 1
    assert counters(recording)["generated_tokens"] == [4.0]


def test_outputs_of_another_shape_cost_their_counters_and_not_the_job(recording: Recorded) -> None:
    load = EngineLoad()
    load.sample(Scheduler(1, 0, 0.0))
    assert load.around(lambda: ["text"])() == ["text"]
    assert counters(recording)["steps"] == [1.0]
    # Preemptions that nobody reports are unknown, and not none.
    assert not {"generated_tokens", "preemptions"} & counters(recording).keys()
    assert recording.header.errors == 1


SCHEDULER = """
from types import SimpleNamespace as S

class Scheduler:
    def __init__(self):
        self.requests, self.waiting, self.running = {}, [], []

    def add_request(self, request):
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def schedule(self):
        new, self.waiting = self.waiting, []
        self.running += new
        fresh = [S(req_id=one.request_id) for one in new if not one.num_output_tokens]
        counts = dict.fromkeys((one.request_id for one in self.running), 1)
        return S(scheduled_new_reqs=fresh, num_scheduled_tokens=counts)

    def update_from_output(self, output, tokens=1):
        for request in self.running:
            request.num_output_tokens += tokens

    def _preempt_request(self, request, timestamp):
        self.running.remove(request)
        self.waiting.append(request)

    def _free_request(self, request, delay_free_blocks=False):
        del self.requests[request.request_id]
"""
ASYNC = """
class AsyncLLM:
    def __init__(self, *args):
        pass

    async def generate(self, prompt, sampling_params, request_id):
        yield request_id
"""
JOB = """
import hashlib, time  # vLLM has loaded the first
from types import SimpleNamespace as S
from grpo_doctor_probes.hooks import engine_requests
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.async_llm import AsyncLLM
from grpo_doctor_probes.record import trajectories as record

engine, llm = Scheduler(), AsyncLLM()

def ask(name, way):
    one = record.begin()
    token = record.CURRENT.set(one)
    part = one.part(record.GENERATE)
    if way == "named":
        llm.generate(prompt="", sampling_params=None, request_id=name)
    else:
        llm.generate("", None, name)
    record.CURRENT.reset(token)
    return one, part

def request(name):
    return S(request_id=name, num_output_tokens=0, status=S(name="RUNNING"))

record.opened()
now_ns = time.monotonic_ns()
record.monotonic_ns = engine_requests.monotonic_ns = lambda: now_ns

def sleep(state):
    global now_ns
    time.sleep(0.05)
    now_ns += 50_000_000  # and no more, however busy the machine is

def end(request, how="FINISHED_STOPPED"):
    request.status.name = how
    engine.running.remove(request)
    engine._free_request(request)

one, asking = ask("abc", "named")
first = request("abc-0a1b2c3d")  # a name that the engine made longer
engine.add_request(first)
engine.add_request(request("7"))  # of a caller that takes part in no trajectory
sleep("engine queue")
output = engine.schedule()
sleep("prefill")
engine.update_from_output(output, tokens=0)
sleep("prefill")  # a prompt in two pieces
engine.update_from_output(engine.schedule())
sleep("decode")
engine._preempt_request(first, 1.0)
sleep("engine queue")
output = engine.schedule()
sleep("prefill")  # what it had is computed again
engine.update_from_output(output)
sleep("decode")
end(first, HOW)
sleep("generate")  # on its way back
asking.end()
one.end()
assert list(engine.requests) == ["7"]
"""


@pytest.mark.parametrize(("how", "aborted"), [("FINISHED_STOPPED", 0), ("FINISHED_ABORTED", 1)])
def test_a_request_is_in_the_queue_in_prefill_and_in_decode(
    tmp_path: Path, how: str, aborted: int
) -> None:
    modules = {"vllm.v1.core.sched.scheduler": SCHEDULER, "vllm.v1.engine.async_llm": ASYNC}
    found = trajectories(tmp_path, JOB.replace("HOW", repr(how)), modules)
    (one,) = (each for each in found.shown if each.why == "slowest")
    lengths_s = {"engine queue": 0.1, "prefill": 0.15, "decode": 0.1, "generate": 0.05}
    assert one.states == pytest.approx(lengths_s | {"other": 0.0}, abs=1e-6)
    assert one.seconds == pytest.approx(0.4)
    drawn = [part.state for part in one.parts]
    again = ["engine queue", "prefill", "decode"]
    assert [state for state in drawn if state != "generate"] == again + again
    assert (one.requests, one.aborted_requests, found.aborted_requests) == (1, aborted, aborted)
