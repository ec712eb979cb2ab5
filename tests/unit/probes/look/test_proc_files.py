"""Parsers of small /proc files, with names that try to look like fields, and of Unix sockets."""

from __future__ import annotations

import socket
import struct
from importlib import import_module
from pathlib import Path

import pytest

from grpo_doctor_probes.look.host import disks, on_mount, parse_mounts
from grpo_doctor_probes.look.hostview import Unix, parse_unix, unix_sockets
from grpo_doctor_probes.look.logs import logs
from grpo_doctor_probes.look.processes import SchedulerClock, Scheduling, parse_sched, parse_syscall
from grpo_doctor_probes.look.syscalls import call
from tests.unit.probes.look.scene import Scene
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


@pytest.mark.parametrize(
    ("name", "fd", "flags", "is_log"),
    [
        ("out", 1, 0o100001, True),
        ("out", 2, 0o102002, True),
        ("out", 0, 0o100001, False),
        ("out", 3, 0o100001, False),
        ("train.log", 3, 0o100001, True),
        ("train.log.1", 3, 0o100001, True),
        ("train.log", 3, 0o100000, False),  # it reads that
        ("out", 1, 0o100000, False),
        ("catalog", 3, 0o100001, False),
    ],
)
def test_which_files_are_logs(
    scene: Scene, tmp_path: Path, name: str, fd: int, flags: int, is_log: bool
) -> None:
    log = tmp_path / name
    log.write_text("x" * 70_000 + "\nlast\n")
    scene.add(7, 1, "python train.py")
    for number, target, opened in ((fd, log, flags), (9, "/dev/null", 1), (8, "socket:[9].log", 1)):
        scene.opened(7, number, target, opened)
    tails = logs(job_of(7), scene.root)
    assert [(tail.path, tail.lines[-1]) for tail in tails] == (
        [(str(log), "last")] if is_log else []
    )
    assert all(0 <= tail.written_s_ago < 3600 and len(tail.lines) == 2 for tail in tails)


def test_disks_that_a_job_uses(scene: Scene) -> None:
    """Each once; those that hold no files are none."""
    scene.add(7, 1, "python train.py")
    folder = scene.root / "7"
    points = (("/", "ext4"), ("/data", "nfs4"), ("/runs", "xfs"), ("/proc", "proc"))
    for point, _ in (*points, ("/tmp", "")):
        (folder / f"root{point}").mkdir(parents=True, exist_ok=True)
    scene.mounted(7, *((point, kind, f"from{point}") for point, kind in points))
    (folder / "cwd").symlink_to("/data/x")
    targets = ("/runs/a/model.bin", "/proc/stat", "/memfd:x", "/data/y/train.parquet")
    for fd, target in enumerate(targets, 3):
        scene.opened(7, fd, target)
    found = [(disk.path, disk.kind) for disk in disks(job_of(7), scene.root)]
    assert found == [("/tmp", "ext4"), ("/data/x", "nfs4"), ("/runs/a", "xfs")]
    (folder / "fdinfo" / "3").write_text("flags:\t0\n")
    assert len(disks(job_of(7), scene.root)) == 2
    assert disks(job_of(8), scene.root) == ()


def test_a_disk_that_cannot_be_asked_says_why(scene: Scene) -> None:
    scene.add(7, 1, "python train.py")
    scene.mounted(7, ("/data", "nfs4", "there"))
    (scene.root / "7" / "cwd").symlink_to("/data")
    (disk,) = disks(job_of(7), scene.root)
    assert (disk.kind, disk.error, disk.total_bytes) == ("nfs4", "No such file or directory", 0)


def test_the_kernel_tells_peers_of_unix_sockets() -> None:
    first, second = socket.socketpair()
    with first, second:
        second.send(b"12345")
        sockets = unix_sockets()
        if not sockets:
            pytest.skip("this kernel or sandbox answers no sock_diag")
        inodes = [Path(f"/proc/self/fd/{end.fileno()}").stat().st_ino for end in (first, second)]
        assert sockets[inodes[0]].peer == inodes[1]
        assert sockets[inodes[1]].peer == inodes[0]
        assert sockets[inodes[0]].unread == 5
        assert not sockets[inodes[0]].listening


def attribute(kind: int, data: bytes) -> bytes:
    """As netlink(7) has it: length, kind, data, filled up to four bytes."""
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def test_a_message_with_a_name_a_peer_and_a_queue_and_each_start_of_it() -> None:
    head = struct.pack("=BBBBIII", 1, 1, 10, 0, 77, 0, 0)
    name, peer = attribute(0, b"/run/a.sock\0"), attribute(2, struct.pack("=I", 78))
    message = head + name + peer + attribute(4, struct.pack("=II", 9, 1))
    assert parse_unix(message) == Unix(77, 78, "/run/a.sock", 9, listening=True)
    for length in range(len(head), len(message)):
        parsed = parse_unix(message[:length])
        assert "/run/a.sock".startswith(parsed.name)
        assert parsed.peer == 78 or length < len(head + name + peer)
    assert not parse_unix(struct.pack("=BBBBIII", 1, 1, 1, 0, 77, 0, 0)).listening
