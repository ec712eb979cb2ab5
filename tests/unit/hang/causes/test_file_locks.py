"""Locks that are files: who has them, and whether that ever ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.causes.locks import file_locks
from grpo_doctor_probes.evidence import PythonThread, Thread
from tests.evidence import TORCH, EvidenceBuilder, FakeProcess, frames
from tests.unit.hang.causes.proposed import proposed
from tests.verdicts import UPDATE, expect, verdict

JOINS = frames(f"init_process_group {TORCH}/distributed_c10d.py:1899", "main /home/me/train.py:9")
BATON = frames(
    "FileBaton.wait /x/site-packages/torch/utils/file_baton.py:50",
    "_jit_compile /x/site-packages/torch/utils/cpp_extension.py:2111",
    "main /home/me/train.py:5",
)


def test_a_file_lock() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, UPDATE)
    process.blocks("file-lock", "/cache/model.lock", 4711)
    outcome = expect(build, "lock-held", 0).verdict
    assert "pid 4711" in outcome.summary


def test_the_rank_that_keeps_a_lock_while_it_waits_is_to_blame() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, UPDATE)
    process.blocks("file-lock", "/cache/model.lock", 102)
    expect(build, "lock-held", 2)


def joining(still_s: float = 9.0) -> EvidenceBuilder:
    """A job without a process group yet: there is no history of what is usual."""
    build = EvidenceBuilder(recorded=False)
    for rank in range(build.world):
        build.rank(rank).stack, build.rank(rank).still_s = JOINS, still_s
    return build


def locked_by_child(build: EvidenceBuilder) -> FakeProcess:
    """Rank 1 wants the lock that a child of it has, which sleeps in pause()."""
    build.elsewhere(1, UPDATE).blocks("file-lock", "/cache/devices.lock", 300)
    holder = build.child(1, "helper", pid=300)
    holder.wchan, holder.still_s = "__do_sys_pause", 9.0
    return holder


def _beside(holder: FakeProcess, wchan: str, *arguments: int, ago_s: float = 9.0) -> None:
    at_ns = holder.look(1).at_ns - int(ago_s * 1e9)
    task = Thread(301, "worker", "S", wchan, arguments=arguments, last_ran_ns=at_ns)
    holder.threads = [(PythonThread(301, "worker", ()), task)]


FUTEX, OWN, NO_LIMIT = 0x7F00, 128 | 265, 0


def test_the_lock_of_who_sleeps_for_ever_needs_no_history() -> None:
    build = joining()
    locked_by_child(build)
    expect(build, "lock-held", 1)


def test_threads_that_only_their_own_process_wakes_do_not_end_it_either() -> None:
    build = joining()
    _beside(locked_by_child(build), "futex_do_wait", FUTEX, OWN, 0, NO_LIMIT)
    expect(build, "lock-held", 1)


@pytest.mark.parametrize(
    ("wchan", "arguments"),
    [
        ("hrtimer_nanosleep", ()),
        ("do_epoll_wait", (3, 0, 1, 2**32 - 1)),
        ("wait_woken", ()),
        ("folio_wait_bit", ()),
        ("futex_do_wait", (FUTEX, OWN, 0, 0x7FFE)),  # until a time
        ("futex_do_wait", (FUTEX, 0, 0, NO_LIMIT)),  # another process may wake it
        ("futex_do_wait", ()),  # without the right to read them
    ],
)
def test_who_may_be_woken_from_outside_may_give_its_lock_back(
    wchan: str, arguments: tuple[int, ...]
) -> None:
    build = joining()
    _beside(locked_by_child(build), wchan, *arguments)
    expect(build, "lock-held", 1, state="slow")


def test_a_holder_that_ran_meanwhile_may_give_its_lock_back() -> None:
    build = joining()
    _beside(locked_by_child(build), "futex_do_wait", FUTEX, OWN, 0, NO_LIMIT, ago_s=0.5)
    expect(build, "lock-held", 1, state="slow")


def test_a_rank_at_work_may_signal_who_has_the_lock() -> None:
    build = joining()
    locked_by_child(build)
    build.rank(2).works(frames("prepare /home/me/train.py:4"))
    assert verdict(build).state == "slow"


def polls(build: EvidenceBuilder, *ranks: int) -> None:
    for rank in ranks:
        process = build.elsewhere(rank, BATON)
        process.still_s, process.wakes, process.wchan = 0.05, 12, "hrtimer_nanosleep"
        process.blocks("sleep")


def test_a_lock_file_of_nobody_is_not_left_behind_while_somebody_works() -> None:
    build = joining(still_s=90.0)
    polls(build, 1)
    build.rank(1).blocked.clear()
    build.rank(1).blocks("file-lock", "/cache/build.lock", note="nobody holds a lock on it")
    expect(build, "lock-held", 1)
    build.child(2, "helper", pid=300).works(frames("cc1plus:1"), moves=False)
    expect(build, "lock-held", 1, state="slow")


@pytest.mark.parametrize(
    ("holders", "culprits", "words"),
    [
        ((), (0,), "; held by no visible process"),
        ((102,), (2,), "; held by pid 102 (python python.py)"),  # a rank that waits
        ((103,), (0,), "; held by pid 103 (python python.py)"),  # one that does not
        ((300,), (0,), "; held by pid 300 (python helper.py)"),
        ((102, 4711), (2,), "; held by pid 102 (python python.py), pid 4711"),
    ],
)
def test_who_has_the_lock_is_told_and_blamed_if_it_waits_with_it(
    holders: tuple[int, ...], culprits: tuple[int, ...], words: str
) -> None:
    build = EvidenceBuilder()
    build.elsewhere(0, UPDATE).blocks("file-lock", "/cache/model.lock", *holders)
    build.elsewhere(3, UPDATE)
    stranger = build.child(1, "helper", pid=300)
    stranger.member = replace(stranger.member, rank=None)
    label = next(label for label in proposed(file_locks, build) if label.evidence[0].rank == 0)
    assert label.culprits == culprits
    assert label.evidence[0].text.endswith(words)
