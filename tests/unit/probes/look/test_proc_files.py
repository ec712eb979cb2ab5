"""Parsers of small /proc files, with names that try to look like fields."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from grpo_doctor_probes.look.host import disks, on_mount, parse_mounts
from grpo_doctor_probes.look.logs import logs
from grpo_doctor_probes.look.processes import SchedulerClock, Scheduling, parse_sched, parse_syscall
from grpo_doctor_probes.look.syscalls import call
from tests.unit.probes.look.stage import job_of


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


def test_a_core_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that cannot be told is not tried again."""
    questions: list[float] = []

    def measure(seconds: float, _: object) -> int:
        questions.append(seconds)
        if len(questions) > 1:
            raise TimeoutError
        return 1000

    monkeypatch.setattr(import_module("grpo_doctor_probes.look.processes"), "within", measure)
    clock = SchedulerClock(Path("/proc"))
    assert [clock.monotonic_ns(5, core) for core in (3, 3, 4, 4, 3)] == [1005] * 5
    assert len(questions) == 2


def test_a_core_that_we_may_not_use_takes_the_offset_of_another() -> None:
    clock = SchedulerClock(Path("/proc"))
    ran_ns = clock.monotonic_ns(10**9, 0)
    if not ran_ns:
        pytest.skip("this kernel does not report se.exec_start, or core 0 is not ours")
    assert clock.monotonic_ns(10**9, 100_000) == ran_ns


MOUNTS = rb"""22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:25 / /data rw shared:1 - nfs4 server:/export rw
31 30 0:26 / /data/a\040b rw - fuse.s3fs s3fs rw
32 22 0:27 / /data - tmpfs tmpfs
33 22 0:28 / - nfs4 without:/point
34 22 0:29 / /data rw - nfs4
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
    mount = on_mount(parse_mounts(MOUNTS), path)
    assert mount is not None
    assert mount.kind == kind


def test_calls_that_do_not_block_and_machines_that_we_do_not_know() -> None:
    assert call(39, "x86_64") is None  # getpid
    assert call(-1, "x86_64") is None
    assert call(0, "riscv64") is None


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that does not answer within a second is left out; here the whole machine stalls."""
    for limit in ("_AT_MOST_S", "_ALL_AT_MOST_S"):
        monkeypatch.setattr(import_module("grpo_doctor_probes.look.logs"), limit, 60.0)


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize(
    ("name", "fd", "flags", "is_log"),
    [
        ("out", 1, "0100001", True),
        ("out", 2, "0102002", True),
        ("out", 0, "0100001", False),
        ("out", 3, "0100001", False),
        ("train.log", 3, "0100001", True),
        ("train.log.1", 3, "0100001", True),
        ("train.log", 3, "0100000", False),  # it reads that
        ("out", 1, "0100000", False),
        ("catalog", 3, "0100001", False),
    ],
)
def test_which_files_are_logs(tmp_path: Path, name: str, fd: int, flags: str, is_log: bool) -> None:
    log = tmp_path / name
    log.write_text("x" * 70_000 + "\nlast\n")
    for folder in ("fd", "fdinfo"):
        (tmp_path / "7" / folder).mkdir(parents=True)
    (tmp_path / "7" / "fd" / str(fd)).symlink_to(log)
    (tmp_path / "7" / "fd" / "9").symlink_to("/dev/null")
    (tmp_path / "7" / "fd" / "8").symlink_to("socket:[9].log")
    for number, opened in ((fd, flags), (9, "01"), (8, "01")):
        (tmp_path / "7" / "fdinfo" / str(number)).write_text(f"flags:\t{opened}\n")
    tails = logs(job_of(7), tmp_path)
    assert [(tail.path, tail.lines[-1]) for tail in tails] == (
        [(str(log), "last")] if is_log else []
    )
    assert all(0 <= tail.written_s_ago < 3600 and len(tail.lines) == 2 for tail in tails)


def test_disks_that_a_job_uses(tmp_path: Path) -> None:
    """Each once; those that hold no files are none."""
    folder = tmp_path / "7"
    for name in ("fd", "fdinfo", "root/data", "root/runs", "root/tmp", "root/proc"):
        (folder / name).mkdir(parents=True)
    points = (("/", "ext4"), ("/data", "nfs4"), ("/runs", "xfs"), ("/proc", "proc"))
    lines = [f"36 35 0:30 / {point} rw - {kind} from{point} rw" for point, kind in points]
    (folder / "mountinfo").write_text("\n".join(lines) + "\n")
    (folder / "cwd").symlink_to("/data/x")
    targets = {3: ("/runs/a/model.bin", "01"), 4: ("/proc/stat", "02"), 5: ("/memfd:x", "02")}
    targets |= {6: ("/data/y/train.parquet", "01")}
    for fd, (target, flags) in targets.items():
        (folder / "fd" / str(fd)).symlink_to(target)
        (folder / "fdinfo" / str(fd)).write_text(f"flags:\t{flags}\n")
    assert [(disk.path, disk.kind) for disk in disks(job_of(7), tmp_path)] == [
        ("/tmp", "ext4"),
        ("/data/x", "nfs4"),
        ("/runs/a", "xfs"),
    ]
    (folder / "fdinfo" / "3").write_text("flags:\t0\n")
    assert len(disks(job_of(7), tmp_path)) == 2
    assert disks(job_of(8), tmp_path) == ()


def test_a_disk_that_cannot_be_asked_says_why(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "mountinfo").write_text("36 35 0:30 / /data rw - nfs4 there rw\n")
    (tmp_path / "7" / "cwd").symlink_to("/data")
    (disk,) = disks(job_of(7), tmp_path)
    assert (disk.kind, disk.error, disk.total_bytes) == ("nfs4", "No such file or directory", 0)
