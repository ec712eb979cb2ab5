"""Whether a job stands, by looks and recorders that are not of one moment."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from grpo_doctor.hang.decision.stall import stall_of
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import scene
from grpo_doctor_probes.evidence import Evidence, Frame, PythonThread, Thread
from tests.evidence import (
    BETWEEN_S,
    FIRST_NS,
    SECOND,
    STEPS,
    UNIX_NS,
    EvidenceBuilder,
    Process,
    collective,
    frames,
)


def read_later(
    evidence: Evidence, rank: int, by_s: float, *, group: str = "0", earlier: int = 0
) -> Evidence:
    """The recorder of one rank was read later than all others, when it had just gone on: to a
    collective that nobody else had called when their recorders were read. It had called so many of
    that group while the others waited.
    """
    later_ns = int(by_s * 1e9)
    dumps = []
    for dump in evidence.dumps:
        if dump.rank == rank:
            document = json.loads(dump.data)
            last = {**document["entries"].pop(), "process_group": [group, "x"], "pg_id": int(group)}
            times = [UNIX_NS - at * SECOND for at in range(earlier, 0, -1)]
            for number, created_ns in enumerate((*times, UNIX_NS + later_ns // 2), STEPS):
                new = {"record_id": number, "collective_seq_id": number, "retired": False}
                document["entries"].append({**last, **new, "time_created_ns": created_ns})
            data = json.dumps(document).encode()
            dump = replace(dump, data=data, at_unix_ns=UNIX_NS + later_ns)  # noqa: PLW2901
        dumps.append(dump)
    return replace(evidence, dumps=tuple(dumps))


def late(rank: int = 3) -> EvidenceBuilder:
    """All wait for a rank that sat in a call of its own at both looks."""
    build = EvidenceBuilder()
    build.rank(rank).stack = collective("all_reduce", "join /home/me/train.py:12")
    return build


@pytest.mark.parametrize("group", ["0", "1"])
def test_who_calls_while_recorders_are_read_shows_that_the_job_moves(group: str) -> None:
    evidence = read_later(late().build(), 3, by_s=0.2, group=group)
    assert not stall_of(scene.build(evidence)).stalled
    assert diagnose(evidence).verdict.state not in ("stuck", "dead")


def test_a_thread_beside_that_calls_all_the_time_does_not_make_a_job_move() -> None:
    evidence = read_later(late().build(), 3, by_s=0.2, group="1", earlier=5)
    assert stall_of(scene.build(evidence)).stalled


def test_recorders_read_one_after_the_other_of_a_job_that_stands() -> None:
    evidence = late().build()
    dumps = tuple(
        replace(dump, at_unix_ns=UNIX_NS + (dump.rank or 0) * 10**8) for dump in evidence.dumps
    )
    assert stall_of(scene.build(replace(evidence, dumps=dumps))).stalled


def called_before_recorders_were_read(evidence: Evidence, rank: int, at_s: float) -> Evidence:
    """All recorders were read 9 s after the visit began; this rank's has a call of `at_s`."""
    dumps = []
    for dump in evidence.dumps:
        document = json.loads(dump.data)
        if dump.rank == rank:
            document["entries"][-1]["time_created_ns"] = UNIX_NS + int(at_s * SECOND)
        data = json.dumps(document).encode()
        dumps.append(replace(dump, data=data, at_unix_ns=UNIX_NS + 9 * SECOND))
    return replace(evidence, dumps=tuple(dumps))


def pipeline() -> Evidence:
    """Ranks 2 and 3 are in recv, which gloo does not record, and the others in a collective."""
    build = EvidenceBuilder()
    for rank in (2, 3):
        build.elsewhere(rank, collective("recv", "run_stages /home/me/train.py:12"))
    return build.build()


def test_who_calls_after_the_stack_of_a_receiver_was_read_shows_that_the_job_moves() -> None:
    moving = called_before_recorders_were_read(pipeline(), 1, at_s=BETWEEN_S + 1)
    verdict = diagnose(moving).verdict
    assert (verdict.state, verdict.cause) == ("slow", "")


def test_who_called_before_that_does_not() -> None:
    standing = called_before_recorders_were_read(pipeline(), 1, at_s=BETWEEN_S - 1)
    verdict = diagnose(standing).verdict
    assert (verdict.state, verdict.cause) == ("stuck", "p2p-unmatched")


def test_files_that_were_written_at_other_times_do_not_count() -> None:
    evidence = read_later(late().build(), 3, by_s=0.2)
    dumps = tuple(replace(dump, source=f"file:/d/{dump.rank}") for dump in evidence.dumps)
    assert stall_of(scene.build(replace(evidence, dumps=dumps))).stalled


LOOP = frames(
    "EpollSelector.select /usr/lib/python3.11/selectors.py:468",
    "BaseEventLoop._run_once /usr/lib/python3.11/asyncio/base_events.py:1884",
    "run /usr/lib/python3.11/asyncio/runners.py:190",
    "play /home/me/agents.py:40",
)


def ticking(build: EvidenceBuilder, rank: int) -> Process:
    """Its event loop wakes by a timer of its own, and does nothing."""
    process = build.elsewhere(rank, LOOP)
    process.still_s, process.wakes, process.wchan = 0.05, 6, "do_epoll_wait"
    return process


def in_thread(process: Process, stack: tuple[Frame, ...], still_s: float) -> None:
    """A thread of its executor works on this."""
    tid = process.member.pid + 500
    at_work = "_worker /usr/lib/python3.11/concurrent/futures/thread.py:83"
    shown = PythonThread(tid, "asyncio_0", (*stack, *frames(at_work)))
    ran_ns = FIRST_NS + int((BETWEEN_S - still_s) * SECOND)
    process.threads.append((shown, Thread(tid, "python", "S", "futex_do_wait", last_ran_ns=ran_ns)))


def test_event_loops_that_tick_do_not_make_a_job_healthy() -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in (0, 1, 3):
        in_thread(ticking(build, rank), collective("barrier"), still_s=10.0)
    ticking(build, 2).blocks("socket-receive", "10.0.0.1:5 -> 10.0.0.9:80")
    found = diagnose(build.build()).verdict
    assert found.state != "healthy"
    assert found.culprits == (2,)


def test_a_barrier_of_a_moment_in_a_thread_is_healthy() -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        in_thread(ticking(build, rank), collective("barrier"), still_s=0.4)
    assert diagnose(build.build()).verdict.state == "healthy"


def test_who_works_in_its_loop_while_a_thread_waits_gets_on() -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        in_thread(ticking(build, rank), collective("barrier"), still_s=10.0)
        build.rank(rank).works(LOOP)
    assert diagnose(build.build()).verdict.state in ("healthy", "slow")


TO_ENGINE = frames(
    "broadcast /x/site-packages/vllm/distributed/device_communicators/pynccl.py:340",
    "update_named_param /x/site-packages/trl/extras/vllm_client.py:320",
    "main /home/me/train.py:9",
)


def sending(stack: tuple[Frame, ...] = TO_ENGINE) -> EvidenceBuilder:
    """Rank 0 works in a collective of its own, the others wait in a barrier for it."""
    build = EvidenceBuilder()
    build.elsewhere(0, stack).works(stack, moves=False)
    build.waited_s, build.step_s = 12.0, 2.0
    return build


def test_who_sends_its_weights_to_an_engine_is_at_work() -> None:
    build = sending()
    assert [one.rank for one in stall_of(scene.build(build.build())).suspects] == [0]
    found = diagnose(build.build()).verdict
    assert (found.state, found.culprits) == ("slow", (0,)), found


def test_who_stands_in_it_is_not() -> None:
    build = sending()
    process = build.rank(0)
    process.state, process.cpu_share, process.wakes, process.still_s = "S", 0.0, 0, 12.0
    assert stall_of(scene.build(build.build())).suspects == ()


def test_nor_who_burns_a_core_in_a_collective_of_the_ranks() -> None:
    """As those of NCCL do while they wait."""
    build = sending(collective("barrier"))
    build.calls(0, "barrier", group="1", number=2)
    build.calls(1, "barrier", group="1", number=1, done=True)
    build.calls(1, "all_reduce")
    assert stall_of(scene.build(build.build())).suspects == ()


@pytest.mark.parametrize(("share", "suspects"), [(0.2, [0]), (0.0, [])])
def test_who_polls_in_a_group_of_its_own_sends_to_an_engine(
    share: float, suspects: list[int]
) -> None:
    """It is recorded, but no other rank has that group."""
    stack = collective("broadcast", "_broadcast_to_vllm /home/me/train.py:9")
    build = sending(stack)
    build.calls(0, "broadcast", group="1")
    process = build.rank(0)
    process.state, process.cpu_share, process.wakes, process.still_s = "S", share, 300, 0.005
    assert [one.rank for one in stall_of(scene.build(build.build())).suspects] == suspects
    assert (diagnose(build.build()).verdict.state == "slow") == (share > 0)
