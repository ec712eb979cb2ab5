"""Ray's titles and frames: who is an actor, what it is called for, and which thread does it."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.model.process.ray_code import (
    asks,
    carrier,
    carries,
    in_loop,
    is_actor,
    serves,
    task_of,
    title_of,
)
from grpo_doctor_probes.evidence import Member, PythonThread, Role
from tests.evidence import frames

PYTHON = "/opt/venv/lib/python3.11"
SITE = f"{PYTHON}/site-packages"
WORKER = f"{SITE}/ray/_private/worker.py"
STARTED = f"<module> {SITE}/ray/_private/workers/default_worker.py:322"
LOOP = frames(f"Worker.main_loop {WORKER}:1069", STARTED)
GETS = (f"Worker.get_objects {WORKER}:1007", f"get {WORKER}:3009")
OWN = "score /home/me/rewards.py:8"
THREAD = f"Thread.run {PYTHON}/threading.py:982"
POOL = (f"_worker {PYTHON}/concurrent/futures/thread.py:83", THREAD)
TURN = f"BaseEventLoop._run_once {PYTHON}/asyncio/base_events.py:1884"
FOR_EVER = f"BaseEventLoop.run_forever {PYTHON}/asyncio/base_events.py:607"
SELECT = f"EpollSelector.select {PYTHON}/selectors.py:468"
TRACED = f"_resume_span {SITE}/ray/util/tracing/tracing_helper.py:487"


def member(command: str, role: Role = "ray") -> Member:
    return Member(60, 1, 5, role, command[:15], command)


def thread(*lines: str, tid: int = 7) -> PythonThread:
    return PythonThread(tid, "", frames(*lines))


@pytest.mark.parametrize(
    ("command", "proc", "title", "its_own"),
    [
        ("ray::Worker.update", True, "Worker.update", False),
        ("ray::Worker.update()", True, "Worker.update", False),
        ("ray::Worker", True, "Worker", False),
        ("ray::IDLE", True, "IDLE", True),
        ("ray::IDLE_SpillWorker", False, "", True),
        ("ray::DashboardAgent", False, "", True),
        ("ray::RuntimeEnvAgent", False, "", True),
        ("python train.py", False, "", False),
        ("/opt/ray/core/src/ray/raylet/raylet --port 3", False, "", True),
        (f"python {SITE}/ray/dashboard/agent.py", False, "", True),
        (f"python {SITE}/ray/autoscaler/monitor.py", False, "", True),
    ],
)
def test_who_is_an_actor_and_who_serves_ray_itself(
    command: str, proc: bool, title: str, its_own: bool
) -> None:
    process = member(command)
    assert (is_actor(process), title_of(process), serves(process)) == (proc, title, its_own)


@pytest.mark.parametrize(
    ("lines", "loop", "asking"),
    [
        ((), False, False),
        ((f"Worker.main_loop {WORKER}:1069", STARTED), True, False),
        ((f"main_loop {WORKER}:1069",), True, False),
        ((f"main_loop {SITE}/other/worker.py:1069",), False, False),
        ((OWN, f"Worker.main_loop {WORKER}:1069"), False, False),
        ((*GETS, OWN), False, True),
        ((f"wait {WORKER}:3009", OWN), False, True),
        ((f"wait {PYTHON}/threading.py:3", f"get {WORKER}:3009", OWN), False, True),
        ((OWN, *GETS), False, False),  # its own code is what stands
        ((f"put {WORKER}:3009", OWN), False, False),
        ((f"get {SITE}/mine/worker.py:9", OWN), False, False),
    ],
)
def test_who_waits_for_its_next_task_and_who_for_an_answer(
    lines: tuple[str, ...], loop: bool, asking: bool
) -> None:
    stack = frames(*lines)
    assert (in_loop(stack), asks(stack)) == (loop, asking)


@pytest.mark.parametrize(
    ("lines", "at_work"),
    [
        ((), False),
        ((SELECT, TURN, FOR_EVER, THREAD), False),
        ((OWN, TRACED, THREAD), False),  # a thread of its own, which Ray traces as well
        ((OWN, TRACED), True),
        ((OWN,), False),
        ((OWN, THREAD), False),  # a thread that the user has started
        ((OWN, f"run {SITE}/ray/util/actor_pool.py:9"), True),
        ((TRACED, THREAD), False),
        ((OWN, *POOL), True),
        ((f"poll {SITE}/redis/client.py:9", *POOL), False),  # a library's own pool
        ((f"poll {SITE}/redis/client.py:9", OWN, *POOL), True),
        ((f"step {SITE}/verl/workers/actor.py:9", *POOL), True),
        ((f"wait {PYTHON}/threading.py:3", *POOL), False),
        ((OWN, TURN, FOR_EVER, THREAD), True),  # a coroutine that holds its loop up
        ((SELECT, OWN, TURN, FOR_EVER, THREAD), False),  # a loop that waits within
        ((OWN, FOR_EVER, THREAD), False),
        ((OWN, f"_run_once {PYTHON}/sched.py:9", THREAD), False),
    ],
)
def test_whether_a_thread_is_in_the_midst_of_a_task(lines: tuple[str, ...], at_work: bool) -> None:
    assert carries(thread(*lines)) is at_work


def test_another_thread_than_the_main_one_may_have_the_task() -> None:
    stacks = frames(OWN, *POOL), LOOP
    assert [task_of(member("ray::Worker"), stack) for stack in stacks] == ["Worker", ""]


MAIN = PythonThread(1, "MainThread", LOOP)
AT_USER = (OWN, *POOL)
AT_FRAMEWORK = (f"step {SITE}/verl/workers/actor.py:9", *POOL)
AT_LIBRARY = (f"step {SITE}/mine/actor.py:9", f"f {SITE}/ray/x.py:1")


@pytest.mark.parametrize(
    ("others", "tid"),
    [
        ((), 1),
        ((thread(SELECT, TURN, tid=5),), 1),
        ((thread(*AT_USER, tid=5),), 5),
        ((thread(*AT_USER, tid=6), thread(*AT_USER, tid=5)), 5),
        ((thread(*AT_FRAMEWORK, tid=4), thread(*AT_USER, tid=5)), 5),
        ((thread(*AT_LIBRARY, tid=3), thread(*AT_FRAMEWORK, tid=4)), 4),
        ((thread(*AT_LIBRARY, tid=3),), 3),
        ((thread("<listcomp> <string>:3", *AT_LIBRARY, tid=3), thread(*AT_FRAMEWORK, tid=4)), 4),
    ],
)
def test_which_thread_does_the_task_of_an_actor_whose_main_one_waits_for_the_next(
    others: tuple[PythonThread, ...], tid: int
) -> None:
    worker = carrier((MAIN, *others), MAIN)
    assert worker is not None
    assert worker.tid == tid
