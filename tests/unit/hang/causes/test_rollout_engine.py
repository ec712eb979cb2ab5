"""Rollout engines that ranks wait for."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.causes.engine import rollout_engine
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor_probes.evidence import EngineLook, Frame, Limits, LogTail
from tests.evidence import TORCH, EvidenceBuilder, frames
from tests.unit.hang.causes.proposed import only
from tests.verdicts import verdict


def _generating(build: EvidenceBuilder, rank: int) -> None:
    stack = frames(
        "recv_into /usr/lib/python3.11/socket.py:5",
        "post /x/site-packages/requests/api.py:5",
        "generate /home/me/train.py:5",
    )
    build.elsewhere(rank, stack).blocks("socket-receive", "127.0.0.1:8000", 400)


def test_a_dead_engine() -> None:
    build = EvidenceBuilder()
    _generating(build, 0)
    build.child(0, "server", pid=400)
    build.child(0, "engine", pid=401, parent=400).state = "Z"
    diagnosis = diagnose(build.build())
    assert (diagnosis.verdict.cause, diagnosis.verdict.culprits) == ("rollout-engine-dead", (0,))


def test_an_engine_that_makes_no_tokens() -> None:
    build = EvidenceBuilder()
    _generating(build, 0)
    build.child(0, "server", pid=400)
    build.child(0, "engine", pid=401, parent=400)
    values = {"vllm:generation_tokens_total": 900.0, "vllm:num_requests_running": 4.0}
    build.engines = [(EngineLook(400, n, "http://x", values),) for n in (1, 2)]
    outcome = verdict(build)
    assert (outcome.cause, outcome.culprits) == ("rollout-engine-stalled", (0,))


def test_an_engine_that_makes_tokens_is_slow() -> None:
    build = EvidenceBuilder()
    _generating(build, 0)
    build.child(0, "engine", pid=400).works(())
    assert verdict(build).state == "slow"


JUDGES = frames("answer /home/me/reward_server.py:22", "main /home/me/reward_server.py:40")


def test_a_server_of_rewards_that_a_rollout_asks_is_no_engine() -> None:
    build = EvidenceBuilder()
    _generating(build, 0)
    server = build.child(0, "server", pid=400)
    server.stack = JUDGES
    build.rank(0).wchan, server.wchan = "wait_woken", "inet_csk_accept"
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "user-code-blocked", (0,))


def test_what_counts_tokens_is_an_engine_whatever_its_code_is_called() -> None:
    build = EvidenceBuilder()
    _generating(build, 0)
    build.child(0, "server", pid=400).stack = JUDGES
    values = {"vllm:generation_tokens_total": 900.0, "vllm:num_requests_running": 4.0}
    build.engines = [(EngineLook(400, n, "http://x", values),) for n in (1, 2)]
    assert verdict(build).cause == "rollout-engine-stalled"


FRONT, CORE, WORKER = 400, 401, 402
ASKS = ("recv_into /usr/lib/python3.11/socket.py:5", "post /x/site-packages/requests/api.py:5")
GENERATES = frames(*ASKS, "generate /home/me/train.py:5")


def served(stack: tuple[Frame, ...] = GENERATES, **states: str) -> EvidenceBuilder:
    """Rank 0 waits for a front, its core and that one's worker, which are in these states."""
    build = EvidenceBuilder()
    build.elsewhere(0, stack).blocks("socket-receive", "127.0.0.1:8000", FRONT)
    build.child(0, "server", pid=FRONT).state = states.get("front", "S")
    build.child(0, "engine", pid=CORE, parent=FRONT).state = states.get("core", "S")
    build.child(0, "engine-worker", pid=WORKER, parent=CORE).state = states.get("worker", "S")
    return build


@pytest.mark.parametrize(
    ("how", "says", "fix"),
    [
        ("stopped", "is stopped (SIGSTOP)", "Resume it: kill -CONT 401"),
        ("frozen", "is frozen by its control group", "Thaw the control group"),
    ],
)
def test_a_core_that_may_not_run(how: str, says: str, fix: str) -> None:
    build = served(core="T" if how == "stopped" else "S")
    row = Limits(CORE, frozen=how == "frozen")
    build.processes[CORE].limits = (row, row)
    label = only(rollout_engine, build)
    assert label.node == ProcessNode(CORE)
    assert label.reason.endswith(says)
    assert any(line.startswith("kill -CONT 401 ") for line in label.confirm) is (how == "stopped")
    assert label.fixes[0].text.startswith(fix)


# Who waits for whom, while weights are sent.

SYNCS = frames(*ASKS, "update_weights /home/me/train.py:5")
TAKES = frames("load_weights /x/site-packages/vllm/worker.py:9")
REDUCES = frames(f"broadcast {TORCH}/distributed_c10d.py:3252", "run /x/vllm/worker.py:9")
RESTS = frames("poll /x/site-packages/vllm/core.py:9")


@pytest.mark.parametrize(
    ("stack", "works", "in_turn"),
    [(TAKES, False, True), (REDUCES, False, True), (TAKES, True, False), (RESTS, False, False)],
)
def test_a_worker_that_takes_weights_waits_in_turn_for_its_rank(
    stack: tuple[Frame, ...], works: bool, in_turn: bool
) -> None:
    build = served(SYNCS)
    worker = build.processes[WORKER]
    worker.stack = stack
    if works:
        worker.works(stack, moves=False)
    label = only(rollout_engine, build)
    assert ("waits for the trainer" in label.reason) == in_turn
    if in_turn:
        assert (label.cause, label.node) == ("weight-sync-blocked", ProcessNode(WORKER))
        assert label.phase == "sync"


def test_a_transfer_from_a_rollout_is_one_of_its_phase() -> None:
    build = served()
    build.processes[WORKER].stack = TAKES
    assert only(rollout_engine, build).phase == "rollout"


# Servers that are not there, or not yet.

REFUSED = "ConnectionError: [Errno 111] Connection refused"


def without_server(stack: tuple[Frame, ...], *, history: bool) -> EvidenceBuilder:
    build = EvidenceBuilder(recorded=history)
    build.elsewhere(0, stack).blocks("sleep")
    build.logs = [LogTail(99, "/home/me/job.log", 0.5, (REFUSED,))]
    return build


@pytest.mark.parametrize(
    ("asker", "history", "cause", "liveness"),
    [
        ("generate", True, "rollout-engine-dead", "unseen"),
        ("generate", False, "rollout-engine-dead", "computing"),
        ("wait_for_server", False, "", "progressing"),
    ],
)
def test_a_job_that_has_never_got_on_may_wait_for_a_server_that_still_comes(
    asker: str, history: bool, cause: str, liveness: str
) -> None:
    build = without_server(frames(f"{asker} /home/me/train.py:5"), history=history)
    label = only(rollout_engine, build)
    assert (label.cause, label.liveness) == (cause, liveness)
