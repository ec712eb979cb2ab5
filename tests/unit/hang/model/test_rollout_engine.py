"""What `attach` says of a rank that waits for its rollout engine, by what the engine shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Diagnosis, Verdict
from grpo_doctor_probes.evidence import EngineLook, LogTail
from tests.evidence import SECOND, EvidenceBuilder, FakeProcess, frames

FRONT, CORE, WORKER = 400, 401, 402
BUSY = {"num_requests_running": 4.0, "generation_tokens_total": 900.0, "kv_cache_usage": 0.5}
ASKS = (
    "recv_into /usr/lib/python3.11/socket.py:5",
    "post /x/site-packages/requests/api.py:5",
)
IDLES = frames("select /usr/lib/python3.11/selectors.py:5", "run /x/site-packages/uvicorn/a.py:3")
SPINS = frames(
    "sched_yield /x/site-packages/vllm/utils.py:46", "step /x/site-packages/vllm/core.py:9"
)


class Served(EvidenceBuilder):
    """Rank 0 waits for a server with a core and a worker, the others for rank 0."""

    def __init__(self, asker: str = "generate") -> None:
        super().__init__()
        rank = self.elsewhere(0, frames(*ASKS, f"{asker} /home/me/train.py:5"))
        rank.blocks("socket-receive", "127.0.0.1:8000", FRONT)
        self.front = self.child(0, "server", pid=FRONT, parent=1)
        self.core = self.child(0, "engine", pid=CORE, parent=FRONT)
        self.worker = self.child(0, "engine-worker", pid=WORKER, parent=CORE)
        for process in (self.front, self.core, self.worker):
            process.member = replace(process.member, rank=None)
        self.front.stack = IDLES

    def metrics(self, before: Mapping[str, float], **after: float) -> None:
        answers = (dict(before), {**before, **after})
        self.engines = [
            (EngineLook(FRONT, n * SECOND, "http://x", values),) for n, values in enumerate(answers)
        ]

    def verdict(self) -> Verdict:
        return diagnose(self.build()).verdict


def spins(process: FakeProcess) -> None:
    """As vLLM's core does while it waits for its worker."""
    process.works(SPINS, moves=False)


@pytest.mark.parametrize("part", ["front", "core", "worker"])
def test_a_stopped_part_is_named_with_what_wakes_it(part: str) -> None:
    build = Served()
    process: FakeProcess = getattr(build, part)
    process.state = "T"
    verdict = build.verdict()
    assert (verdict.state, verdict.cause, verdict.culprits) == (
        "stuck",
        "rollout-engine-stalled",
        (0,),
    )
    assert verdict.victims == (1, 2, 3)
    assert f"pid {process.member.pid} " in verdict.summary
    assert "is stopped" in verdict.summary
    assert f"kill -CONT {process.member.pid}" in verdict.fixes[0].text


def test_a_stopped_worker_is_named_though_the_core_spins() -> None:
    build = Served()
    spins(build.core)
    build.worker.state = "T"
    verdict = build.verdict()
    assert (verdict.state, verdict.cause) == ("stuck", "rollout-engine-stalled")
    assert f"pid {WORKER} " in verdict.summary


def test_sigcont_is_offered_for_confirmation() -> None:
    build = Served()
    build.core.state = "T"
    (line,) = diagnose(build.build()).verdict.confirm
    assert line.startswith(f"kill -CONT {CORE} ")


@pytest.mark.parametrize("part", ["front", "core", "worker"])
def test_a_dead_part(part: str) -> None:
    build = Served()
    process: FakeProcess = getattr(build, part)
    process.state = "Z"
    verdict = build.verdict()
    assert (verdict.state, verdict.cause, verdict.culprits) == ("dead", "rollout-engine-dead", (0,))
    assert f"pid {process.member.pid} " in verdict.summary


def test_an_engine_killed_for_memory() -> None:
    build = Served()
    build.core.state = "Z"
    build.kernel = [(5.0, f"Out of memory: Killed process {CORE} (VLLM::EngineCor)")]
    assert build.verdict().cause == "oom-killed"


def test_a_front_without_a_core_whose_log_tells() -> None:
    build = Served()
    del build.processes[CORE], build.processes[WORKER]
    assert build.verdict().cause != "rollout-engine-dead"
    line = "ERROR 11-21 [async_llm.py:700] AsyncLLM output_handler failed: EngineDeadError"
    build.logs = [LogTail(FRONT, "/home/me/serve.log", 9.0, (line,))]
    verdict = build.verdict()
    assert verdict.cause == "rollout-engine-dead"
    assert line in [item.text for item in verdict.evidence]


def test_a_front_without_a_core_that_says_so() -> None:
    build = Served()
    del build.processes[CORE], build.processes[WORKER]
    build.metrics({"healthy": 0.0})
    assert build.verdict().cause == "rollout-engine-dead"


@pytest.mark.parametrize("healthy", [0.0, 1.0])
def test_a_client_that_tries_again_at_a_front_without_a_core(healthy: float) -> None:
    build = Served()
    del build.processes[CORE], build.processes[WORKER]
    rank = build.rank(0)
    rank.stack, rank.blocked = frames("complete /home/me/a.py:4", "generate /home/me/a.py:9"), []
    rank.blocks("sleep")
    rank.still_s = 0.4
    build.metrics({"healthy": healthy})
    verdict = build.verdict()
    assert (verdict.cause == "rollout-engine-dead") == (healthy == 0)
    assert (verdict.state == "dead") == (healthy == 0)


def test_preemptions_without_a_token() -> None:
    build = Served()
    spins(build.core)
    build.metrics({**BUSY, "num_preemptions_total": 7.0}, num_preemptions_total=90.0)
    verdict = build.verdict()
    assert (verdict.state, verdict.cause) == ("stuck", "rollout-engine-stalled")
    assert "keeps preempting requests" in verdict.summary
    assert any("83 preempted meanwhile" in item.text for item in verdict.evidence)
    assert "--vllm_gpu_memory_utilization 0.9" in [fix.spelling for fix in verdict.fixes]


def test_preemptions_among_tokens_are_slow() -> None:
    build = Served()
    spins(build.core)
    more = {"num_preemptions_total": 90.0, "generation_tokens_total": 990.0}
    build.metrics({**BUSY, "num_preemptions_total": 7.0}, **more)
    verdict = build.verdict()
    assert (verdict.state, verdict.cause) == ("slow", "")
    assert "90 tokens in 1.0 s" in verdict.summary


def test_requests_that_wait_and_none_that_runs() -> None:
    build = Served()
    build.metrics({**BUSY, "num_requests_running": 0.0, "num_requests_waiting": 3.0})
    build.rank(0).still_s = build.core.still_s = build.waited_s = 40.0
    verdict = build.verdict()
    assert (verdict.state, verdict.cause) == ("stuck", "rollout-engine-stalled")
    assert "runs none of 3 queued requests" in verdict.summary


def test_requests_that_have_just_come_to_a_core_that_rested_are_slow() -> None:
    build = Served()
    build.metrics({**BUSY, "num_requests_running": 0.0, "num_requests_waiting": 3.0})
    build.rank(0).still_s = build.waited_s = 40.0
    build.core.still_s, build.step_s = 0.3, 15.0
    assert build.verdict().state == "slow"


def not_resumed(kind: Literal["socket-receive", "poll"]) -> Verdict:
    """A core that waits for work for 40 s while rank 0 waits in its own way."""
    return idle(kind).verdict()


def idle(kind: Literal["socket-receive", "poll"]) -> Served:
    build = Served()
    queue = ("get /usr/lib/python3.11/queue.py:171", "_process_input_queue /x/vllm/core.py:1588")
    build.core.stack = frames(*queue)
    build.metrics(BUSY)
    build.rank(0).blocked.clear()
    build.rank(0).blocks(kind, "127.0.0.1:8000", FRONT)
    build.rank(0).still_s = build.core.still_s = build.waited_s = 40.0
    build.step_s = 15.0
    return build


def test_an_engine_that_was_not_resumed() -> None:
    verdict = not_resumed("socket-receive")
    assert (verdict.state, verdict.cause) == ("stuck", "rollout-engine-stalled")
    assert "runs no engine step" in verdict.summary
    assert "POST /resume" in verdict.fixes[0].text


def test_a_rank_that_polls_may_wait_for_its_tool_and_not_for_the_idle_engine() -> None:
    assert not_resumed("poll").state == "slow"


def test_a_core_that_rests_between_two_turns_of_an_answer_is_not_paused() -> None:
    """The rank has waited for the whole answer, the core for the tool of its last turn."""
    build = idle("socket-receive")
    build.core.still_s = 1.3
    assert build.verdict().state == "slow"


def test_nor_is_the_second_of_two_cores() -> None:
    build = idle("socket-receive")
    second = build.child(0, "engine", pid=CORE + 10, parent=FRONT)
    second.member, second.still_s = replace(second.member, rank=None), 1.3
    assert build.verdict().state == "slow"


def test_a_server_that_asks_a_tool_elsewhere_is_given_time() -> None:
    build = idle("socket-receive")
    build.step_s = 0.1
    build.front.blocks("socket-receive", "10.0.0.1:5 -> 34.1.2.3:443")
    assert build.verdict().state == "slow"


def test_a_server_whose_own_tool_computes_as_well() -> None:
    build = idle("socket-receive")
    build.step_s = 0.1
    build.child(0, "helper", pid=CORE + 10, parent=FRONT).works(SPINS)
    assert build.verdict().state == "slow"


def test_an_engine_asked_in_its_sleep() -> None:
    build = Served()
    build.metrics({**BUSY, "num_requests_waiting": 3.0, "asleep": 1.0})
    assert "is asleep" in build.verdict().summary


def test_one_long_pass_of_the_model_is_slow() -> None:
    build = Served()
    spins(build.core)
    build.metrics(BUSY)
    assert build.verdict().state == "slow"


@pytest.mark.parametrize(("works", "state"), [(True, "slow"), (False, "stuck")])
def test_an_engine_that_does_not_count_its_tokens(works: bool, state: str) -> None:
    build = Served()
    if works:
        spins(build.core)
    build.metrics({"num_requests_running": 4.0, "kv_cache_usage": 0.5})
    assert build.verdict().state == state


def test_an_engine_on_its_way_up_is_slow() -> None:
    build = Served()
    build.worker.works(frames("load_model /x/site-packages/vllm/worker.py:9"))
    verdict = build.verdict()
    assert (verdict.state, verdict.cause) == ("slow", "")
    assert "starting" in verdict.summary


def test_a_transfer_for_which_each_side_waits_for_the_other() -> None:
    build = Served("update_weights")
    build.worker.stack = frames("update_weights /x/site-packages/vllm/weight_transfer/base.py:9")
    verdict = build.verdict()
    assert (verdict.state, verdict.cause, verdict.culprits) == (
        "stuck",
        "weight-sync-blocked",
        (0,),
    )
    assert "base.py:9" in verdict.summary


def test_a_transfer_that_another_thread_serves_is_none() -> None:
    build = Served("update_weights")
    build.worker.works(frames("update_weights /x/site-packages/vllm/weight_transfer/base.py:9"))
    assert build.verdict().state == "slow"


@pytest.mark.parametrize("asker", ["compute_rewards", "__getitem__", "log_metrics"])
def test_a_server_that_is_asked_for_something_else_is_no_engine(asker: str) -> None:
    build = Served(asker)
    del build.processes[CORE], build.processes[WORKER]
    build.front.state = "T"
    assert build.verdict().cause not in ("rollout-engine-stalled", "rollout-engine-dead")


def test_another_server_is_not_this_ranks_engine() -> None:
    build = Served()
    other = build.child(0, "server", pid=500, parent=1)
    other.member = replace(other.member, rank=None)
    other.state = "T"
    build.metrics(BUSY, generation_tokens_total=990.0)
    assert build.verdict().state == "slow"


LOST = "ConnectionError: [Errno 111] Connection refused"


def lost(line: str) -> EvidenceBuilder:
    """Rank 0 sleeps between two attempts to reach a server of which there is no process."""
    build = EvidenceBuilder()
    callers = ("ask /home/me/client.py:9", "generate /home/me/train.py:5")
    rank = build.elsewhere(0, frames(*callers))
    rank.blocks("sleep")
    rank.still_s, rank.wakes = 0.5, 2
    build.logs = [LogTail(99, "/home/me/job.log", 0.5, (line,))]
    return build


def test_a_server_that_is_gone() -> None:
    verdict = diagnose(lost(LOST).build()).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == (
        "stuck",
        "rollout-engine-dead",
        (0,),
    )
    assert LOST in [item.text for item in verdict.evidence]


def test_other_lines_of_a_log_tell_of_no_server() -> None:
    assert diagnose(lost("step 3").build()).verdict.cause != "rollout-engine-dead"


def test_a_server_that_is_still_to_come_is_no_hang() -> None:
    build = lost(LOST)
    build.recorded = False
    for rank in range(1, 4):
        build.rank(rank).still_s = 600.0
    assert diagnose(build.build()).verdict.state == "slow"


@pytest.mark.parametrize("asker", ["wait_for_server", "check_server", "wait_until_ready"])
def test_a_server_that_is_waited_for_at_the_start_is_no_hang(asker: str) -> None:
    build = lost("step 3")
    build.recorded = False
    build.rank(0).stack = frames(f"{asker} /home/me/train.py:5")
    build.rank(0).blocks("sleep")
    for rank in range(1, 4):
        build.rank(rank).still_s = 600.0
    verdict = diagnose(build.build()).verdict
    assert (verdict.state, verdict.cause) == ("slow", "")
    assert "for its server to start" in verdict.summary


def test_no_order_of_processes_matters() -> None:
    build = Served()
    build.worker.state = "T"
    orders: tuple[dict[int, int], ...] = ({}, {CORE: -1}, {WORKER: -2, CORE: -1}, {FRONT: 5})
    diagnoses: list[Diagnosis] = [diagnose(build.build(order)) for order in orders]
    assert all(diagnosis.verdict == diagnoses[0].verdict for diagnosis in diagnoses)
