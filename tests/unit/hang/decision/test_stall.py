"""Whether a job stands, by looks and recorders that are not of one moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from grpo_doctor.hang.decision.state import stall_of
from grpo_doctor.hang.diagnose import diagnose, diagnose_view
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.matching.model import Matching, Pace, Wait, Why
from grpo_doctor.hang.model.view import WaitHistory
from grpo_doctor_probes.evidence import Evidence, Frame, PythonThread, Thread
from tests.evidence import (
    BETWEEN_S,
    FIRST_NS,
    SECOND,
    STEPS,
    UNIX_NS,
    EvidenceBuilder,
    FakeProcess,
    collective,
    frames,
    with_entries,
)
from tests.unit.hang.causes.proposed import of_nccl
from tests.unit.hang.model.waiting.test_tasks import RayJob
from tests.verdicts import REWARD


def read_later(
    evidence: Evidence, rank: int, by_s: float, *, group: str = "0", earlier: int = 0
) -> Evidence:
    """The recorder of one rank was read later than all others, when it had just gone on: to a
    collective that nobody else had called when their recorders were read. It had called so many of
    that group while the others waited.
    """

    def goes_on(entries: list[dict[str, Any]]) -> None:
        last = {**entries.pop(), "process_group": [group, "x"], "pg_id": int(group)}
        times = [UNIX_NS - at * SECOND for at in range(earlier, 0, -1)]
        for number, created_ns in enumerate((*times, UNIX_NS + int(by_s * SECOND) // 2), STEPS):
            new = {"record_id": number, "collective_seq_id": number, "retired": False}
            entries.append({**last, **new, "time_created_ns": created_ns})

    return with_entries(evidence, goes_on, rank, later_s=by_s)


def late(rank: int = 3) -> EvidenceBuilder:
    """All wait for a rank that sat in a call of its own at both looks."""
    build = EvidenceBuilder()
    build.rank(rank).stack = collective("all_reduce", "join /home/me/train.py:12")
    return build


def called_before_recorders_were_read(evidence: Evidence, rank: int, at_s: float) -> Evidence:
    """All recorders were read 9 s after the visit began; this rank's has a call of `at_s`."""

    def called(entries: list[dict[str, Any]]) -> None:
        entries[-1]["time_created_ns"] = UNIX_NS + int(at_s * SECOND)

    late = with_entries(evidence, lambda _entries: None, 0, 1, 2, 3, later_s=9)
    return with_entries(late, called, rank)


def pipeline() -> Evidence:
    """Ranks 2 and 3 are in recv, which gloo does not record, and the others in a collective."""
    build = EvidenceBuilder()
    for rank in (2, 3):
        build.elsewhere(rank, collective("recv", "run_stages /home/me/train.py:12"))
    return build.build()


@pytest.mark.parametrize(
    ("at_s", "state", "cause"),
    [(BETWEEN_S + 1, "healthy", ""), (BETWEEN_S - 1, "stuck", "p2p-unmatched")],
)
def test_who_calls_after_the_stack_of_a_receiver_was_read_shows_that_the_job_moves(
    at_s: float, state: str, cause: str
) -> None:
    verdict = diagnose(called_before_recorders_were_read(pipeline(), 1, at_s)).verdict
    assert (verdict.state, verdict.cause) == (state, cause)


def test_files_that_were_written_at_other_times_do_not_count() -> None:
    evidence = read_later(late().build(), 3, by_s=0.2)
    dumps = tuple(replace(dump, source=f"file:/d/{dump.rank}") for dump in evidence.dumps)
    assert stall_of(view.build(replace(evidence, dumps=dumps))).stalled


LOOP = frames(
    "EpollSelector.select /usr/lib/python3.11/selectors.py:468",
    "BaseEventLoop._run_once /usr/lib/python3.11/asyncio/base_events.py:1884",
    "run /usr/lib/python3.11/asyncio/runners.py:190",
    "play /home/me/agents.py:40",
)


def ticking(build: EvidenceBuilder, rank: int) -> FakeProcess:
    """Its event loop wakes by a timer of its own, and does nothing."""
    process = build.elsewhere(rank, LOOP)
    process.still_s, process.wakes, process.wchan = 0.05, 6, "do_epoll_wait"
    return process


def in_thread(process: FakeProcess, stack: tuple[Frame, ...], still_s: float) -> None:
    """A thread of its executor works on this."""
    tid = process.member.pid + 500
    at_work = "_worker /usr/lib/python3.11/concurrent/futures/thread.py:83"
    shown = PythonThread(tid, "asyncio_0", (*stack, *frames(at_work)))
    ran_ns = FIRST_NS + int((BETWEEN_S - still_s) * SECOND)
    process.threads.append((shown, Thread(tid, "python", "S", "futex_do_wait", last_ran_ns=ran_ns)))


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


def test_nor_who_burns_a_core_in_a_collective_of_the_ranks() -> None:
    """As those of NCCL do while they wait."""
    build = sending(collective("barrier"))
    build.calls(0, "barrier", group="1", number=2)
    build.calls(1, "barrier", group="1", number=1, done=True)
    build.calls(1, "all_reduce")
    assert stall_of(view.build(build.build())).suspects == ()


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
    assert [proc.rank for proc in stall_of(view.build(build.build())).suspects] == suspects
    assert (diagnose(build.build()).verdict.state == "slow") == (share > 0)


def stalled(job: EvidenceBuilder | Evidence) -> bool:
    evidence = job if isinstance(job, Evidence) else job.build()
    return stall_of(view.build(evidence)).stalled


# For how long a rank has to stand.

NEVER_RAN_S = FIRST_NS / SECOND + BETWEEN_S  # which the kernel says where it does not know


@pytest.mark.parametrize(
    ("still_s", "wakes", "stands"),
    [(2.0, 0, True), (1.9, 0, False), (NEVER_RAN_S, 0, True), (10.0, 5, False)],
)
@pytest.mark.parametrize("stack", [REWARD, collective("barrier")])
def test_a_rank_without_a_recording_stands_if_its_thread_has_not_run_for_two_seconds(
    stack: tuple[Frame, ...], still_s: float, wakes: int, stands: bool
) -> None:
    build = EvidenceBuilder(ranks=1, recorded=False)
    process = build.rank(0)
    process.stack, process.still_s, process.wakes = stack, still_s, wakes
    assert stalled(build) is stands


@pytest.mark.parametrize(("waited_s", "stands"), [(2.0, True), (1.9, False)])
def test_a_rank_with_one_stands_for_as_long_as_that_says(waited_s: float, stands: bool) -> None:
    build = EvidenceBuilder(ranks=2)
    build.waited_s = waited_s
    for rank in (0, 1):
        build.rank(rank).still_s, build.rank(rank).wakes = 0.1, 5
    assert stalled(build) is stands


@pytest.mark.parametrize(("still_s", "stands"), [(2.0, True), (1.9, False)])
def test_a_collective_in_a_thread_stands_for_as_long_as_that_thread(
    still_s: float, stands: bool
) -> None:
    build = EvidenceBuilder(ranks=2, recorded=False)
    for rank in (0, 1):
        in_thread(ticking(build, rank), collective("barrier"), still_s=still_s)
    assert stalled(build) is stands


# Hosts that wait for their own device.


def in_driver() -> EvidenceBuilder:
    build = EvidenceBuilder(ranks=3)
    build.elsewhere(1, REWARD).blocks("file", "/dev/nvidia0")
    return build


@pytest.mark.parametrize(
    ("why", "on", "suspect"),
    [
        ("missing", (1,), True),
        ("missing", (2,), False),
        ("mismatch", (1,), False),
        (None, (), False),
    ],
)
def test_a_host_that_waits_for_its_device_is_suspected_if_others_wait_for_it(
    why: Why | None, on: tuple[int, ...], suspect: bool
) -> None:
    waits = () if why is None else (Wait(0, "0", 40, "all_reduce", on, why),)
    changed_evidence = replace(view.build(in_driver().build()), matching=Matching(waits=waits))
    assert [proc.rank for proc in stall_of(changed_evidence).suspects] == [1] * suspect


@pytest.mark.parametrize("nccl", [True, False])
def test_or_if_its_recorder_tells_that_no_collective_is_left_on_it(nccl: bool) -> None:
    evidence = in_driver().build()
    model = view.build(of_nccl(evidence) if nccl else evidence)
    idle = Matching(heard=(1,), idle=frozenset({1}))
    assert [proc.rank for proc in stall_of(replace(model, matching=idle)).suspects] == [1] * nccl


# Recorders that were read one after the other.


@pytest.mark.parametrize(("earlier", "stands"), [(1, False), (2, True)])
def test_two_calls_while_another_rank_waits_are_those_of_a_thread_beside(
    earlier: int, stands: bool
) -> None:
    assert stalled(read_later(late().build(), 3, by_s=0.2, group="1", earlier=earlier)) is stands


def calling(evidence: Evidence, rank: int, *at_s: float) -> Evidence:
    """This rank has ended the collective of all, and then called others at these times."""

    def calls(entries: list[dict[str, Any]]) -> None:
        last = entries[-1]
        last["retired"] = True
        for number, seconds in enumerate(at_s, STEPS + 1):
            new = {"record_id": number, "collective_seq_id": number, "retired": False}
            entries.append({**last, **new, "time_created_ns": UNIX_NS + int(seconds * SECOND)})

    return with_entries(evidence, calls, rank)


@pytest.mark.parametrize(
    ("at_s", "stands"),
    [((0.1,), False), ((0.0,), True), ((-1.0, 0.1), False), ((-2.0, -1.0, 0.1), True)],
)
def test_what_was_called_after_the_first_recorder_was_read_shows_that_the_job_moves(
    at_s: tuple[float, ...], stands: bool
) -> None:
    assert stalled(calling(late().build(), 3, *at_s)) is stands


def test_the_clocks_of_two_hosts_are_not_compared() -> None:
    """That of the second host is 15 s ahead."""
    evidence = EvidenceBuilder().build()
    members = tuple(
        replace(member, host="a" if (member.rank or 0) < 2 else "b")
        for member in evidence.job.members
    )

    def ahead(entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            entry["time_created_ns"] += 15 * SECOND

    joined = replace(evidence, job=replace(evidence.job, members=members))
    assert stalled(with_entries(joined, ahead, 2, 3, later_s=15))


def test_a_receiver_without_a_recording_does_not_tell_since_when_it_waits() -> None:
    moving = called_before_recorders_were_read(pipeline(), 1, at_s=BETWEEN_S + 1)
    assert not stalled(moving)
    dumps = tuple(dump for dump in moving.dumps if dump.rank not in (2, 3))
    assert stalled(replace(moving, dumps=dumps))


def test_ranks_in_collectives_are_not_judged_by_their_stacks() -> None:
    """Rank 1 called something after their stacks were read, and before their recorders were."""
    moved = called_before_recorders_were_read(late().build(), 1, at_s=BETWEEN_S + 1)
    assert stalled(moved)


# Locks that all ranks want, and answers that all wait for.

BATON = frames(
    "FileBaton.wait /x/site-packages/torch/utils/file_baton.py:50", "main /home/me/train.py:5"
)


@pytest.mark.parametrize(
    ("command", "works", "stands"),
    [
        ("python helper.py", False, True),
        ("python helper.py", True, False),
        ("/opt/ray/core/src/ray/raylet/raylet", True, True),  # it works whatever the job does
    ],
)
def test_ranks_that_all_try_a_lock_stand_unless_somebody_who_may_have_it_is_at_work(
    command: str, works: bool, stands: bool
) -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        process = build.elsewhere(rank, BATON)
        process.still_s, process.wakes, process.wchan = 0.05, 12, "hrtimer_nanosleep"
    other = build.child(1, "helper", pid=300)
    other.member = replace(other.member, command=command)
    if works:
        other.works(frames("cc1plus:1"), moves=False)
    assert stalled(build) is stands


@pytest.mark.parametrize(
    ("how", "stands"),
    [
        ("asleep", True),
        ("stopped", True),
        ("asks", True),
        ("works", False),
        ("asleep for a moment", False),
    ],
)
def test_ranks_without_a_task_stand_as_long_as_who_has_one(how: str, stands: bool) -> None:
    job = RayJob()
    if how == "stopped":
        job.rollout.state = "T"
    elif how == "works":
        job.rollout.works(job.rollout.stack)
    elif how == "asleep for a moment":
        job.rollout.still_s = job.driver.still_s = 0.5
    elif how == "asks":
        job.generates_nothing()
    assert stalled(job.build) is stands


@pytest.mark.parametrize("quiet_s", [0.018, 0.9, 1.5])
@pytest.mark.parametrize("worked", [True, False])
def test_a_controller_that_waits_less_than_it_did_before_is_no_reason(
    quiet_s: float, worked: bool
) -> None:
    """It asks while no rank has a task. `worked`: all had one between the looks."""
    job = RayJob()
    job.generates_nothing()
    for rank in range(3):
        job.build.rank(rank).written_bytes = 3_000_000 * worked
    looked = view.build(job.build.build())
    pace = Pace(
        rank=0, entries=99, longest_gap_ns=int(2.1 * SECOND), taken_ns=UNIX_NS,
        last_enqueued_ns=UNIX_NS - int(quiet_s * SECOND),
    )  # fmt: skip
    matching = msgspec.structs.replace(looked.matching, paces=(pace,))
    history = WaitHistory(None, 2.1)
    verdict = diagnose_view(replace(looked, matching=matching, wait_history=history)).verdict
    assert (verdict.cause, verdict.culprits) == ("", ())
    assert verdict.state == ("healthy" if worked else "slow")
