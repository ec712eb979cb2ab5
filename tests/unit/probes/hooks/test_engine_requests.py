"""What vLLM's scheduler does with the requests of a trajectory, in its shape since 0.11."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.probes.hooks.hooked_job import run_job, trajectories

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
    result = run_job(tmp_path, JOB.replace("HOW", repr(how)), modules=modules)
    assert (result.returncode, result.stderr) == (0, "")
    found = trajectories(tmp_path)
    (one,) = (each for each in found.shown if each.why == "slowest")
    lengths_s = {"engine queue": 0.1, "prefill": 0.15, "decode": 0.1, "generate": 0.05}
    assert one.states == pytest.approx(lengths_s | {"other": 0.0}, abs=1e-6)
    assert one.seconds == pytest.approx(0.4)
    drawn = [part.state for part in one.parts]
    again = ["engine queue", "prefill", "decode"]
    assert [state for state in drawn if state != "generate"] == again + again
    assert (one.requests, one.aborted_requests, found.aborted_requests) == (1, aborted, aborted)
