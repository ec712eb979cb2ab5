"""What `attach` says of a rank that waits for its rollout engine, by what the engine shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.causes.engine import rollout_engine
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import EngineLook, Frame, Limits, LogTail
from tests.evidence import SECOND, TORCH, EvidenceBuilder, FakeProcess, frames
from tests.unit.hang.causes.proposed import only

FRONT, CORE, WORKER, SECOND_CORE = 400, 401, 402, 411
STALLED, DEAD = "rollout-engine-stalled", "rollout-engine-dead"
BUSY = {"num_requests_running": 4.0, "generation_tokens_total": 900.0, "kv_cache_usage": 0.5}
QUEUED = {**BUSY, "num_requests_running": 0.0, "num_requests_waiting": 3.0}
ASKS = ("recv_into /usr/lib/python3.11/socket.py:5", "post /x/site-packages/requests/api.py:5")
IDLES = frames("select /usr/lib/python3.11/selectors.py:5", "run /x/site-packages/uvicorn/a.py:3")
SPINS = frames(
    "sched_yield /x/site-packages/vllm/utils.py:46", "step /x/site-packages/vllm/core.py:9"
)
RESTS = frames("get /usr/lib/python3.11/queue.py:171", "_process_input_queue /x/vllm/core.py:1588")


class Served(EvidenceBuilder):
    """Rank 0 waits for a server with a core and a worker, the others for rank 0."""

    def __init__(self, asker: str = "generate", **more: Any) -> None:
        super().__init__(**more)
        rank = self.elsewhere(0, frames(*ASKS, f"{asker} /home/me/train.py:5"))
        rank.blocks("socket-receive", "127.0.0.1:8000", FRONT)
        self.front = self._part("server", FRONT, parent=1)
        self.core = self._part("engine", CORE, parent=FRONT)
        self.worker = self._part("engine-worker", WORKER, parent=CORE)
        self.front.stack = IDLES

    def _part(self, role: Any, pid: int, parent: int) -> FakeProcess:
        process = self.child(0, role, pid=pid, parent=parent)
        process.member = replace(process.member, rank=None)
        return process

    def without_core(self) -> None:
        del self.processes[CORE], self.processes[WORKER]

    def stands(self, core_s: float = 40.0, rank_s: float = 40.0) -> None:
        """Its core waits for work, for so long; steps of this job may take some seconds."""
        self.rank(0).still_s, self.core.still_s, self.step_s = rank_s, core_s, 15.0
        self.waited_s = 40.0

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


# Processes that may not run, or have ended.


@pytest.mark.parametrize(
    ("part", "core_spins"), [("front", False), ("core", False), ("worker", False), ("worker", True)]
)
def test_a_stopped_part_is_named_with_what_wakes_it(part: str, core_spins: bool) -> None:
    build = Served()
    if core_spins:
        spins(build.core)
    process: FakeProcess = getattr(build, part)
    process.state = "T"
    verdict = build.verdict()
    assert (verdict.state, verdict.cause, verdict.culprits) == ("stuck", STALLED, (0,))
    assert verdict.victims == (1, 2, 3)
    assert f"pid {process.member.pid} " in verdict.summary
    assert "is stopped" in verdict.summary
    assert f"kill -CONT {process.member.pid}" in verdict.fixes[0].text
    assert verdict.confirm[0].startswith(f"kill -CONT {process.member.pid} ")


def test_a_frozen_core() -> None:
    build = Served()
    build.core.limits = (Limits(CORE, frozen=True),) * 2
    label = only(rollout_engine, build)
    assert label.reason.endswith("is frozen by its control group")
    assert label.fixes[0].text.startswith("Thaw the control group")
    assert label.confirm == ()


@pytest.mark.parametrize("part", ["front", "core", "worker"])
def test_a_dead_part(part: str) -> None:
    build = Served()
    process: FakeProcess = getattr(build, part)
    process.state = "Z"
    verdict = build.verdict()
    assert (verdict.state, verdict.cause, verdict.culprits) == ("dead", DEAD, (0,))
    assert f"pid {process.member.pid} " in verdict.summary
    build.kernel = [(5.0, f"Out of memory: Killed process {process.member.pid} (VLLM::EngineCor)")]
    assert build.verdict().cause == "oom-killed"


def test_a_front_without_a_core_whose_log_or_health_tells() -> None:
    build = Served()
    build.without_core()
    assert build.verdict().cause != DEAD
    line = "ERROR 11-21 [async_llm.py:700] AsyncLLM output_handler failed: EngineDeadError"
    build.logs = [LogTail(FRONT, "/home/me/serve.log", 9.0, (line,))]
    verdict = build.verdict()
    assert (verdict.cause, line in [item.text for item in verdict.evidence]) == (DEAD, True)
    build.logs = []
    build.metrics({"healthy": 0.0})
    assert build.verdict().cause == DEAD


# What its counters say.


@pytest.mark.parametrize(
    ("before", "after", "works", "state", "cause", "says"),
    [
        (BUSY, {}, True, "slow", STALLED, "generated no token in 1.0 s and has 4 requests"),
        (BUSY, {}, False, "stuck", STALLED, "generated no token"),
        (BUSY, {"generation_tokens_total": 990.0}, True, "slow", "", "90 tokens in 1.0 s"),
        (BUSY, {"num_preemptions_total": 1.0}, True, "slow", STALLED, "generated no token"),
        (BUSY, {"num_preemptions_total": 2.0}, True, "stuck", STALLED,
         "keeps preempting requests, 50% of its cache used: 2 times and no token in 1.0 s"),
        ({**BUSY, "asleep": 1.0}, {}, False, "stuck", STALLED, "is asleep but was asked"),
        # One that does not count its tokens.
        ({"num_requests_running": 4.0}, {}, True, "slow", "", "which works (4 requests run"),
        ({"num_requests_running": 4.0}, {}, False, "stuck", STALLED, "makes no progress and has"),
        ({"num_requests_running": 0.0}, {}, False, "stuck", STALLED, "has no request"),
        ({**BUSY, "num_requests_waiting": 2.0}, {}, False, "stuck", STALLED, "no token in"),
    ],
)  # fmt: skip
def test_what_comes_out_of_an_engine(
    before: dict[str, float],
    after: dict[str, float],
    works: bool,
    state: str,
    cause: str,
    says: str,
) -> None:
    build = Served()
    if works:
        spins(build.core)
    build.metrics({"num_preemptions_total": 0.0, **before} if after else before, **after)
    verdict = build.verdict()
    assert (verdict.state, verdict.cause) == (state, cause)
    assert says in verdict.summary


@pytest.mark.parametrize("framework", ["trl", "unknown"])
def test_an_engine_that_throws_its_work_away_needs_room(framework: str) -> None:
    build = Served(framework=framework)
    build.metrics({**BUSY, "num_requests_waiting": 3.0, "num_preemptions_total": 7.0},
                  num_preemptions_total=90.0)  # fmt: skip
    verdict = build.verdict()
    fixes = {fix.knob: fix for fix in verdict.fixes}
    assert "--max-num-seqs 4)" in fixes["vllm.max_num_seqs"].text  # half of what it has
    known = "--vllm_gpu_memory_utilization 0.9" if framework == "trl" else None
    assert fixes["vllm.gpu_memory_utilization"].spelling == known
    assert any("83 preempted meanwhile" in item.text for item in verdict.evidence)


# Pauses, in which new weights come.


@pytest.mark.parametrize(
    ("rank_s", "core_s", "second_s", "liveness"),
    [
        (30.0, 30.0, 30.0, "never-wakes"),
        (29.5, 30.0, 30.0, "unseen"),
        (30.0, 29.5, 30.0, "unseen"),
        (30.0, 30.0, 29.5, "unseen"),  # of every core
    ],
)
@pytest.mark.parametrize(
    ("metrics", "stack", "says"),
    [
        (BUSY, RESTS, "runs no engine step"),
        ({**BUSY, "paused": 1.0}, SPINS, "is paused for new weights, with 4 requests, and no call"),
        ({**QUEUED, "num_requests_waiting": 0.0, "paused": 1.0}, RESTS, "new weights, and no call"),
        (QUEUED, SPINS, "runs none of 3 queued requests, 50% of its cache used in 1.0 s"),
    ],
)
def test_a_pause_is_long_where_the_rank_and_all_cores_have_stood(
    metrics: dict[str, float], stack: tuple[Frame, ...], says: str,
    rank_s: float, core_s: float, second_s: float, liveness: str,
) -> None:  # fmt: skip
    build = Served()
    build.stands(core_s, rank_s)
    build.core.stack = stack
    second = build._part("engine", SECOND_CORE, parent=FRONT)
    second.stack, second.still_s = stack, second_s
    build.metrics(metrics)
    label = only(rollout_engine, build)
    assert label.liveness == liveness
    assert says in label.reason
    assert any("/resume" in fix.text for fix in label.fixes)
    assert (label.cause == "rollout-engine-paused") == ("paused" in metrics)


@pytest.mark.parametrize(
    ("how", "liveness"),
    [
        ("polls", "unseen"),  # it may wait for something else
        ("reads a pipe", "never-wakes"),
        ("its front asks a tool elsewhere", "computing"),
        ("its front's own tool computes", "computing"),
        ("its front's own tool sleeps", "never-wakes"),
    ],
)
def test_a_core_at_rest_may_wait_for_a_tool(how: str, liveness: str) -> None:
    build = Served()
    build.stands()
    build.core.stack = RESTS
    build.metrics(BUSY)
    if how in ("polls", "reads a pipe"):
        build.rank(0).blocked.clear()
        build.rank(0).blocks("poll" if how == "polls" else "pipe-read", "127.0.0.1:8000", FRONT)
    elif "elsewhere" in how:
        build.front.blocks("socket-receive", "10.0.0.1:5 -> 34.1.2.3:443")
    else:
        tool = build.child(0, "helper", pid=SECOND_CORE, parent=FRONT)
        if "computes" in how:
            tool.works(SPINS)
    assert only(rollout_engine, build).liveness == liveness


def test_an_engine_on_its_way_up_is_slow() -> None:
    build = Served()
    build.worker.works(frames("load_model /x/site-packages/vllm/worker.py:9"))
    verdict = build.verdict()
    assert (verdict.state, verdict.cause) == ("slow", "")
    assert "starting" in verdict.summary


# Who waits for whom, while weights are sent.

TAKES = frames("load_weights /x/site-packages/vllm/worker.py:9")
REDUCES = frames(f"broadcast {TORCH}/distributed_c10d.py:3252", "run /x/vllm/worker.py:9")


@pytest.mark.parametrize(
    ("asker", "stack", "works", "phase"),
    [
        ("update_weights", TAKES, False, "sync"),
        ("update_weights", REDUCES, False, "sync"),
        ("generate", TAKES, False, "rollout"),
        ("update_weights", TAKES, True, None),  # another thread sends them
        ("update_weights", SPINS, False, None),
    ],
)
def test_a_worker_that_takes_weights_waits_in_turn_for_its_rank(
    asker: str, stack: tuple[Frame, ...], works: bool, phase: str | None
) -> None:
    build = Served(asker)
    build.worker.stack = stack
    if works:
        build.worker.works(stack, moves=False)
    label = only(rollout_engine, build)
    assert ("waits for the trainer" in label.reason) is (phase is not None)
    if phase is not None:
        found = label.cause, label.node, label.phase, label.liveness
        assert found == ("weight-sync-blocked", ProcessNode(WORKER), phase, "never-wakes")


# Servers that are no engine, not there, or not yet.


@pytest.mark.parametrize("asker", ["compute_rewards", "__getitem__", "log_metrics"])
def test_a_server_that_is_asked_for_something_else_is_no_engine(asker: str) -> None:
    build = Served(asker)
    build.without_core()
    build.front.state = "T"
    assert build.verdict().cause not in (STALLED, DEAD)


LOST = "ConnectionError: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("asker", "line", "history", "state", "cause"),
    [
        ("generate", LOST, True, "stuck", DEAD),
        ("generate", "step 3", True, "stuck", "user-code-blocked"),
        ("generate", LOST, False, "slow", DEAD),  # it may still come
        ("wait_for_server", "step 3", False, "slow", ""),
        ("check_server", "step 3", False, "slow", ""),
        ("wait_until_ready", "step 3", False, "slow", ""),
    ],
)
def test_a_rank_between_two_attempts_to_reach_a_server_of_which_there_is_no_process(
    asker: str, line: str, history: bool, state: str, cause: str
) -> None:
    build = EvidenceBuilder(recorded=history)
    rank = build.elsewhere(0, frames("ask /home/me/client.py:9", f"{asker} /home/me/train.py:5"))
    rank.blocks("sleep")
    rank.still_s, rank.wakes = 0.5, 2
    build.waited_s = 60.0
    if not history:
        for other in range(1, 4):
            build.rank(other).still_s = 600.0
    build.logs = [LogTail(99, "/home/me/job.log", 0.5, (line,))]
    verdict = diagnose(build.build()).verdict
    assert (verdict.state, verdict.cause) == (state, cause)
    assert ("for its server to start" in verdict.summary) is (cause == "")
    assert (LOST in [item.text for item in verdict.evidence]) is (cause == DEAD)


def test_no_order_of_processes_matters() -> None:
    build = Served()
    build.worker.state = "T"
    orders: tuple[dict[int, int], ...] = ({}, {CORE: -1}, {WORKER: -2, CORE: -1}, {FRONT: 5})
    verdicts = [diagnose(build.build(order)).verdict for order in orders]
    assert all(verdict == verdicts[0] for verdict in verdicts)
