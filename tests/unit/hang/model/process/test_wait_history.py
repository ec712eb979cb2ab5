"""What is unusual for a job, by what its recorders have seen of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor.hang.limits import LIMITS, WaitKind
from grpo_doctor.hang.model.matching.model import Matching, Pace
from grpo_doctor.hang.model.process.wait_history import WaitHistory, wait_history_of
from tests.evidence import EvidenceBuilder, frames
from tests.verdicts import expect

QUEUE = frames(
    "get /usr/lib/python3.11/queue.py:171",
    "judge /home/me/rewards.py:40",
    "main /home/me/train.py:3",
)


def asking(waited_s: float, *, gather: bool, judge: str = "") -> EvidenceBuilder:
    """Rank 0 waits at a queue, or asks a judge elsewhere. The others wait in the operation of every
    step, or gather, which they have never done before.
    """
    build = EvidenceBuilder()
    build.waited_s = waited_s
    process = build.elsewhere(0, QUEUE)
    process.still_s = waited_s
    if judge:
        process.blocks("socket-receive", judge)
    for rank in (1, 2, 3):
        build.rank(rank).still_s = waited_s
        if gather:
            build.calls(rank, "all_gather", size=8)
    return build


def test_a_wait_of_a_kind_that_never_took_long_is_unusual_soon() -> None:
    expect(asking(8.0, gather=False), "reward-blocked", 0)


def test_a_wait_of_a_new_kind_may_take_longer() -> None:
    verdict = expect(asking(8.0, gather=True), "reward-blocked", 0, state="slow").verdict
    assert "longest before" not in verdict.summary
    expect(asking(40.0, gather=True), "reward-blocked", 0)


def test_a_server_elsewhere_may_answer_after_a_while() -> None:
    for waited_s in (8.0, 20.0, 45.0):
        build = asking(waited_s, gather=False, judge="10.0.0.9:443")
        expect(build, "reward-blocked", 0, state="slow")
    expect(asking(61.0, gather=False, judge="10.0.0.9:443"), "reward-blocked", 0)


@pytest.mark.parametrize(
    ("wait_history", "wait_kind", "expected"),
    [
        (WaitHistory(None), "asleep", False),
        # Without a history: 30 s asleep, never for who computes.
        (WaitHistory(29.9), "asleep", False),
        (WaitHistory(30.0), "asleep", True),
        (WaitHistory(1e6), "computes", False),
        # Three times the longest, and 5 s at least.
        (WaitHistory(4.9, 0.1), "asleep", False),
        (WaitHistory(5.0, 0.1), "asleep", True),
        (WaitHistory(11.9, 4.0), "asleep", False),
        (WaitHistory(12.0, 4.0), "asleep", True),
        # A history without waits like this one is none, but for who computes.
        (WaitHistory(12.0, 4.0, familiar=False), "asleep", False),
        (WaitHistory(30.0, 4.0, familiar=False), "asleep", True),
        (WaitHistory(300.0, 4.0, familiar=False), "computes", True),
        (WaitHistory(299.0, 4.0), "computes", False),
        (WaitHistory(400.0, 41.0), "computes", False),
        (WaitHistory(3.0), "proven", True),
        (WaitHistory(2.9), "proven", False),
    ],
)
def test_longer_than_ever_is_unusual(
    wait_history: WaitHistory, wait_kind: WaitKind, expected: bool
) -> None:
    assert wait_history.unusual(wait_kind=wait_kind) is expected


@pytest.mark.parametrize(
    ("wait_history", "still_s", "expected"),
    [
        (WaitHistory(), None, ""),
        (WaitHistory(), 3.0, "3.0 s"),
        (WaitHistory(8.0), 3.0, "8.0 s"),
        (WaitHistory(8.0), 9.0, "9.0 s"),
        (WaitHistory(8.0, 0.5), None, "8.0 s; longest previous wait was 0.5 s"),
        (WaitHistory(8.0, 0.5, familiar=False), None, "8.0 s"),
        (WaitHistory(8.0, 0.0), None, "8.0 s"),
    ],
)
def test_a_wait_is_told_beside_the_longest_before(
    wait_history: WaitHistory, still_s: float | None, expected: str
) -> None:
    assert wait_history.text(still_s) == expected


@pytest.mark.parametrize(("entries", "expected"), [(7, None), (8, 2.0)])
def test_a_few_operations_are_no_history(entries: int, expected: float | None) -> None:
    paces = (
        Pace(0, entries, waiting_since_ns=5 * 10**9, taken_ns=9 * 10**9, longest_gap_ns=2 * 10**9),
        Pace(1, 0, waiting_since_ns=3 * 10**9, taken_ns=9 * 10**9),
        Pace(2, 0, waiting_since_ns=1, taken_ns=0),
    )
    wait_history = wait_history_of([], Matching(paces=paces))
    assert (wait_history.waited_s, wait_history.longest_gap_s) == (6.0, expected)


NOW_NS = 100 * 10**9
LOOP = frames("main_loop /x/ray/_private/worker.py:9")


def rank(age_s: float | None, **more: Any) -> Any:
    """A rank whose main thread last ran so long ago, and its deciding thread a second later."""
    ran_ns = 0 if age_s is None else NOW_NS - int(age_s * 1e9)
    defaults = {
        "main": SimpleNamespace(last_ran_ns=ran_ns),
        "blocking_thread": SimpleNamespace(last_ran_ns=ran_ns + 10**9),
        "blocking_place": SimpleNamespace(communicates=False),
        "look": SimpleNamespace(at_ns=NOW_NS),
        "device_wait": None,
        "member": SimpleNamespace(role="rank"),
        "place": SimpleNamespace(frames=(), call=""),
        "activity": SimpleNamespace(kind="still", seconds=1.5),
        "cannot_run": False,
    }
    return SimpleNamespace(**{**defaults, **more})


@pytest.mark.parametrize(
    ("procs", "waited_s"),
    [
        ((), None),
        ((rank(7.0), rank(9.0), rank(8.0)), 9.0),
        ((rank(7.0, blocking_place=SimpleNamespace(communicates=True)),), 6.0),
        (
            (rank(7.0, blocking_thread=None, blocking_place=SimpleNamespace(communicates=True)),),
            None,
        ),
        ((rank(None),), None),  # the kernel does not tell
        ((rank(7.0, main=None),), None),
        ((rank(-1.0),), 0.0),
        ((rank(7.0, device_wait="spins"),), 1.5),
        ((rank(7.0, member=SimpleNamespace(role="engine")),), None),
        ((rank(7.0, look=None),), None),
        ((rank(7.0, place=SimpleNamespace(frames=LOOP, call="")),), None),  # Ray wakes it
        ((rank(7.0, place=SimpleNamespace(frames=LOOP, call=""), cannot_run=True),), 7.0),
        (
            (
                rank(
                    7.0,
                    place=SimpleNamespace(frames=(), call="file-lock"),
                    activity=SimpleNamespace(kind="polling", seconds=1.5),
                ),
            ),
            None,
        ),
        ((rank(7.0, place=SimpleNamespace(frames=(), call="file-lock")),), 7.0),
        ((rank(7.0, activity=SimpleNamespace(kind="polling", seconds=1.5)),), 7.0),
    ],
)
def test_without_recordings_threads_tell_how_long_a_rank_has_been_still(
    procs: tuple[Any, ...], waited_s: float | None
) -> None:
    assert wait_history_of(procs, Matching()).waited_s == waited_s


@pytest.mark.parametrize("wait_kind", LIMITS)
def test_a_wait_is_unusual_from_its_floor_on(wait_kind: WaitKind) -> None:
    wait_history = WaitHistory(longest_gap_s=0.0)
    assert wait_history.unusual(LIMITS[wait_kind].floor_s, wait_kind)
    assert not wait_history.unusual(LIMITS[wait_kind].floor_s - 0.1, wait_kind)
    untold = WaitHistory()
    assert untold.unusual(LIMITS[wait_kind].untold_s, wait_kind)
    assert not untold.unusual(min(LIMITS[wait_kind].untold_s, 1e9) - 0.1, wait_kind)
