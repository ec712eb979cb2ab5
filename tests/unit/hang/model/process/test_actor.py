"""What is read off one process: its name, its phase, whether it waits, and for what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.model import scene
from grpo_doctor.hang.model.matching import Matching, Wait
from grpo_doctor.hang.model.matching.model import Group, Standing, Why
from grpo_doctor.hang.model.nodes import Node, ProcessNode, RankNode
from grpo_doctor.hang.model.process.actor import Actor, actor_of
from grpo_doctor.hang.model.process.call_stack import Place
from grpo_doctor.hang.model.process.observations import index
from grpo_doctor_probes.evidence import (
    Blocked,
    Evidence,
    Frame,
    Limits,
    OpenSpanSeen,
    Position,
    PythonThread,
    Role,
    Thread,
)
from tests.evidence import FIRST_NS, TORCH, EvidenceBuilder, Process, collective, frames
from tests.verdicts import REWARD, UPDATE

PYTHON = "/usr/lib/python3.11"
PID, OTHER = 101, 901
QUEUE = (*frames(f"get {PYTHON}/queue.py:171"), *UPDATE)
LOOP = (
    *frames(f"select {PYTHON}/selectors.py:468", f"run {PYTHON}/asyncio/runners.py:190"),
    *UPDATE,
)
JOIN = (*frames(f"join {PYTHON}/threading.py:1119"), *UPDATE)
IN_POOL = frames(f"_worker {PYTHON}/concurrent/futures/thread.py:83")


def subject(stack: tuple[Frame, ...] = UPDATE, **more: Any) -> tuple[EvidenceBuilder, Process]:
    """Rank 1 of two, of which nothing was recorded."""
    build = EvidenceBuilder(ranks=2, recorded=False)
    process = build.elsewhere(1, stack)
    for name, value in more.items():
        setattr(process, name, value)
    return build, process


def thread(process: Process, tid: int, stack: tuple[Frame, ...], name: str = "worker") -> None:
    row = Thread(tid, name, "S", "futex_do_wait", last_ran_ns=1)
    process.threads.append((PythonThread(tid, name, stack), row))


def actor(build: EvidenceBuilder, **more: Any) -> Actor:
    return of(replace(build.build(), **more))


def of(evidence: Evidence) -> Actor:
    return scene.build(evidence).by_pid[PID]


@pytest.mark.parametrize(
    ("role", "rank", "node"),
    [
        ("rank", 1, RankNode(1)),
        ("rank", None, ProcessNode(PID)),
        ("helper", 1, ProcessNode(PID)),
        ("ray", None, ProcessNode(PID)),
    ],
)
def test_a_rank_is_known_by_its_number_and_all_others_by_their_process(
    role: Role, rank: int | None, node: Node
) -> None:
    build, process = subject()
    process.member = replace(process.member, role=role, rank=rank)
    assert actor(build).node == node


@pytest.mark.parametrize("how", ["not seen", "without threads", "seen"])
def test_the_main_thread_is_there_where_the_last_look_has_it(how: str) -> None:
    build, _ = subject()
    evidence = build.build()
    rows = tuple(
        replace(process, threads=()) if how == "without threads" and process.pid == PID else process
        for process in evidence.looks[1].processes
        if how != "not seen" or process.pid != PID
    )
    main = of(
        replace(evidence, looks=(evidence.looks[0], replace(evidence.looks[1], processes=rows)))
    ).main
    assert (main.tid if main is not None else None) == (PID if how == "seen" else None)


def span(name: str, age_s: float, *, collective: bool = False) -> OpenSpanSeen:
    return OpenSpanSeen(PID, 1, name, age_s, collective)


@pytest.mark.parametrize(
    ("spans", "phase"),
    [
        ((), "reward"),
        ((span("rollout", 5.0),), "rollout"),
        ((span("rollout", 5.0), span("sync", 2.0)), "sync"),  # the innermost
        ((span("sync", 2.0), span("rollout", 5.0)), "sync"),
        ((span("rollout", 5.0), span("my own", 2.0)), "rollout"),
        ((span("rollout", 5.0), span("sync", 2.0, collective=True)), "rollout"),
        ((span("sync", 2.0, collective=True),), "reward"),
        ((span("my own", 2.0),), "reward"),
    ],
)
def test_the_phase_is_that_of_its_innermost_span_or_of_its_stack(
    spans: tuple[OpenSpanSeen, ...], phase: str
) -> None:
    assert actor(subject(REWARD)[0], spans=spans).phase == phase


@pytest.mark.parametrize(
    ("main", "beside", "phase"),
    [(JOIN, REWARD, "reward"), (JOIN, UPDATE, None), (REWARD, UPDATE, "reward")],
)
def test_or_that_of_the_thread_that_it_waits_for(
    main: tuple[Frame, ...], beside: tuple[Frame, ...], phase: str | None
) -> None:
    build, process = subject(main)
    thread(process, OTHER, beside)
    assert actor(build).phase == phase


@pytest.mark.parametrize(
    ("throttled_ns", "share"), [((500, 500), 0.0), ((10**9, 16 * 10**8), 0.5), ((10**9,), 0.0)]
)
def test_how_long_its_quota_held_it_back(throttled_ns: tuple[int, ...], share: float) -> None:
    build, _ = subject()
    limits = tuple((Limits(PID, throttled_ns=each),) for each in throttled_ns)
    assert actor(build, limits=limits).throttled_share == pytest.approx(share)


def test_over_no_time_no_quota_holds_back() -> None:
    build, _ = subject()
    evidence = build.build()
    first = tuple(process for process in evidence.looks[0].processes if process.pid != PID)
    looks = (replace(evidence.looks[0], processes=first), evidence.looks[1])
    limits = ((Limits(PID),), (Limits(PID, throttled_ns=10**9),))
    assert of(replace(evidence, looks=looks, limits=limits)).throttled_share == 0.0


# Whether it waits for other ranks.


@pytest.mark.parametrize(
    ("stack", "state", "spans", "waits"),
    [
        (collective("barrier"), "S", (), True),
        (collective("recv"), "S", (), True),
        (collective("barrier"), "T", (), False),
        (UPDATE, "S", (), False),
        ((), "S", (span("all_reduce", 1.0, collective=True),), True),
        (UPDATE, "S", (span("all_reduce", 1.0, collective=True),), False),  # its stack tells more
        ((), "S", (span("rollout", 1.0),), False),
        ((), "S", (), False),
    ],
)
def test_who_needs_other_ranks_to_get_on(
    stack: tuple[Frame, ...], state: str, spans: tuple[OpenSpanSeen, ...], waits: bool
) -> None:
    build, _ = subject(stack, state=state)
    assert actor(build, spans=spans).waits is waits


@pytest.mark.parametrize(
    ("beside", "works", "waits"),
    [
        (collective("barrier"), False, True),
        (collective("barrier"), True, False),  # its main thread gets on
        (REWARD, False, False),
    ],
)
def test_who_waits_for_a_thread_of_its_own_needs_whom_that_needs(
    beside: tuple[Frame, ...], works: bool, waits: bool
) -> None:
    build, process = subject(LOOP)
    thread(process, OTHER, (*beside, *IN_POOL))
    if works:
        process.works(LOOP)
    assert actor(build).waits is waits


STORE = "10.0.0.1:5 -> 10.0.0.1:29500"


@pytest.mark.parametrize(
    ("address", "row", "at_store"),
    [
        ("node0:29500", Blocked(PID, PID, "socket-receive", target=STORE), True),
        ("node0:29500", Blocked(PID, PID, "poll", target=STORE), True),
        ("node0:29500", Blocked(PID, PID, "socket-send", target=STORE), False),
        ("node0:29501", Blocked(PID, PID, "socket-receive", target=STORE), False),
        ("node0:9500", Blocked(PID, PID, "socket-receive", target=STORE), False),
        ("", Blocked(PID, PID, "socket-receive", target="10.0.0.1:"), False),
        ("node0:29500", Blocked(PID, OTHER, "socket-receive", target=STORE), False),
    ],
)
def test_who_asks_the_store_of_the_rendezvous(address: str, row: Blocked, at_store: bool) -> None:
    evidence = subject()[0].build()
    observed = of(replace(evidence, job=replace(evidence.job, address=address), blocked=(row,)))
    assert (observed.at_store, observed.waits) == (at_store, at_store)


WORLD = Group("0", "0", "default_pg", "gloo", (0, 1))
BACKWARD = frames("backward /x/site-packages/torch/autograd/graph.py:820", "step /home/me/t.py:9")


def wait(rank: int, why: Why) -> Wait:
    return Wait(rank, "0", 7, "all_reduce", (0,), why)


@pytest.mark.parametrize(
    ("waits", "missing", "stack", "how", "outstanding"),
    [
        ((wait(1, "missing"),), (), UPDATE, "still", True),
        ((wait(1, "queued"),), (), UPDATE, "busy", True),
        ((wait(1, "joined"),), (), UPDATE, "still", False),
        ((wait(0, "missing"),), (), UPDATE, "still", False),
        ((), (), UPDATE, "still", False),
        # It has missed one itself: it waits only if it stands in torch's own code.
        ((wait(1, "missing"),), (1,), UPDATE, "still", False),
        ((wait(1, "missing"),), (0,), UPDATE, "still", True),
        ((wait(1, "missing"),), (1,), BACKWARD, "still", True),
        ((wait(1, "missing"),), (1,), BACKWARD, "polling", True),
        ((wait(1, "missing"),), (1,), BACKWARD, "busy", False),
    ],
)
@pytest.mark.parametrize(
    ("role", "rank", "is_rank"), [("rank", 1, True), ("helper", 1, False), ("rank", None, False)]
)
def test_who_has_joined_a_collective_that_is_not_done(
    role: Role,
    rank: int | None,
    is_rank: bool,
    waits: tuple[Wait, ...],
    missing: tuple[int, ...],
    stack: tuple[Frame, ...],
    how: str,
    outstanding: bool,
) -> None:
    build, process = subject(stack)
    if how == "busy":
        process.works(stack, moves=False)
    elif how == "polling":
        process.wakes = 6
    member = replace(process.member, role=role, rank=rank)
    standing = Standing(WORLD, "missing", missing=missing)
    matching = Matching(waits=waits, standings=(standing,))
    observed = actor_of(index(build.build())[PID], member, matching, "", {})
    assert observed.outstanding is (outstanding and is_rank)


# Whether it waits for its GPU.

CUDA, PYTHON_CODE = "libcuda.so.1", "libpython3.11.so.1.0"


def position(library: str, tid: int = PID) -> Position:
    return Position(PID, tid, FIRST_NS, library, library)


@pytest.mark.parametrize(
    ("share", "nccl", "positions", "spins"),
    [
        (0.9, True, (), True),
        (0.9, False, (), False),
        (0.0, True, (), False),
        (0.9, True, (position(PYTHON_CODE),), False),  # it was seen to compute
        (0.9, True, (position(PYTHON_CODE, OTHER),), True),
        (0.9, True, (position(CUDA),), True),
        (0.9, False, (position(CUDA),), True),
    ],
)
def test_who_burns_a_core_beside_threads_of_nccl_may_wait_for_its_gpu(
    share: float, nccl: bool, positions: tuple[Position, ...], spins: bool
) -> None:
    build, process = subject(REWARD, cpu_share=share)
    thread(process, OTHER, (), "pt_nccl_watchdg" if nccl else "python")
    build.elsewhere(0, REWARD)  # nobody waits for it
    assert actor(build, positions=positions).spins is spins


def test_who_was_not_seen_does_not_spin() -> None:
    build, _ = subject()
    evidence = build.build()
    rows = tuple(process for process in evidence.looks[1].processes if process.pid != PID)
    assert not of(
        replace(evidence, looks=(evidence.looks[0], replace(evidence.looks[1], processes=rows)))
    ).spins


@pytest.mark.parametrize(
    ("target", "wakes", "share", "tid", "device_wait"),
    [
        ("/dev/nvidia0", 0, 0.0, PID, True),
        ("/dev/nvidia0", 6, 0.0, PID, True),
        ("/dev/nvidia0", 0, 0.9, PID, False),
        ("/dev/nvidia0", 0, 0.0, OTHER, False),
        ("/data/rows", 0, 0.0, PID, False),
    ],
)
def test_who_sleeps_in_the_driver_waits_for_its_device(
    target: str, wakes: int, share: float, tid: int, device_wait: bool
) -> None:
    build, process = subject(REWARD, wakes=wakes, cpu_share=share)
    process.blocks("file", target, tid=tid)
    assert actor(build).device_wait is device_wait


# Which thread decides, and what that is blocked on.


@pytest.mark.parametrize(
    ("stack", "beside", "carriers"),
    [
        (QUEUE, (*REWARD, *IN_POOL), {PID, OTHER}),
        (LOOP, (*REWARD, *IN_POOL), {PID, OTHER}),
        (QUEUE, REWARD, {PID, OTHER}),  # the only one in user code
        (UPDATE, (*REWARD, *IN_POOL), {PID}),
        (LOOP, REWARD, {PID}),
    ],
)
def test_whose_threads_may_end_its_wait(
    stack: tuple[Frame, ...], beside: tuple[Frame, ...], carriers: set[int]
) -> None:
    build, process = subject(stack)
    thread(process, OTHER, beside)
    assert actor(build).carriers == carriers


def test_of_a_pool_any_thread_at_work_may_end_it() -> None:
    build, process = subject(LOOP)
    for tid in (OTHER, OTHER + 1):
        thread(process, tid, (*REWARD, *IN_POOL))
    thread(process, OTHER + 2, IN_POOL)
    assert actor(build).carriers == {PID, OTHER, OTHER + 1}


def row(kind: Any, *peers: int, tid: int = PID, **more: Any) -> Blocked:
    return Blocked(PID, tid, kind, peers=peers, **more)


UNREAD = row("socket-receive", 4711, tid=OTHER, peer_unread_bytes=9)


@pytest.mark.parametrize(
    ("rows", "hold"),
    [
        ((), None),
        ((row("pipe-read"),), row("pipe-read")),
        ((row("pipe-read", tid=OTHER),), None),
        ((row("pipe-read"), row("futex")), row("pipe-read")),
        # One long sleep tries no lock.
        ((row("file-lock"), row("sleep")), row("sleep")),
        # A connection on which something was sent that is not read.
        ((row("futex"), UNREAD), UNREAD),
        ((row("poll"), UNREAD), UNREAD),
        ((UNREAD,), UNREAD),
        ((row("poll", 300), UNREAD), row("poll", 300)),
        ((row("pipe-read"), UNREAD), row("pipe-read")),
        ((row("futex"), UNREAD, replace(UNREAD, fd=5)), row("futex")),  # which of the two?
        ((row("futex"), replace(UNREAD, peers=())), row("futex")),
        ((row("futex"), replace(UNREAD, kind="pipe-read")), row("futex")),
        ((row("futex"), replace(UNREAD, peer_unread_bytes=0)), row("futex")),
        ((row("futex"), replace(UNREAD, kind="socket-send")), replace(UNREAD, kind="socket-send")),
    ],
)
def test_what_it_is_blocked_on(rows: tuple[Blocked, ...], hold: Blocked | None) -> None:
    assert actor(subject()[0], blocked=rows).hold == hold


def test_who_polls_for_a_lock_between_two_sleeps_waits_for_the_lock() -> None:
    build, _ = subject(wakes=6)
    assert actor(build, blocked=(row("file-lock"), row("sleep"))).hold == row("file-lock")


@pytest.mark.parametrize(
    ("stack", "rows", "hold"),
    [
        (LOOP, (row("socket-receive", PID), row("pipe-read")), row("pipe-read")),
        (LOOP, (row("socket-receive", PID),), None),
        (LOOP, (row("socket-receive", PID, 300),), row("socket-receive", PID, 300)),
        (UPDATE, (row("socket-receive", PID),), row("socket-receive", PID)),
    ],
)
def test_the_socket_that_wakes_its_own_event_loop_is_no_wait(
    stack: tuple[Frame, ...], rows: tuple[Blocked, ...], hold: Blocked | None
) -> None:
    assert actor(subject(stack)[0], blocked=rows).hold == hold


def test_the_thread_that_it_waits_for_tells_by_what_that_is_blocked_on() -> None:
    build, process = subject(QUEUE)
    thread(process, OTHER, REWARD)
    of_thread, of_main = row("pipe-read", tid=OTHER), row("futex")
    observed = actor(build, blocked=(of_main, of_thread))
    assert (observed.tid, observed.deed.user, observed.hold) == (OTHER, REWARD[0], of_thread)
    assert observed.doer is not None
    assert observed.doer.tid == OTHER
    assert actor(build, blocked=(of_main,)).hold == of_main


@pytest.mark.parametrize(
    ("stack", "blocked", "limit", "in_c"),
    [
        (UPDATE, "futex", 0x7FFE, True),
        (UPDATE, "futex", 0, False),  # a plain lock
        (UPDATE, "pipe-read", 0x7FFE, False),
        (QUEUE, "futex", 0x7FFE, False),
        (frames(f"inner {PYTHON}/json/decoder.py:3", "main /x/t.py:9"), "futex", 0x7FFE, False),
        ((), "futex", 0x7FFE, False),
    ],
)
def test_who_sleeps_in_a_c_call_under_its_own_line(
    stack: tuple[Frame, ...], blocked: Any, limit: int, in_c: bool
) -> None:
    build, process = subject(stack)
    process.blocks(blocked)
    evidence = build.build()
    last = evidence.looks[1]
    rows = tuple(
        replace(process, threads=(replace(process.threads[0], arguments=(1, 393, 0, limit)),))
        if process.pid == PID
        else process
        for process in last.processes
    )
    observed = of(replace(evidence, looks=(evidence.looks[0], replace(last, processes=rows))))
    assert observed.waits_in_c is in_c


def test_the_main_thread_is_known_by_its_number_wherever_it_stands_in_a_stack() -> None:
    build, process = subject()
    thread(process, OTHER, REWARD)
    evidence = build.build()
    turned = tuple(
        replace(stack, threads=tuple(reversed(stack.threads))) if stack.pid == PID else stack
        for stack in evidence.stacks[1]
    )
    observed = of(replace(evidence, stacks=(evidence.stacks[0], turned)))
    assert (observed.tid, observed.place.user) == (PID, UPDATE[0])
    only = tuple(
        replace(stack, threads=stack.threads[1:]) if stack.pid == PID else stack
        for stack in evidence.stacks[1]
    )
    assert of(replace(evidence, stacks=(evidence.stacks[0], only))).place.user == REWARD[0]


def test_a_process_without_a_stack_is_its_main_thread_and_stands_nowhere() -> None:
    build, _ = subject()
    evidence = build.build()
    none = tuple(
        replace(stack, threads=()) if stack.pid == PID else stack for stack in evidence.stacks[1]
    )
    observed = of(replace(evidence, stacks=(none, none)))
    assert (observed.tid, observed.place, observed.deed) == (PID, Place(), Place())


def test_in_a_source_checkout_of_torch_its_calls_are_known_too() -> None:
    build, _ = subject(frames("all_reduce /src/torch/distributed/c10d.py:3", "main /x/t.py:9"))
    assert actor(build).place.call == "collective"
    build, _ = subject(frames(f"barrier {TORCH}/c10d.py:3"))
    assert actor(build).place.call == "collective"
