"""Whether a process moved between two looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.model.process.proc import index
from grpo_doctor.hang.model.process.progress import Activity, SpinSample, activity, has_time_limit
from grpo_doctor_probes.evidence import Frame, Locals, ProcessLook, PythonThread, Stack, Thread
from tests.evidence import TORCH, EvidenceBuilder, collective, frames


def activity_of(build: EvidenceBuilder) -> Activity:
    return index(build.build())[100].activity


def kind(build: EvidenceBuilder) -> str:
    return activity_of(build).kind


def between(
    before: ProcessLook, after: ProcessLook, slept: int = 0, preempted: int = 0
) -> Activity:
    """Of two looks 10 s apart; the main thread has the process's numbers."""
    return activity(_with_thread(before), _with_thread(after, slept, preempted), [None, None])


def _with_thread(look: ProcessLook, slept: int = 0, preempted: int = 0) -> ProcessLook:
    main = Thread(
        look.pid, "python", look.state, cpu_ticks=look.cpu_ticks, voluntary=40 + slept,
        involuntary=4 + preempted,
    )  # fmt: skip
    return replace(look, threads=(main,))


EARLIER = ProcessLook(7, 10**9, "S", cpu_ticks=500, read_bytes=9000, written_bytes=800)


@pytest.mark.parametrize(
    ("ticks", "slept", "preempted", "bytes_read", "bytes_written", "expected"),
    [
        (0, 0, 0, 0, 0, "still"),
        (299, 0, 0, 0, 0, "still"),  # of one core, 0.3 is the least that is busy
        (300, 0, 0, 0, 0, "busy"),
        (0, 2, 0, 0, 0, "still"),  # a call that times out once
        (0, 2, 1, 0, 0, "polling"),
        (0, 3, 0, 0, 0, "polling"),
        (300, 3, 0, 0, 0, "busy"),
        (0, 0, 0, 256 * 1024 - 1, 0, "still"),
        (0, 0, 0, 256 * 1024, 0, "working"),
        (0, 0, 0, 128 * 1024, 128 * 1024, "working"),
        (0, 0, 0, 128 * 1024, 128 * 1024 - 1, "still"),
    ],
)
def test_how_much_is_how_much(
    ticks: int, slept: int, preempted: int, bytes_read: int, bytes_written: int, expected: str
) -> None:
    later = replace(
        EARLIER, at_ns=11 * 10**9, cpu_ticks=500 + ticks, read_bytes=9000 + bytes_read,
        written_bytes=800 + bytes_written,
    )  # fmt: skip
    moved = between(EARLIER, later, slept, preempted)
    assert moved.kind == expected
    assert moved.seconds == 10.0
    assert moved.cpu_share == moved.whole_share == pytest.approx(ticks / 1000)
    assert moved.wakes == slept + preempted
    assert moved.io_bytes == bytes_read + bytes_written


@pytest.mark.parametrize("state", ["Z", "X"])
def test_what_had_gone_already_or_has_no_thread_is_not_known(state: str) -> None:
    later = replace(EARLIER, at_ns=11 * 10**9)
    assert between(replace(EARLIER, state=state), later).kind == "unknown"
    assert activity(None, _with_thread(later), []).kind == "unknown"
    assert activity(EARLIER, _with_thread(later), []).kind == "unknown"
    assert activity(_with_thread(EARLIER), later, []).kind == "unknown"


@pytest.mark.parametrize(
    ("activity", "only_ticks", "is_active", "library_works"),
    [
        (Activity("polling", whole_share=0.019), True, False, False),
        (Activity("polling", whole_share=0.02), False, True, False),
        (Activity("polling", io_bytes=1), False, True, False),
        (Activity("still"), False, False, False),
        (Activity("busy"), False, True, False),
        (Activity("working"), False, True, False),
        (Activity("spinning"), False, False, False),
        (Activity("still", native_share=0.3), False, False, True),
        (Activity("still", native_share=0.29), False, False, False),
        (Activity("polling", native_delay_share=0.3), True, False, True),
        (Activity("still", native_share=0.2, native_delay_share=0.1), False, False, True),
        (Activity("busy", native_share=0.9), False, True, False),
    ],
)
def test_what_counts_as_progress(
    activity: Activity, only_ticks: bool, is_active: bool, library_works: bool
) -> None:
    assert activity.only_ticks is only_ticks
    assert activity.is_active is is_active
    assert activity.library_works is library_works


LATER = replace(EARLIER, at_ns=11 * 10**9)


def test_for_how_long_a_stopped_process_was_seen() -> None:
    stopped = _with_thread(replace(LATER, state="T"))
    assert activity(_with_thread(EARLIER), stopped, []).seconds == 10.0
    assert activity(None, stopped, []) == Activity("stopped", 0.0)
    assert activity(EARLIER, stopped, []).kind == "stopped"  # of whose threads nothing is known
    assert activity(_with_thread(EARLIER), replace(LATER, state="T"), []).kind == "stopped"
    assert activity(_with_thread(EARLIER), _with_thread(LATER), [], frozen=True) == Activity(
        "frozen", 10.0
    )


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [((), False), ((1, 2, 3), False), ((1, 2, 3, 0), False), ((1, 2, 3, 0x7FFE), True)],
)
def test_a_sleep_in_futex_ends_by_itself_if_its_fourth_argument_says_when(
    arguments: tuple[int, ...], limit: bool
) -> None:
    assert has_time_limit(Thread(7, "python", "S", arguments=arguments)) is limit


# Who uses a core at one line.

SYNCHRONIZE = frames(
    f"synchronize {TORCH.replace('distributed', 'cuda')}/__init__.py:1085", "step /home/me/t.py:5"
)


def burns(ticks: int, *stacks: tuple[Frame, ...], digests: str = "", state: str = "S") -> Activity:
    """With a thread of CUDA's, over 10 s; `digests` are of its variables."""
    looks = []
    for look, used in ((EARLIER, 0), (LATER, ticks)):
        process = _with_thread(replace(look, state=state, cpu_ticks=500 + used))
        events = Thread(9, "cuda-EvtHandlr", "S")
        looks.append(replace(process, threads=(*process.threads, events)))
    samples = [Stack(7, 0, (PythonThread(7, "MainThread", stack),)) for stack in stacks]
    at = SpinSample(locals_seen=tuple(Locals(7, 0, digest) for digest in digests))
    return activity(looks[0], looks[1], samples, at=at)


@pytest.mark.parametrize(
    ("ticks", "digests", "kind", "moved"),
    [
        (300, "", "spinning", False),
        (299, "", "still", False),
        (300, "aa", "spinning", False),
        (300, "ab", "working", True),
    ],
)
def test_a_wait_for_the_device_takes_three_tenths_of_a_core_at_least(
    ticks: int, digests: str, kind: str, moved: bool
) -> None:
    movement = burns(ticks, SYNCHRONIZE, SYNCHRONIZE, digests=digests)
    assert (movement.kind, movement.moved) == (kind, moved)


# Who sleeps, looks at something and sleeps again.

AWAITS = frames("await_answer /home/me/reward.py:5", "main /home/me/train.py:9")
LOOKS = (
    *frames("stat /usr/lib/python3.11/os.py:10", "exists /usr/lib/python3.11/path.py:12"),
    *frames("await_answer /home/me/reward.py:4", "main /home/me/train.py:9"),
)
ELSEWHERE = frames(
    "judge /home/me/reward.py:30", "score /home/me/reward.py:8", "main /home/me/t.py:9"
)
NANOSLEEP = 230


def sleeps(
    *stacks: tuple[Frame, ...] | None,
    ticks: int = 0,
    syscalls: tuple[int, int] = (NANOSLEEP, NANOSLEEP),
) -> str:
    looks = []
    for look, used, syscall in zip((EARLIER, LATER), (0, ticks), syscalls, strict=True):
        process = _with_thread(replace(look, cpu_ticks=500 + used))
        looks.append(replace(process, threads=(replace(process.threads[0], syscall=syscall),)))
    samples = [
        None if stack is None else Stack(7, 0, (PythonThread(7, "MainThread", stack),))
        for stack in stacks
    ]
    return activity(looks[0], looks[1], samples).kind


@pytest.mark.parametrize(
    ("stacks", "more", "kind"),
    [
        ((AWAITS, LOOKS), {}, "still"),
        ((AWAITS, LOOKS), {"syscalls": (-1, NANOSLEEP)}, "still"),
        ((AWAITS, LOOKS), {"syscalls": (NANOSLEEP, 0)}, "still"),
        ((AWAITS, LOOKS), {"syscalls": (-1, 0)}, "working"),  # it did not sleep
        ((AWAITS, LOOKS), {"ticks": 100}, "still"),
        ((AWAITS, LOOKS), {"ticks": 101}, "working"),  # it does work in between
        ((AWAITS, ELSEWHERE), {}, "working"),
        ((AWAITS, None, LOOKS), {}, "still"),
        ((AWAITS, (), LOOKS), {}, "still"),
        ((collective("barrier"), AWAITS), {}, "working"),  # it has got through that
        ((None, None), {}, "still"),
        (((), ()), {}, "still"),
    ],
)
def test_who_asks_again_in_one_function_of_its_own_does_not_move(
    stacks: tuple[tuple[Frame, ...] | None, ...], more: dict[str, Any], kind: str
) -> None:
    assert sleeps(*stacks, **more) == kind
