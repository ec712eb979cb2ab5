"""Processes that a rank has started and waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.causes.helpers import child_processes
from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor_probes.evidence import Limits, LogTail, PythonThread, Thread
from tests.evidence import EvidenceBuilder, frames
from tests.unit.hang.causes.proposed import only, proposed
from tests.verdicts import REWARD, expect

COMMUNICATES = frames(
    "select /usr/lib/python3.11/selectors.py:415",
    "_communicate /usr/lib/python3.11/subprocess.py:2105",
    "run /usr/lib/python3.11/subprocess.py:550",
    "check /home/me/rewards.py:31",
    "reward /home/me/train.py:40",
)


def idle_pool(*threads: str, package: str = "multiprocessing") -> EvidenceBuilder:
    """A rank waits for its pool, whose workers are all idle; these threads of the pool are left."""
    pool = f"/usr/lib/python3.11/{package}/pool.py"
    build = EvidenceBuilder()
    maps = frames(
        "Condition.wait /usr/lib/python3.11/threading.py:327",
        f"ApplyResult.get {pool}:768",
        f"Pool.map {pool}:367",
        "check /home/me/rewards.py:31",
        "reward /home/me/train.py:40",
    )
    process = build.elsewhere(1, maps)
    for offset, function in enumerate(threads):
        shown = PythonThread(901 + offset, "Thread-1", frames(f"Pool.{function} {pool}:500"))
        process.threads.append((shown, Thread(901 + offset, "python", "S", last_ran_ns=1)))
    takes_task = frames(f"get /usr/lib/python3.11/{package}/queues.py:365", f"worker {pool}:114")
    for pid in (300, 301):
        build.child(1, "helper", pid=pid).stack = takes_task
    return build


@pytest.mark.parametrize("package", ["multiprocessing", "multiprocess"])
def test_a_pool_whose_task_went_with_its_worker(package: str) -> None:
    build = idle_pool("_handle_workers", "_handle_tasks", "_handle_results", package=package)
    assert "a pool worker died" in expect(build, "child-stuck", 1).verdict.summary


def test_a_pool_whose_thread_for_results_has_ended() -> None:
    build = idle_pool("_handle_workers", "_handle_tasks")
    trace = (
        "Exception in thread Thread-3 (_handle_results):",
        "Traceback (most recent call last):",
        "    return loads(buffer)",
        "TypeError: __init__() missing 1 required positional argument: 'text'",
        "step 31",
    )
    build.logs.append(LogTail(101, "/run/job.log", 8.0, trace))
    outcome = expect(build, "child-stuck", 1).verdict
    assert "died" not in outcome.summary
    assert "result thread has ended" in outcome.summary
    assert ("log", trace[3]) in [(item.source, item.text) for item in outcome.evidence]


def test_a_process_of_another_parent_at_the_other_end_is_no_child() -> None:
    build = EvidenceBuilder()
    reads = frames("read_rows /home/me/rows.py:3", "rollout /home/me/train.py:44")
    build.elsewhere(1, reads).blocks("pipe-read", "pipe:[7]", 300)
    build.child(1, "helper", pid=300, parent=1).state = "T"
    expect(build, "user-code-blocked", 1)


# Which of its processes a rank waits for.


def runs() -> EvidenceBuilder:
    """Rank 1 waits for its child 300."""
    build = EvidenceBuilder()
    build.elsewhere(1, REWARD).blocks("child", "", 300)
    build.child(1, "reward", pid=300)
    return build


@pytest.mark.parametrize(
    ("kind", "pid"),
    [("child", 301), ("poll", 301), ("other", 301), ("pipe-read", 300), ("socket-receive", 300)],
)
def test_who_waits_for_something_else_than_its_child_is_meant_itself(kind: str, pid: int) -> None:
    build = runs()
    build.processes[300].blocks(kind)
    build.child(1, "reward", pid=301, parent=300)
    assert only(child_processes, build).node == ProcessNode(pid)


@pytest.mark.parametrize(
    ("peers", "known", "threads", "liveness", "advised"),
    [
        ((101, 300), True, 0, "never-wakes", "Read the other end"),  # after a fork both ends
        ((101,), True, 0, "never-wakes", "Read the other end"),
        ((101,), True, 1, "unseen", "Read the other end"),  # another thread may read it
        ((101, 4711), True, 0, "unseen", "Give the wait a timeout"),
        ((101,), False, 0, "unseen", "Give the wait a timeout"),
    ],
)
def test_a_child_that_writes_to_who_waits_for_it_never_ends(
    peers: tuple[int, ...], known: bool, threads: int, liveness: str, advised: str
) -> None:
    build = runs()
    build.processes[300].blocks("pipe-write", "pipe:[7]", *peers, peers_known=known)
    for number in range(threads):
        shown = PythonThread(901 + number, "reader", REWARD)
        build.rank(1).threads.append((shown, Thread(901 + number, "python", "S", "wait_woken")))
    candidate = only(child_processes, build)
    assert (candidate.liveness, candidate.fixes[0].text.startswith(advised)) == (liveness, True)


def test_of_several_programs_the_one_that_may_not_run_is_meant() -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, COMMUNICATES)
    for pid in (300, 301):
        build.child(1, "reward", pid=pid)
    for pid in (302, 303):
        build.child(1, "reward", pid=pid, parent=300)
    build.processes[303].state = "T"
    label = only(child_processes, build)
    assert (label.node, label.liveness) == (ProcessNode(303), "unseen")
    build.processes[301].state = "T"
    label = only(child_processes, build)
    assert (label.node, label.liveness) == (ProcessNode(301), "never-wakes")
    assert "forever" in label.reason


@pytest.mark.parametrize(
    ("name", "state", "code", "counts"),
    [
        ("reward", "S", None, True),
        ("resource_tracker", "S", None, False),
        ("reward", "Z", 0, False),
        ("reward", "Z", 256, True),
    ],
)
def test_neither_a_tracker_nor_who_has_ended_in_order_is_waited_for(
    name: str, state: str, code: int | None, counts: bool
) -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, COMMUNICATES)
    child = build.child(1, "reward", pid=300)
    child.member = replace(child.member, name=name)
    child.state, child.exit_code = state, code
    assert [label.node for label in proposed(child_processes, build)] == [ProcessNode(300)] * counts


def test_a_child_that_was_not_there_when_the_job_was_found_has_just_been_started() -> None:
    build = runs()
    build.rank(1).blocked.clear()
    build.rank(1).blocks("child", "", 999)
    assert only(child_processes, build).liveness == "computing"
    build.rank(1).blocked.clear()
    build.rank(1).stack = COMMUNICATES
    build.rank(1).blocks("pipe-read", "pipe:[7]", 999)
    assert only(child_processes, build).liveness == "unseen"


# A process beside a rank that waits for nobody who can be seen.


@pytest.mark.parametrize(
    ("how", "kind", "liveness"),
    [
        ("stopped", None, "unseen"),
        ("stopped", "socket-receive", "never-wakes"),
        ("frozen", None, "unseen"),
        ("asleep", None, None),
        ("dead", None, None),
    ],
)
def test_a_process_that_may_not_run_beside_a_rank_that_waits(
    how: str, kind: str | None, liveness: str | None
) -> None:
    build = EvidenceBuilder()
    rank = build.elsewhere(1, REWARD)
    if kind is not None:
        rank.blocks(kind)
    child = build.child(1, "helper", pid=300)
    child.state = {"stopped": "T", "dead": "Z"}.get(how, "S")
    frozen = Limits(300, frozen=how == "frozen")
    child.limits = (frozen, frozen)
    labels = proposed(child_processes, build)
    assert [label.liveness for label in labels] == ([] if liveness is None else [liveness])
    resumed = [line for label in labels for line in label.confirm if "kill -CONT 300 " in line]
    assert len(resumed) == (how == "stopped")


# Pools, and children that do not come to their own program.
