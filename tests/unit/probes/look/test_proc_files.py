"""Parsers of small /proc files, with names that try to look like fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.look.descriptors import blocker_of, parse_locks
from grpo_doctor_probes.look.host import on_mount, parse_mounts, parse_pressure
from grpo_doctor_probes.look.syscalls import call
from grpo_doctor_probes.look.threads import (
    SchedulerClock,
    Scheduling,
    parse_run_delay,
    parse_sched,
    parse_syscall,
    parse_wchan,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"202 0x1 0xff 0x0 0x0 0x0 0x2 0x7ffe 0x7f00\n", (202, (1, 255, 0, 0, 0, 2))),
        (b"running\n", (-1, ())),
        (b"-1 0x7ffe 0x7f00\n", (-1, ())),
        (b"", (-1, ())),
    ],
)
def test_the_call_that_a_thread_is_in(text: bytes, expected: tuple[int, tuple[int, ...]]) -> None:
    assert parse_syscall(text) == expected


def test_a_hidden_wait_channel_is_none() -> None:
    assert parse_wchan(b"0") == ""
    assert parse_wchan(b"futex_do_wait") == "futex_do_wait"


def test_run_delay() -> None:
    assert parse_run_delay(b"23325022 2950515 20\n") == 2950515
    assert parse_run_delay(b"") == 0


SCHED = b"""se.exec_start : 1.0 (24484, #threads: 1)
-------------------------------------------------------------------
se.exec_start                                :      12718751.464590
se.vruntime                                  :           264.372586
nr_switches                                  :                   19
nr_voluntary_switches                        :                   13
nr_involuntary_switches                      :                    6
"""


def test_the_schedulers_fields_are_not_taken_from_a_name() -> None:
    assert parse_sched(SCHED) == Scheduling(12_718_751_464_590, 13, 6)
    assert parse_sched(b"") == Scheduling()


def test_a_kernel_without_the_file_tells_no_time(tmp_path: Path) -> None:
    clock = SchedulerClock(tmp_path)
    assert clock.monotonic_ns(5, 0) == 0
    assert clock.monotonic_ns(0, 0) == 0


def test_a_core_that_we_may_not_use_takes_the_offset_of_another() -> None:
    clock = SchedulerClock(Path("/proc"))
    known = clock.monotonic_ns(10**9, 0)
    if not known:
        pytest.skip("this kernel does not tell se.exec_start, or core 0 is not ours")
    assert clock.monotonic_ns(10**9, 100_000) == known


LOCKS = b"""1: FLOCK  ADVISORY  WRITE 4560 fe:00:2148564 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4561 fe:00:2148564 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4562 fe:00:2148564 0 EOF
2: OFDLCK ADVISORY  READ -1 fe:00:99 0 EOF
nonsense
"""


def test_the_lock_that_a_process_waits_for() -> None:
    locks = parse_locks(LOCKS)
    assert len(locks) == 4
    blocker = blocker_of(locks, 4562)
    assert blocker is not None
    assert (blocker.pid, blocker.file, blocker.waits) == (4560, "fe:00:2148564", False)
    assert blocker_of(locks, 4560) is None


MOUNTS = rb"""22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:25 / /data rw shared:1 - nfs4 server:/export rw
31 30 0:26 / /data/a\040b rw - fuse.s3fs s3fs rw
32 22 0:27 / /data rw - tmpfs tmpfs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/database/x", "ext4"),
        ("/data", "tmpfs"),  # the later of two hides the earlier
        ("/data/a b/model", "fuse.s3fs"),
    ],
)
def test_the_longest_mount_point_counts(path: str, kind: str) -> None:
    found = on_mount(parse_mounts(MOUNTS), path)
    assert found is not None
    assert found.kind == kind


def test_pressure() -> None:
    text = b"some avg10=1.50 avg60=0 avg300=0 total=1\nfull avg10=0.25 avg60=0 avg300=0 total=1\n"
    assert parse_pressure(text) == {"some": 1.5, "full": 0.25}
    assert parse_pressure(b"") == {}


# Numbers as in /usr/include/x86_64-linux-gnu/asm/unistd_64.h and asm-generic/unistd.h.
@pytest.mark.parametrize(
    ("name", "x86_64", "aarch64"),
    [
        ("read", 0, 63),
        ("write", 1, 64),
        ("openat", 257, 56),
        ("ppoll", 271, 73),
        ("pselect6", 270, 72),
        ("epoll_pwait", 281, 22),
        ("recvfrom", 45, 207),
        ("recvmsg", 47, 212),
        ("sendto", 44, 206),
        ("sendmsg", 46, 211),
        ("connect", 42, 203),
        ("accept4", 288, 242),
        ("wait4", 61, 260),
        ("waitid", 247, 95),
        ("flock", 73, 32),
        ("fcntl", 72, 25),
        ("fsync", 74, 82),
        ("futex", 202, 98),
        ("nanosleep", 35, 101),
        ("clock_nanosleep", 230, 115),
        ("restart_syscall", 219, 128),
    ],
)
def test_numbers_of_blocking_calls(name: str, x86_64: int, aarch64: int) -> None:
    for machine, number in (("x86_64", x86_64), ("aarch64", aarch64)):
        found = call(number, machine)
        assert found is not None
        assert found.name == name


def test_calls_that_do_not_block_and_machines_that_we_do_not_know() -> None:
    assert call(39, "x86_64") is None  # getpid
    assert call(-1, "x86_64") is None
    assert call(0, "riscv64") is None
