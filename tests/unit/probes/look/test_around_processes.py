"""What surrounds processes: control groups, logs, disks, engines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from grpo_doctor_probes import look
from tests.unit.probes.look.stage import (
    NEEDS_PYSPY,
    READY,
    SERVING,
    Stage,
    asleep_in,
    job_of,
    until,
)

FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A freezer group whose processes are thawed and moved out at the end."""
    if not os.access(FREEZER, os.W_OK) or not (FREEZER / "cgroup.procs").exists():
        pytest.skip("needs root and a version 1 freezer at /sys/fs/cgroup/freezer")
    group = FREEZER / f"grpo-doctor-test-{os.getpid()}"
    below = group / "below"
    below.mkdir(parents=True)
    with ExitStack() as cleaning:
        cleaning.callback(group.rmdir)
        cleaning.callback(below.rmdir)
        cleaning.callback(_move_out, below)
        cleaning.callback((group / "freezer.state").write_text, "THAWED")
        yield group


def _move_out(group: Path) -> None:
    for pid in (group / "cgroup.procs").read_text().split():
        (FREEZER / "cgroup.procs").write_text(pid)


@NEEDS_PYSPY
def test_a_frozen_group_above_is_seen_and_never_traced(stage: Stage, freezer: Path) -> None:
    pid = stage.start(SERVING)
    asleep_in(pid, "nanosleep")
    (freezer / "below" / "cgroup.procs").write_text(str(pid))
    (freezer / "freezer.state").write_text("FROZEN")
    until(lambda: (freezer / "freezer.state").read_text().strip() == "FROZEN")
    (limits,) = look.limits(job_of(pid))
    assert (limits.frozen, limits.freezer) == (True, str(freezer / "freezer.state"))
    assert look.stacks([pid], at_most_s=20)[0].threads
    (stack,) = look.native_stacks([pid], at_most_s=5)
    assert "uninterruptible sleep" in stack.problem or "frozen" in stack.problem
    Path(limits.freezer).write_text("THAWED")
    until(lambda: not look.limits(job_of(pid))[0].frozen)


def test_limits_of_an_ordinary_process(stage: Stage) -> None:
    humble = "os.setpriority(os.PRIO_PROCESS, 0, 15); os.sched_setaffinity(0, {0})"
    pid = stage.start(f"{READY}{humble}; time.sleep(60)")
    asleep_in(pid, "nanosleep")
    (limits,) = look.limits(job_of(pid))
    assert (limits.pid, limits.frozen, limits.nice, limits.cores) == (pid, False, 15, (0,))


def test_logs_are_found_by_name_and_by_redirection(stage: Stage) -> None:
    log, out = stage.folder / "train.log", stage.folder / "output"
    pid = stage.start(
        """
        import os, sys, time
        log = open(sys.argv[1], "w")
        for line in range(100):
            log.write(f"line {line}\\n")
        log.write("10%\\r100% \\x1b[31mdone\\x1b[0m api_key=hf_abcdefghijklmnopqrstuv")
        log.flush()
        out = open(sys.argv[2], "w")
        os.dup2(out.fileno(), 2)
        os.write(2, b"a warning\\n")
        open("/dev/null").read()
        print("ready", flush=True)
        time.sleep(60)
        """,
        str(log),
        str(out),
    )
    tails = {tail.path: tail for tail in look.logs(job_of(pid))}
    assert set(tails) == {str(log), str(out)}
    assert tails[str(out)].lines == ("a warning",)
    lines = tails[str(log)].lines
    assert lines[-2:] == ("line 99", "100% done api_key=[redacted]")
    assert len(lines) == 40
    assert tails[str(log)].written_s_ago < 60


def test_a_full_disk_of_a_file_that_is_open_for_writing(stage: Stage) -> None:
    point = stage.folder / "small disk"
    point.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(point)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("needs root, to mount a file system")
    try:
        pid = stage.start(
            """
            import errno, os, sys, time
            file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
            try:
                while True:
                    os.write(file, bytes(1 << 16))
            except OSError as error:
                assert error.errno == errno.ENOSPC
            print("ready", flush=True)
            time.sleep(60)
            """,
            str(point / "checkpoint.pt"),
        )
        (disk,) = [disk for disk in look.host(job_of(pid)).disks if disk.path == str(point)]
    finally:
        stage.end()
        subprocess.run(["umount", str(point)], check=True)
    assert (disk.kind, disk.total_bytes, disk.free_bytes) == ("tmpfs", 1 << 20, 0)
