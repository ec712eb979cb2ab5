"""Kernel messages, limits, log lines, disks that hang, and open spans of a recording."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from grpo_doctor_probes import look, phase
from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.look.host import HIDDEN, disks, messages, select
from grpo_doctor_probes.look.limits import frozen, limits_of
from grpo_doctor_probes.look.recorded import open_spans
from tests.unit.probes.conftest import Recorded
from tests.unit.probes.look.stage import Stage, job_of

OURS = 0  # stands for the number of this process


def test_only_the_last_hour_and_what_concerns_a_job() -> None:
    records = [
        b"3,1,1000000,-;Out of memory: Killed process 1 (python)",
        b"3,2,4000000000,-;Memory cgroup out of memory: Killed process 77 (python)",
        b"6,3,4001000000,-;usb 1-1: new device",
        b"3,4,4002000000,-;INFO: task python:5 blocked for more than 120 seconds.",
        b"3,5,4003000000,-;nfs: server store not responding, still trying",
    ]
    selected = select(records, 4010.0)
    assert [age_s for age_s, _ in selected] == [10.0, 8.0, 7.0]
    assert "Killed process 77" in selected[0][1]


def test_hidden_messages_are_a_problem_and_not_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cannot be read" in messages(tmp_path / "absent")[1]

    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    assert messages() == ((), HIDDEN)


def test_a_disk_that_does_not_answer_costs_a_second_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()
    ask = os.statvfs

    def hang(path: str) -> os.statvfs_result:
        answer.wait(200)
        return ask("/")

    monkeypatch.setattr(os, "statvfs", hang)
    monkeypatch.setattr(sys.modules["grpo_doctor_probes.look.host"], "_DISKS_AT_MOST_S", 0.1)
    began = time.monotonic()
    try:
        disks_here = disks(job_of(os.getpid()), Path("/proc"))
    finally:
        answer.set()
    assert disks_here
    assert all("no answer" in disk.error for disk in disks_here)
    assert time.monotonic() - began < 60


def numbered(proc: Path, numbers: dict[int, int]) -> Path:
    """A /proc in which processes, by our number, know themselves by another."""
    for pid, own in numbers.items():
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "status").write_text(f"Name:\tpython\nNSpid:\t{pid}\t{own}\n")
    return proc


@pytest.mark.parametrize(
    ("own", "shown_pid"),
    [
        ({4711: OURS}, 4711),
        ({4711: OURS, 4712: 2}, 4711),
        ({4712: OURS, 4711: OURS}, 4711),
        ({4712: OURS}, None),
        ({OURS: 2}, None),
    ],
    ids=["container", "several ranks in one", "one for each rank", "another host's", "another's"],
)
def test_spans_of_a_job_that_knows_itself_by_other_numbers(
    recording: Recorded, tmp_path: Path, own: dict[int, int], shown_pid: int | None
) -> None:
    """In a container the recorder writes the number that the process has there."""
    own = {pid or os.getpid(): number or os.getpid() for pid, number in own.items()}
    members = (Member(pid, 1, 0, "rank", "r", "r", rank=int(pid != 4711)) for pid in own)
    job = Job("here", tuple(members), run_dir=str(recording.run_dir))
    with phase("reward"):
        spans = open_spans(job, numbered(tmp_path / "proc", own))
    assert [span.pid for span in spans] == ([] if shown_pid is None else [shown_pid])


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


STAT = b"7 (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 -5 1 0 99 0 0\n"


VERSION_2 = {
    "cgroup.controllers": "cpu memory",
    "jobs/cgroup.freeze": "1",
    "jobs/cpu.max": "150000 100000",
    "jobs/memory.max": "max",
    "jobs/a/cgroup.freeze": "1",
    "jobs/a/cpu.max": "max 100000",
    "jobs/a/cpu.stat": "usage_usec 5\nnr_throttled 2\nthrottled_usec 7",
    "jobs/a/memory.max": "1000",
    "jobs/a/memory.current": "900",
    "jobs/a/memory.events": "oom 3\noom_kill 2",
}
GROUPS_1 = "6:freezer:/a/b\n4:memory:/a\n2:cpu,cpuacct:/a\n0::/\n"
VERSION_1 = {
    "unified/cgroup.procs": "",
    "freezer/a/freezer.self_freezing": "1",
    "freezer/a/b/freezer.self_freezing": "0",
    "memory/memory.limit_in_bytes": "9223372036854771712",
    "memory/memory.usage_in_bytes": "5",
    "memory/a/memory.limit_in_bytes": "2000",
    "memory/a/memory.usage_in_bytes": "1500",
    "memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1",
    "cpu/a/cpu.cfs_quota_us": "50000",
    "cpu/a/cpu.cfs_period_us": "100000",
    "cpu/a/cpu.stat": "nr_throttled 2\nthrottled_time 12345",
}


@pytest.mark.parametrize(
    ("cgroup", "files", "freezer", "cpu", "memory"),
    [
        # The upper one of two frozen groups thaws it.
        ("0::/jobs/a\n", VERSION_2, "jobs/cgroup.freeze", (1.5, 7000), (1000, 900, 2)),
        (GROUPS_1, VERSION_1, "freezer/a/freezer.state", (0.5, 12345), (2000, 1500, 1)),
    ],
)
def test_limits_of_control_groups_of_both_versions(
    tmp_path: Path,
    cgroup: str,
    files: dict[str, str],
    freezer: str,
    cpu: tuple[float, int],
    memory: tuple[int, int, int],
) -> None:
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "stat").write_bytes(STAT)
    (proc / "7" / "status").write_text("Name:\tx\nCpus_allowed_list:\t0-2,5\n")
    (proc / "7" / "cgroup").write_text(cgroup)
    for name, text in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(f"{text}\n")
    limit = limits_of(7, proc, mount)
    assert limit is not None
    assert (limit.frozen, limit.freezer) == (True, str(mount / freezer))
    assert frozen(7, proc, mount) == limit.freezer
    assert (limit.quota_cores, limit.throttled_ns) == cpu
    assert (limit.memory_limit_bytes, limit.memory_used_bytes, limit.oom_kills) == memory
    assert (limit.cores, limit.nice) == ((0, 1, 2, 5), -5)
