"""Rollout engines that ranks wait for."""

from __future__ import annotations

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor_probes.evidence import EngineLook
from tests.evidence import EvidenceBuilder, frames
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
    found = diagnose(build.build())
    assert (found.verdict.cause, found.verdict.culprits) == ("rollout-engine-dead", (0,))


def test_an_engine_that_makes_no_tokens() -> None:
    build = EvidenceBuilder()
    _generating(build, 0)
    build.child(0, "server", pid=400)
    build.child(0, "engine", pid=401, parent=400)
    values = {"vllm:generation_tokens_total": 900.0, "vllm:num_requests_running": 4.0}
    build.engines = [(EngineLook(400, n, "http://x", values),) for n in (1, 2)]
    said = verdict(build)
    assert (said.cause, said.culprits) == ("rollout-engine-stalled", (0,))


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
    said = verdict(build)
    assert (said.state, said.cause, said.culprits) == ("stuck", "user-code-blocked", (0,))


def test_what_counts_tokens_is_an_engine_whatever_its_code_is_called() -> None:
    build = EvidenceBuilder()
    _generating(build, 0)
    build.child(0, "server", pid=400).stack = JUDGES
    values = {"vllm:generation_tokens_total": 900.0, "vllm:num_requests_running": 4.0}
    build.engines = [(EngineLook(400, n, "http://x", values),) for n in (1, 2)]
    assert verdict(build).cause == "rollout-engine-stalled"
