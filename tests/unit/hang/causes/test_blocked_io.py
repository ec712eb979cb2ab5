"""Pipes, sockets and sleeps: what does not come, and when that is unusual."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.connections import blocked_io
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor_probes.evidence import Await, Frame, PythonThread, Role, Thread
from tests.evidence import EvidenceBuilder, FakeProcess, frames
from tests.unit.hang.causes.proposed import only
from tests.verdicts import REWARD, UPDATE, expect


def test_who_writes_to_a_pipe_whose_reader_is_stopped_goes_on_when_that_does() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.blocks("pipe-write", "pipe:[7]", 4711, fd=1, peers_known=True, stopped_peers=(4711,))
    diagnosis = diagnose(build.build())
    assert (diagnosis.verdict.state, diagnosis.verdict.culprits) == ("stuck", (1,))
    assert diagnosis.verdict.fixes[0].text.startswith("Resume it: kill -CONT 4711")
    assert diagnosis.verdict.confirm[0].startswith("kill -CONT 4711 ")
    assert diagnosis.verdict.can_go_on.startswith("Yes, as soon as pid 4711")


# What stands at the other end of a wait.

CONNECTION = "127.0.0.1:5 -> 127.0.0.1:8000"
ANSWERS = frames("answer /home/me/judge.py:22", "main /home/me/judge.py:40")
ACCEPTS = frames("accept /usr/lib/python3.11/socket.py:293", "main /home/me/judge.py:60")


def asked_server(**more: Any) -> tuple[EvidenceBuilder, FakeProcess]:
    """Rank 1 waits for the answer of a server of the job."""
    build = EvidenceBuilder()
    build.elsewhere(1, REWARD).blocks("socket-receive", CONNECTION, 300)
    server = build.child(1, more.pop("role", "server"), pid=300)
    server.stack = ANSWERS
    for name, value in more.items():
        setattr(server, name, value)
    return build, server


@pytest.mark.parametrize(
    ("threads", "does"),
    [
        ([ANSWERS], "makes no progress at judge.py:22, answer"),
        ([ANSWERS, ANSWERS], "makes no progress at judge.py:60, main (socket accept)"),
        ([], "makes no progress at judge.py:60, main (socket accept)"),
    ],
)
def test_what_a_server_does_is_what_its_only_thread_does_that_does_not_accept(
    threads: list[tuple[Frame, ...]], does: str
) -> None:
    build, server = asked_server(role="helper")
    server.stack = ACCEPTS
    server.blocks("socket-accept")
    for number, stack in enumerate(threads):
        shown = PythonThread(901 + number, "handler", stack)
        server.threads.append((shown, Thread(901 + number, "python", "S", "wait_woken")))
    assert only(blocked_io, build).reason.endswith(f"pid 300 (python helper.py), which {does}")


# Pipes.

MANAGED = (*frames("_recv /usr/lib/python3.11/multiprocessing/connection.py:395"), *REWARD)


def pipe(kind: str = "pipe-read", *peers: int, **more: Any) -> EvidenceBuilder:
    build = EvidenceBuilder()
    build.elsewhere(1, REWARD).blocks(kind, "pipe:[7]", *peers, **more)
    return build


@pytest.mark.parametrize(
    ("kind", "states", "strangers", "liveness"),
    [
        ("pipe-write", "SS", (), "never-wakes"),
        ("pipe-write", "ST", (), "never-wakes"),
        ("pipe-write", "SR", (), "computing"),
        ("pipe-write", "SS", (4711,), "unseen"),
        ("pipe-read", "SS", (), "unseen"),
        ("pipe-read", "ST", (), "unseen"),
        ("pipe-read", "TT", (), "never-wakes"),
        ("pipe-read", "TT", (4711,), "unseen"),
    ],
)
def test_a_pipe_never_moves_where_all_at_its_other_end_stand(
    kind: str, states: str, strangers: tuple[int, ...], liveness: str
) -> None:
    peers = tuple(range(300, 300 + len(states)))
    build = pipe(kind, *peers, *strangers, peers_known=True)
    for pid, state in zip(peers, states, strict=True):
        process = build.child(1, "helper", pid=pid)
        process.state, process.cpu_share = state, 0.9 if state == "R" else 0.0
    assert only(blocked_io, build).liveness == liveness


@pytest.mark.parametrize(("fd", "asks"), [(0, True), (5, False)])
def test_a_read_of_standard_input_is_a_question(fd: int, asks: bool) -> None:
    candidate = only(blocked_io, pipe("pipe-read", 4711, fd=fd))
    assert ("standard input" in candidate.reason) is asks
    assert candidate.fixes[0].text.startswith("Answer before" if asks else "Close unused pipe")


def test_a_queue_whose_worker_has_died_has_no_other_writer() -> None:
    build = pipe("pipe-read", 101, peers_known=True)
    build.child(1, "helper", pid=300).state = "Z"
    candidate = only(blocked_io, build)
    assert "that no process writes to" in candidate.reason
    assert candidate.reason.endswith("; its child pid 300 (python helper.py) is dead")
    assert (candidate.liveness, candidate.fixes) == ("never-wakes", advice("dead worker"))


# Sockets.


@pytest.mark.parametrize(
    ("stack", "target", "peer", "fixes", "confirm"),
    [
        (REWARD, CONNECTION, 101, "store key", "py-spy dump --native"),
        (REWARD, CONNECTION, 4711, "request", "ss -tnp"),
        (REWARD, "unix socket [7]", 101, "request", "ss -xp"),
        (MANAGED, "unix socket [7]", 4711, "wait", "ss -xp"),
    ],
)
def test_what_is_done_about_a_connection_depends_on_who_is_at_its_other_end(
    stack: tuple[Frame, ...], target: str, peer: int, fixes: str, confirm: str
) -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, stack).blocks("socket-receive", target, peer)
    candidate = only(blocked_io, build)
    assert candidate.fixes == advice(fixes)
    assert candidate.confirm[0].startswith(confirm)
    assert ("this process itself" in candidate.reason) is (peer == 101)


@pytest.mark.parametrize(
    ("role", "wchan", "state", "strangers", "liveness"),
    [
        ("server", "futex_do_wait", "S", (), "outside"),  # by a time that nobody may read
        ("server", "wait_woken", "S", (), "unseen"),
        ("helper", "futex_do_wait", "S", (), "unseen"),
        ("server", "wait_woken", "S", (4711,), "outside"),
        ("server", "wait_woken", "T", (), "never-wakes"),
    ],
)
def test_who_may_still_answer(
    role: Role, wchan: str, state: str, strangers: tuple[int, ...], liveness: str
) -> None:
    build, _ = asked_server(role=role, wchan=wchan, state=state)
    build.rank(1).blocked.clear()
    build.rank(1).blocks("socket-receive", CONNECTION, 300, *strangers)
    assert only(blocked_io, build).liveness == liveness


# Terminals, and waits that only the stack shows.


def line_of(call: str) -> tuple[Frame, ...]:
    return (*frames(call), *UPDATE)


SLEEPS = "sleep /usr/lib/python3.11/time.py:1"


@pytest.mark.parametrize(
    ("stack", "wchan", "blocks", "text", "liveness"),
    [
        (UPDATE, "hrtimer_nanosleep", None, "sleeps at", "unseen"),
        (UPDATE, "futex_do_wait", None, "makes no progress at", "unseen"),
        (line_of(SLEEPS), "", None, "sleeps at", "unseen"),
        (UPDATE, "", "sleep", "sleeps at", "unseen"),
        (UPDATE, "", "futex", "waits at", "unseen"),
        (UPDATE, "hrtimer_nanosleep", "poll", "waits in poll at", "unseen"),
        (line_of("get /usr/lib/python3.11/queue.py:171"), "", "poll", "waits on a queue", "unseen"),
    ],
)
def test_a_wait_by_its_stack(
    stack: tuple[Frame, ...], wchan: str, blocks: str | None, text: str, liveness: str
) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, stack)
    process.wchan = wchan
    if blocks is not None:
        process.blocks(blocks)
    label = only(blocked_io, build)
    assert label.reason.startswith(text)
    assert label.liveness == liveness


LOOP = frames(
    "select /usr/lib/python3.11/selectors.py:468",
    "_run_once /usr/lib/python3.11/asyncio/base_events.py:1898",
    "run_forever /usr/lib/python3.11/asyncio/base_events.py:607",
)


def in_coroutine(*, beside: bool) -> tuple[EvidenceBuilder, FakeProcess]:
    """A rank that waits for an event loop, in a thread of its own or in the main thread."""
    build = EvidenceBuilder()
    reward = frames("calculate_rewards /home/me/train.py:22", "main /home/me/train.py:28")
    result = frames("result /usr/lib/python3.11/concurrent/futures/_base.py:451")
    process = build.elsewhere(1, (*(result if beside else LOOP), *reward))
    if beside:
        task = Thread(901, "loop", "S", "do_epoll_wait", last_ran_ns=1)
        process.threads = [(PythonThread(901, "loop", LOOP), task)]
    process.blocks("futex")
    return build, process


@pytest.mark.parametrize("beside", [True, False])
def test_a_coroutine_is_not_called_a_pool(beside: bool) -> None:
    build, _ = in_coroutine(beside=beside)
    verdict = expect(build, "reward-blocked", 1).verdict
    assert "awaits a coroutine, and no stack shows its line, in reward" in verdict.summary
    assert "train.py:22" in verdict.summary
    assert "pool" not in verdict.summary
    assert "asyncio.wait_for" in verdict.fixes[0].text


def awaited(what: str, *lines: str, tid: int, fd: int = -1, count: int = 1) -> Await:
    return Await(101, tid, frames(*lines), what, fd, count)


ACQUIRE = "Semaphore.acquire /usr/lib/python3.11/asyncio/locks.py:387"
JUDGE = "judge /home/me/rewards.py:30"


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("asyncio.Semaphore", "awaits an asyncio.Semaphore"),
        ("asyncio.sleep", "sleeps in asyncio.sleep"),
        ("future", "awaits a future that is not set"),
        ("thread", "awaits a future of another thread"),
        ("connection", "awaits data on a connection"),
    ],
)
@pytest.mark.parametrize("beside", [True, False])
def test_what_was_read_of_a_coroutine_is_said_with_its_line(
    beside: bool, what: str, says: str
) -> None:
    build, process = in_coroutine(beside=beside)
    process.awaits = [awaited(what, ACQUIRE, JUDGE, tid=901 if beside else 101)]
    inside = what == "asyncio.Semaphore"
    expect(build, "reward-blocked", 1, state="stuck" if inside else "slow")
    build.waited_s = process.still_s = 70.0  # what comes from outside may take a minute
    diagnosis = expect(build, "reward-blocked", 1)
    assert f"{says} in reward (rewards.py:30, judge)" in diagnosis.verdict.summary
    assert ("Only if another coroutine" in diagnosis.verdict.can_go_on) is inside
    items = [item.text for item in diagnosis.verdict.evidence if item.source == "coroutine"]
    assert items == [f"{says}: locks.py:387, Semaphore.acquire < rewards.py:30, judge"]
    assert next(row for row in diagnosis.ranks if row.rank == 1).waiting_for in says


@pytest.mark.parametrize("beside", [True, False])
def test_of_several_connections_the_awaited_one_is_named(beside: bool) -> None:
    build, process = in_coroutine(beside=beside)
    tid = 901 if beside else 101
    for fd, port in ((5, 9005), (7, 9007), (9, 9009)):
        process.blocks("socket-receive", f"10.0.0.1:1 -> 10.0.0.7:{port}", fd=fd, tid=tid)
    process.awaits = [awaited("connection", JUDGE, tid=tid, fd=7)]
    summary = expect(build, "reward-blocked", 1, state="slow").verdict.summary
    assert (
        "waits for a response from 10.0.0.1:1 -> 10.0.0.7:9007 in reward (rewards.py:30" in summary
    )


def test_other_coroutines_are_counted() -> None:
    build, process = in_coroutine(beside=True)
    process.awaits = [
        awaited("asyncio.Queue", JUDGE, tid=901, count=5),
        awaited("asyncio.sleep", "idle /home/me/rewards.py:44", tid=901),
    ]
    verdict = expect(build, "reward-blocked", 1).verdict
    assert "awaits an asyncio.Queue in reward" in verdict.summary
    assert "; 5 more of its coroutines wait" in verdict.summary
    texts = [item.text for item in verdict.evidence if item.source == "coroutine"]
    assert texts == [
        "awaits an asyncio.Queue (5 coroutines): rewards.py:30, judge",
        "sleeps in asyncio.sleep: rewards.py:44, idle",
    ]
