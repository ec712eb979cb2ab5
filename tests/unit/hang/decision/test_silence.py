"""For how long nobody has been at it who could end a wait, behind a server's own clock."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from grpo_doctor.hang.causes.candidate import Candidate, Sink
from grpo_doctor.hang.decision.state import nobody_is_at_it, silence_s
from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor_probes.evidence import Blocked, Frame, PythonThread, Thread
from tests.evidence import (
    BETWEEN_S,
    FIRST_NS,
    SECOND,
    EvidenceBuilder,
    FakeProcess,
    collective,
    frames,
)
from tests.unit.hang.causes.proposed import case_of
from tests.verdicts import expect, verdict

PYTHON = "/usr/lib/python3.11"
ASKS = frames(
    f"SocketIO.readinto {PYTHON}/socket.py:706",
    f"HTTPConnection.getresponse {PYTHON}/http/client.py:1386",
    f"urlopen {PYTHON}/urllib/request.py:216",
    "post /home/me/client.py:34",
    "rollout /home/me/train.py:44",
)
ACCEPTS = frames(
    f"_PollLikeSelector.select {PYTHON}/selectors.py:415",
    f"BaseServer.serve_forever {PYTHON}/socketserver.py:233",
    "serve /home/me/front.py:159",
)
HANDLES = frames(
    f"Condition.wait {PYTHON}/threading.py:327",
    f"Event.wait {PYTHON}/threading.py:629",
    "Front.do_POST /home/me/front.py:59",
    f"BaseHTTPRequestHandler.handle {PYTHON}/http/server.py:436",
)
MANAGES = frames(
    f"Condition.wait {PYTHON}/threading.py:331",
    f"Event.wait {PYTHON}/threading.py:629",
    f"Server.serve_forever {PYTHON}/multiprocessing/managers.py:176",
    "use_cache /home/me/train.py:136",
)
SERVES = frames(
    f"Server.serve_client {PYTHON}/multiprocessing/managers.py:273",
    f"Thread.run {PYTHON}/threading.py:982",
)
SERVER, HANDLER, BELOW = 200, 201, 300
FOR_EVER, A_TIME = 0, 0x7F00  # no time limit, or where it stands


def serves(
    process: FakeProcess, stack: tuple[Frame, ...], still_s: float, *, until: int = FOR_EVER
) -> None:
    """A thread that last ran so long ago, and sleeps in futex."""
    shown = PythonThread(HANDLER, "Thread-1", stack)
    ran_ns = FIRST_NS + int((BETWEEN_S - still_s) * SECOND)
    how = (1, 393, 0, until, 0, 0)
    task = Thread(HANDLER, "python", "S", "futex_do_wait", arguments=how, last_ran_ns=ran_ns)
    process.threads.append((shown, task))


def asking(accepts: tuple[Frame, ...] = ACCEPTS) -> tuple[EvidenceBuilder, FakeProcess]:
    """Rank 1 waits for the answer of a server that it has started, whose accept loop ticks."""
    build = EvidenceBuilder()
    rank = build.elsewhere(1, ASKS)
    rank.wchan = "wait_woken"
    rank.blocks("socket-receive", "127.0.0.1:5 -> 127.0.0.1:80", SERVER)
    server = build.child(1, "helper", pid=SERVER)
    server.stack, server.still_s, server.wakes = accepts, 0.1, 3
    return build, server


@pytest.mark.parametrize(("accepts", "at_request"), [(ACCEPTS, HANDLES), (MANAGES, SERVES)])
def test_a_server_s_own_clock_is_no_work_on_a_request(
    accepts: tuple[Frame, ...], at_request: tuple[Frame, ...]
) -> None:
    build, server = asking(accepts)
    serves(server, at_request, still_s=10.0)
    outcome = expect(build, "child-stuck", 1).verdict
    where = next(frame for frame in at_request if "threading" not in frame.file)
    assert f":{where.line}, {where.function}" in outcome.summary


def wanting_lock(holder: int) -> EvidenceBuilder:
    """The server's core waits for a lock that this process has."""
    build, server = asking()
    serves(server, HANDLES, still_s=10.0)
    core = build.child(1, "helper", pid=BELOW, parent=SERVER)
    core.member = replace(core.member, name="VLLM::EngineCor")
    core.stack, core.wchan = frames("take /home/me/core.py:110"), "locks_lock_inode_wait"
    core.blocks("file-lock", "/cache/kernels.lock", holder)
    return build


@pytest.mark.parametrize(
    "how", ["it asks elsewhere", "its handler", "the rank", "the rank that has the lock"]
)
def test_who_asks_elsewhere_or_has_set_a_timer_may_end_the_wait(how: str) -> None:
    build, server = asking()
    if how == "the rank that has the lock":
        build = wanting_lock(101)
    else:
        serves(server, HANDLES, still_s=10.0, until=A_TIME if how == "its handler" else FOR_EVER)
    if how == "it asks elsewhere":
        server.blocked.append(Blocked(SERVER, HANDLER, "socket-receive", target="10.0.0.9:443"))
    elif how != "its handler":
        resume = frames(f"Timer.run {PYTHON}/threading.py:1375")
        serves(build.rank(1), resume, still_s=10.0, until=A_TIME)
    assert verdict(build).state == "slow"


def test_a_loop_that_ticks_may_wait_for_something_else_than_its_silent_server() -> None:
    build = EvidenceBuilder()
    loop = frames(f"select {PYTHON}/selectors.py:468", f"run {PYTHON}/asyncio/runners.py:190")
    rank = build.elsewhere(1, (*loop, *frames("rollout /home/me/train.py:44")))
    rank.still_s, rank.wakes, rank.wchan = 0.1, 6, "do_epoll_wait"
    rank.blocks("socket-receive", "127.0.0.1:5 -> 127.0.0.1:80", SERVER)
    build.child(1, "server", pid=SERVER, parent=1)
    assert verdict(build).state == "slow"


def silent_s(build: EvidenceBuilder, *culprits: int, bottom: int | None = SERVER) -> float:
    """As the state of a hang is judged by it; rounded."""
    view = case_of(build).view
    node = None if bottom is None else ProcessNode(bottom)
    root = Candidate("child-stuck", "", (), Sink.HELPER, culprits=culprits, node=node)
    return round(silence_s(view, root, [view.by_rank[rank] for rank in culprits]), 3)


@pytest.mark.parametrize(
    ("ticked_s", "below_s", "silence"),
    [
        (0.5, None, 10.0),  # the accept loop's clock is no work
        (0.5, 3.0, 3.0),
        (0.5, 12.0, 10.0),
        (5.0, 3.0, 5.0),  # where the whole process has stood, that counts
        (4.5, 3.0, 3.0),
        (6.0, 0.1, 6.0),
    ],
)
def test_since_any_thread_of_a_server_ran_that_may_answer(
    ticked_s: float, below_s: float | None, silence: float
) -> None:
    build, server = asking()
    server.still_s = ticked_s
    serves(server, HANDLES, still_s=10.0)
    if below_s is not None:
        build.child(1, "helper", pid=BELOW, parent=SERVER).still_s = below_s
    assert silent_s(build, 1) == silence


def test_the_rank_that_ran_last_counts_of_those_that_may_end_their_waits() -> None:
    build = EvidenceBuilder()
    for rank, still_s in enumerate((7.0, 6.0, 4.0, 3.0)):
        build.elsewhere(rank, frames("compute /home/me/train.py:3")).still_s = still_s
    assert silent_s(build, 0, 1, bottom=None) == 6.0
    assert silent_s(build, 0, 1, 2, bottom=None) == 4.0
    build.rank(2).state = "T"
    build.rank(3).stack = collective("all_reduce")
    assert silent_s(build, 0, 1, 2, 3, bottom=None) == 6.0
    assert silent_s(build, 2, bottom=None) == math.inf


@pytest.mark.parametrize(
    ("how", "nobody"),
    [
        ("silent for 10 s", True),
        ("silent for 5 s", True),
        ("silent for 4.5 s", False),
        ("rank polls", False),
        ("rank waits for nobody", False),
        ("a rank at the other end", False),
        ("a stranger at the other end", False),
    ],
)
def test_whether_nobody_is_at_the_answer(how: str, nobody: bool) -> None:
    build, server = asking()
    seconds = {"silent for 5 s": 5.0, "silent for 4.5 s": 4.5}.get(how, 10.0)
    serves(server, HANDLES, still_s=seconds)
    rank = build.rank(1)
    if how == "rank polls":
        rank.wakes = 5
    elif how == "rank waits for nobody":
        rank.blocked.clear()
    elif how.startswith("a "):
        rank.blocked.clear()
        end = 102 if "rank" in how else 4711
        rank.blocks("socket-receive", "127.0.0.1:5 -> 127.0.0.1:80", end)
        build.child(1, "server", pid=SERVER + 5).still_s = 20.0
    view = case_of(build).view
    assert nobody_is_at_it(view, view.by_rank[1]) is nobody
