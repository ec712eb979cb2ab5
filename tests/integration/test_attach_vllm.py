"""`grpo-doctor attach` where ranks wait for a real vLLM engine: its server stopped, paused, dead.

One server and one job serve all tests, in the order of this file: what a test breaks it mends, but
for the last, which kills the engine.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM, any build")
pytest.importorskip("deepspeed", reason="needs the trainer extra")

import requests  # vLLM brings it

from tests.integration.vllm_stage import SHORT, Stage, staged, until
from tests.ports import free_port

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]
START_S = 420.0
GENERATES_S = 4.0
# Beside other programs the engine answers for its counters too late now and then.
LOOKS = 3
STANDS_S = 8.0  # hard evidence of a wait of three seconds is believed
SURE_S = 60.0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A job that waits for its server, and that server, still on its way up."""
    with staged(tmp_path_factory.mktemp("served")) as scene:
        yield scene


@pytest.fixture(scope="module")
def served(stage: Stage) -> Stage:
    """The same, once the job gets on."""
    until(stage.answers, stage.logs, START_S)
    stage.moves(6)
    return stage


def verdict(document: dict[str, Any]) -> tuple[str, str, list[int], list[int]]:
    ruling = document["verdict"]
    return ruling["state"], ruling["class"], ruling["culprits"], ruling["victims"]


def pids(document: dict[str, Any], role: str) -> list[int]:
    return [row["pid"] for row in document["ranks"] if row["role"] == role]


def with_engine(stage: Stage) -> dict[str, Any]:
    """A look in the middle of a request: between two no connection joins the engine to the job."""
    while not pids(document := stage.attach(), "engine"):
        time.sleep(0.1)
    return document


def process(stage: Stage, role: str) -> int:
    (pid,) = pids(with_engine(stage), role)
    return pid


def once_sure(stage: Stage) -> dict[str, Any]:
    """What is said once the wait is old enough for this job, which may have waited long before."""
    ends = time.monotonic() + SURE_S
    document = stage.attach()
    while document["verdict"]["state"] in ("healthy", "slow") and time.monotonic() < ends:
        document = stage.attach()
    return document


def not_stuck(document: dict[str, Any]) -> None:
    assert document["verdict"]["state"] in ("healthy", "slow"), document["verdict"]


def test_an_engine_on_its_way_up_is_no_hang(stage: Stage) -> None:
    until((stage.folder / "waits").exists, stage.logs)
    time.sleep(STANDS_S)
    assert not stage.answers()
    not_stuck(stage.attach())


def test_every_process_of_the_engine_is_known_and_none_is_harmed(served: Stage) -> None:
    before = served.greedy()
    document = with_engine(served)
    not_stuck(document)
    assert document["job"]["ranks_seen"] == [0, 1]
    counts = {role: len(pids(document, role)) for role in ("server", "engine", "engine-worker")}
    assert counts == {"server": 1, "engine": 1, "engine-worker": 1}
    assert served.greedy() == before
    served.moves()


def test_a_long_generation_is_slow_and_its_tokens_are_counted(served: Stage) -> None:
    """Longer than any wait before it, with more requests than the cache has room for."""
    served.ask(prompts=400, tokens=1000)  # longer than the looks at any speed: aborted below
    until(lambda: served.running() > 2, served.logs)
    served.ask(**SHORT, pool=True)
    time.sleep(GENERATES_S)
    for _ in range(LOOKS):
        document = served.attach()
        not_stuck(document)
        if " tokens in " in document["verdict"]["summary"]:
            break
    else:
        pytest.fail(document["verdict"]["summary"])
    requests.post(f"{served.url}/abort_requests", json={}, timeout=30).raise_for_status()
    served.moves()


@pytest.mark.parametrize("role", ["server", "engine", "engine-worker"])
def test_a_stopped_part_is_named(served: Stage, role: str) -> None:
    pid = process(served, role)
    served.signal(pid, signal.SIGSTOP)
    try:
        document = once_sure(served)
    finally:
        served.signal(pid, signal.SIGCONT)
    assert verdict(document) == ("stuck", "rollout-engine-stalled", [0], [1])
    summary = document["verdict"]["summary"]
    assert f"pid {pid} " in summary
    assert "is stopped" in summary
    assert f"kill -CONT {pid}" in document["verdict"]["fixes"][0]["text"]
    guilty = [node["id"] for node in document["graph"]["nodes"] if node["guilty"]]
    assert f"pid:{pid}" in guilty
    served.moves()


def test_a_paused_engine_is_named(served: Stage) -> None:
    """As one whose trainer forgot to resume it after it had sent weights."""
    requests.post(f"{served.url}/pause", params={"mode": "keep"}, timeout=30)
    try:
        time.sleep(STANDS_S)
        document, ends = served.attach(), time.monotonic() + SURE_S
        while not document["verdict"]["class"] and time.monotonic() < ends:
            document = served.attach()  # the job had not come to its next request
    finally:
        requests.post(f"{served.url}/resume", timeout=30)
    assert verdict(document)[1:] == ("rollout-engine-paused", [0], [1])
    assert document["verdict"]["state"] in ("slow", "stuck")  # it may be resumed after a while
    assert "is paused for new weights" in document["verdict"]["summary"]
    served.moves()


def test_weights_that_both_sides_wait_for(served: Stage) -> None:
    served.ask(**SHORT, sync=free_port())
    document = once_sure(served)
    served.ask(**SHORT)
    assert verdict(document) == ("stuck", "weight-sync-blocked", [0], [1])
    served.moves()


def test_a_dead_core_behind_a_front_that_lives(served: Stage) -> None:
    """The last one."""
    pid = process(served, "engine")
    served.signal(pid, signal.SIGKILL)
    document = once_sure(served)
    assert verdict(document)[1:3] == ("rollout-engine-dead", [0])
    assert document["verdict"]["state"] in ("stuck", "dead")
