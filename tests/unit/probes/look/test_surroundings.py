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
from grpo_doctor_probes.look.recorded import open_spans
from tests.unit.probes.conftest import Recorded
from tests.unit.probes.look.stage import Stage, job_of

OURS = 0  # stands for the number of this process


def me() -> Job:
    return Job("here", (Member(os.getpid(), 1, 0, "rank", "r", "r", rank=0),))


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
        disks_here = disks(me(), Path("/proc"))
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


def member(pid: int, rank: int) -> Member:
    return Member(pid, 1, 0, "rank", "r", "r", rank=rank)


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
    members = tuple(member(pid, 0 if pid == 4711 else 1) for pid in own)
    job = Job("here", members, run_dir=str(recording.run_dir))
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
