"""A rank that waits for a thread or a process of its own: the verdict is about that one."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from tests.evidence import EvidenceBuilder, FakeProcess, frames

LIB = "/usr/lib/python3.11"
CHECK = frames("check /home/me/rewards.py:31", "grade /home/me/rewards.py:40")
RECEIVES = frames(
    f"_recv {LIB}/multiprocessing/connection.py:383",
    f"recv {LIB}/multiprocessing/connection.py:254",
    "ask /home/me/workers.py:12",
    "reward /home/me/train.py:40",
)


def verdict(build: EvidenceBuilder) -> Verdict:
    return diagnose(build.build()).verdict


def worker(build: EvidenceBuilder, rank: int, kind: str = "socket-receive") -> FakeProcess:
    """The rank waits for an answer of a process that it has started."""
    process = build.elsewhere(rank, RECEIVES)
    process.blocks(kind, "unix socket [7]", 200, fd=5, peers_known=True)
    return build.child(rank, "reward", pid=200)


@pytest.mark.parametrize("kind", ["socket-receive", "pipe-read"])
@pytest.mark.parametrize("moves", [True, False])
def test_a_worker_that_computes_makes_its_rank_busy(kind: str, moves: bool) -> None:
    build = EvidenceBuilder()
    worker(build, 2, kind).works(CHECK, moves=moves)
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("slow", "reward-busy", (2,))
    assert f"rewards.py:{31 + moves}, check" in outcome.summary


@pytest.mark.parametrize(
    ("wchan", "cause"),
    [
        ("mem_cgroup_oom_synchronize", "oom-killed"),
        ("kernel_clone", "child-stuck"),
        ("nvidia_ioctl", "gpu-fault"),
        ("nfs_wait_bit_killable", "storage-blocked"),
    ],
)
def test_a_sleep_that_no_signal_ends_is_told_apart_by_its_function(wchan: str, cause: str) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(2, frames("clip /home/me/train.py:31", "main t.py:9"))
    process.state, process.wchan, process.still_s = "D", wchan, 60.0
    build.waited_s = 60.0
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", cause, (2,))


def test_a_stopped_child_explains_no_wait_for_another_process() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, CHECK)
    process.blocks("socket-receive", "127.0.0.1:4000 -> 127.0.0.1:80", 700, peers_known=True)
    build.child(0, "helper", pid=300).state = "T"
    assert verdict(build).cause == "reward-blocked"
