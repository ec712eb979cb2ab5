"""Which threads may end a wait: those that serve, those with a timer, those that a signal wakes."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.view import Process
from grpo_doctor.hang.model.waiting.wakeups import has_timer, only_accepts, only_by_signals, serving
from grpo_doctor_probes.evidence import Frame, PythonThread, Thread
from tests.evidence import BETWEEN_S, FIRST_NS, SECOND, EvidenceBuilder, frames, with_look

PYTHON = "/usr/lib/python3.11"
PID = 300
ACCEPTS = frames(f"accept {PYTHON}/socket.py:293", "main /home/me/judge.py:60")
SELECTS = frames(
    f"_PollLikeSelector.select {PYTHON}/selectors.py:415",
    f"BaseServer.serve_forever {PYTHON}/socketserver.py:233",
    "serve /home/me/front.py:159",
)
MANAGES = frames(
    f"Condition.wait {PYTHON}/threading.py:331",
    f"Event.wait {PYTHON}/threading.py:629",
    f"Server.serve_forever {PYTHON}/multiprocessing/managers.py:176",
)
HANDLES = frames("answer /home/me/judge.py:22", "handle /home/me/judge.py:40")


@pytest.mark.parametrize(
    ("stack", "accepting"),
    [
        ((), False),
        (ACCEPTS, True),
        (SELECTS, True),
        (MANAGES, True),
        (frames(f"accepter {PYTHON}/multiprocessing/managers.py:190"), True),
        (HANDLES, False),
        (frames("accept /home/me/socket.py:3", "main t.py:9"), True),
        (frames("accept /home/me/judge.py:3", "main t.py:9"), False),
        (frames(f"recv {PYTHON}/socket.py:3", "main t.py:9"), False),
        (frames(f"select {PYTHON}/selectors.py:3", "main t.py:9"), False),
        (frames(f"select {PYTHON}/selectors.py:3"), False),
        ((*HANDLES, *SELECTS), False),  # it handles a request itself
        (frames("serve_forever /home/me/front.py:3"), False),
        (frames(f"handle_request {PYTHON}/socketserver.py:3"), False),
    ],
)
def test_a_thread_that_waits_for_connections(stack: tuple[Frame, ...], accepting: bool) -> None:
    assert only_accepts(PythonThread(1, "t", stack)) is accepting


def process(main: tuple[Frame, ...], *others: tuple[str, tuple[Frame, ...]]) -> Process:
    """A helper whose threads, from 901 on, are called so and stand there."""
    build = EvidenceBuilder()
    helper = build.child(1, "helper", pid=PID)
    helper.stack = main
    for number, (name, stack) in enumerate(others):
        tid = 901 + number
        helper.threads.append((PythonThread(tid, name, stack), Thread(tid, name, "S")))
    return view.build(build.build()).by_pid[PID]


@pytest.mark.parametrize(
    ("main", "others", "threads"),
    [
        (ACCEPTS, (("handler", HANDLES),), {901}),
        (ACCEPTS, (("handler", HANDLES), ("accepter", ACCEPTS)), {901}),
        (ACCEPTS, (("handler", HANDLES), ("native", ())), {901, 902}),
        (HANDLES, (("accepter", ACCEPTS),), {PID}),
        # Where no thread is seen to serve, or none to accept, it may be any.
        (ACCEPTS, (), None),
        (ACCEPTS, (("native", ()),), None),
        (ACCEPTS, (("heartbeat", HANDLES),), None),
        (HANDLES, (("handler", HANDLES),), None),
    ],
)
def test_the_threads_of_a_server_that_may_answer(
    main: tuple[Frame, ...],
    others: tuple[tuple[str, tuple[Frame, ...]], ...],
    threads: set[int] | None,
) -> None:
    assert serving(process(main, *others)) == threads


# Threads that a time wakes.

NEVER = (2**32 - 1, 2**64 - 1)


def sleeping(
    wchan: str,
    arguments: tuple[int, ...] = (),
    *,
    stack: tuple[Frame, ...] = HANDLES,
    name: str = "handler",
    shown: bool = True,
) -> Process:
    """A process with one thread that sleeps there, beside a main one that waits for bytes."""
    build = EvidenceBuilder()
    helper = build.child(1, "helper", pid=PID)
    helper.stack, helper.wchan = HANDLES, "wait_woken"
    sleeper = Thread(901 if shown else 902, name, "S", wchan, arguments=arguments, last_ran_ns=1)
    helper.threads = [(PythonThread(901, name, stack), sleeper)]
    return view.build(build.build()).by_pid[PID]


@pytest.mark.parametrize(
    ("wchan", "arguments", "timer"),
    [
        ("hrtimer_nanosleep", (), True),
        ("wait_woken", (), False),
        ("futex_do_wait", (), True),  # nobody may read whether it ends by itself
        ("futex_do_wait", (1, 393, 0, 0), False),
        ("futex_do_wait", (1, 393, 0, 0x7FFE), True),
        ("futex_do_wait", (1, 393, 0), False),
        ("do_epoll_wait", (3, 0, 1, 1000), True),
        ("do_epoll_wait", (3, 0, 1, NEVER[0]), False),
        ("ep_poll", (3, 0, 1, NEVER[1]), False),
        ("ep_poll", (3, 0, 1), True),
        ("poll_schedule_timeout", (3, 0, 1000), True),
        ("poll_schedule_timeout", (3, 0, NEVER[0]), False),
        ("poll_schedule_timeout", (3, 0, 0), False),
        ("poll_schedule_timeout", (3, 0), True),
    ],
)
def test_a_sleep_that_ends_at_a_time(wchan: str, arguments: tuple[int, ...], timer: bool) -> None:
    assert has_timer(sleeping(wchan, arguments)) is timer


@pytest.mark.parametrize(
    ("stack", "name", "shown", "timer"),
    [
        (HANDLES, "handler", True, True),
        (HANDLES, "heartbeat", True, False),
        (SELECTS, "accepter", True, False),
        ((), "native", True, False),
        (HANDLES, "handler", False, False),  # the kernel does not show it
    ],
)
def test_timers_of_libraries_and_of_a_server_s_loop_are_none(
    stack: tuple[Frame, ...], name: str, shown: bool, timer: bool
) -> None:
    sleeper = sleeping("hrtimer_nanosleep", stack=stack, name=name, shown=shown)
    assert has_timer(sleeper) is timer


# Processes that nothing from outside wakes but a signal.

LAST_NS = FIRST_NS + int(BETWEEN_S * SECOND)
OWN, SHARED = 128 | 265, 265


def asleep(
    *threads: tuple[str, tuple[int, ...]], ran_s: float = 10.0, state: str = "S", wakes: int = 0
) -> bool:
    """Whether only a signal wakes a process with these threads; the last ran so long ago."""
    build = EvidenceBuilder()
    helper = build.child(1, "helper", pid=PID)
    helper.wchan, helper.still_s, helper.wakes = "__do_sys_pause", 10.0, wakes
    for number, (wchan, arguments) in enumerate(threads):
        ran_ns = LAST_NS - int(ran_s * SECOND)
        sleeper = Thread(901 + number, "t", state, wchan, arguments=arguments, last_ran_ns=ran_ns)
        helper.threads.append((PythonThread(901 + number, "t", ()), sleeper))
    return only_by_signals(view.build(build.build()).by_pid[PID])


@pytest.mark.parametrize(
    ("wchan", "arguments", "signals"),
    [
        ("__do_sys_pause", (), True),
        ("sigsuspend", (), True),
        ("futex_do_wait", (1, OWN, 0, 0), True),
        ("futex_do_wait", (1, SHARED, 0, 0), False),  # another process may wake it
        ("futex_do_wait", (1, OWN, 0, 0x7FFE), False),
        ("futex_do_wait", (1,), False),
        ("futex_do_wait", (), False),
        ("wait_woken", (1, OWN, 0, 0), False),
        ("hrtimer_nanosleep", (), False),
    ],
)
def test_a_sleep_that_only_its_own_process_or_a_signal_ends(
    wchan: str, arguments: tuple[int, ...], signals: bool
) -> None:
    assert asleep((wchan, arguments)) is signals


@pytest.mark.parametrize(
    ("ran_s", "state", "wakes", "signals"),
    [
        (10.0, "S", 0, True),
        (BETWEEN_S, "S", 0, True),
        (1.0, "S", 0, False),  # it ran between the looks
        (10.0, "D", 0, False),
        (10.0, "S", 6, False),
    ],
)
def test_who_ran_between_the_looks_is_woken_by_something(
    ran_s: float, state: str, wakes: int, signals: bool
) -> None:
    assert asleep(("sigsuspend", ()), ran_s=ran_s, state=state, wakes=wakes) is signals


def test_who_was_not_seen_or_shows_no_thread_may_be_woken_by_anything() -> None:
    build = EvidenceBuilder()
    helper = build.child(1, "helper", pid=PID)
    helper.wchan, helper.still_s = "__do_sys_pause", 10.0
    evidence = build.build()
    assert only_by_signals(view.build(evidence).by_pid[PID])
    for unseen in (with_look(evidence, 1, PID), with_look(evidence, 1, PID, threads=())):
        assert not only_by_signals(view.build(unseen).by_pid[PID])
