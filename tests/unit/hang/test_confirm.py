"""Undoing what holds real processes up: a stopped one, a full pipe, a frozen control group."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grpo_doctor.errors import NoJobError, OutputError
from grpo_doctor.hang.confirm import carry_out, confirmed, still
from grpo_doctor.hang.verdict import SCHEMA, Cost, Diagnosis, JobSeen, RankState, Undo, Verdict
from grpo_doctor_probes.evidence import Job, Look, Member, ProcessLook, Thread

# Rank 0 sends a byte every 20 ms; rank 1 reads one before it goes on: it waits for rank 0.
_SENDS = (
    "import sys, time\nwhile True:\n sys.stdout.write('.'); sys.stdout.flush(); time.sleep(.02)"
)
_READS = "import sys\nprint('up', flush=True)\nwhile sys.stdin.buffer.raw.read(1): pass"
_FILLS = "import os\nos.write(2, b'up')\nwhile True: os.write(1, bytes(4096))"


def started_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def job_of(*pids: int) -> Job:
    members = (
        Member(pid, os.getpid(), started_ticks(pid), "rank", "python", "", rank=rank)
        for rank, pid in enumerate(pids)
    )
    return Job("node-7", tuple(members), len(pids))


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds; pytest's time limit is the deadline."""
    while not condition():
        select.select([], [], [], 0.01)


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """Two ranks, the second of which waits for the first."""
    first = subprocess.Popen([sys.executable, "-c", _SENDS], stdout=subprocess.PIPE)
    second = subprocess.Popen(
        [sys.executable, "-c", _READS], stdin=first.stdout, stdout=subprocess.PIPE
    )
    assert first.stdout is not None
    assert second.stdout is not None
    try:
        assert second.stdout.readline() == b"up\n"
        yield first.pid, second.pid
    finally:
        for process in (first, second):
            process.kill()
            process.send_signal(signal.SIGCONT)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_a_stopped_rank_is_continued_and_the_job_moves(pair: tuple[int, int]) -> None:
    os.kill(pair[0], signal.SIGSTOP)
    wait_for(lambda: state(pair[0]) == "T")
    assert carry_out(Undo("continue", pair[0], "", "Continue?"), job_of(*pair))
    assert state(pair[0]) != "T"


def test_the_wrong_rank_continued_moves_nothing(pair: tuple[int, int]) -> None:
    os.kill(pair[0], signal.SIGSTOP)
    wait_for(lambda: state(pair[0]) == "T")
    assert not carry_out(Undo("continue", pair[1], "", "Continue?"), job_of(*pair), within_s=0.5)
    assert state(pair[0]) == "T"


def test_a_full_pipe_is_drained(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    ready, says = os.pipe()
    writer = subprocess.Popen([sys.executable, "-c", _FILLS], stdout=writing, stderr=says)
    os.close(writing)
    try:
        assert os.read(ready, 2) == b"up"
        wait_for(lambda: "pipe" in Path(f"/proc/{writer.pid}/wchan").read_text())
        undo = Undo("drain", writer.pid, f"/proc/{writer.pid}/fd/1", "Read it?")
        assert carry_out(undo, job_of(writer.pid))
    finally:
        writer.kill()
        writer.wait()
        for descriptor in (reading, ready, says):
            os.close(descriptor)


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "/proc/1/fd/1", "/proc/{pid}/fd/../environ", "/proc/{pid}/fd/0"]
)
def test_nothing_but_a_pipe_of_the_process_is_read(pair: tuple[int, int], target: str) -> None:
    undo = Undo("drain", pair[0], target.format(pid=pair[0]), "Read it?")
    with pytest.raises(OutputError, match="is not a pipe"):
        carry_out(undo, job_of(*pair))


def test_nothing_but_a_freezer_is_written(pair: tuple[int, int], tmp_path: Path) -> None:
    for name in ("notes.txt", "cgroup.freeze"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(OutputError, match="not the freezer"):
            carry_out(Undo("thaw", pair[0], str(tmp_path / name), "Thaw?"), job_of(*pair))
        assert (tmp_path / name).read_text() == "mine"


def freezer() -> tuple[Path, bytes] | None:
    """A new control group's freezer and the word that freezes, None where we may make none."""
    for root, name, word in (
        ("/sys/fs/cgroup/freezer", "freezer.state", b"FROZEN"),
        ("/sys/fs/cgroup", "cgroup.freeze", b"1"),
    ):
        group = Path(root) / f"grpo-doctor-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / name).exists():
                return group / name, word
            group.rmdir()
    return None


def test_a_frozen_group_is_thawed(pair: tuple[int, int]) -> None:
    made = freezer()
    if made is None:
        pytest.skip("this user can make no control group with a freezer")
    path, freeze = made
    try:
        (path.parent / "cgroup.procs").write_text(str(pair[0]))
        path.write_bytes(freeze)
        wait_for(lambda: b"FROZEN" in path.read_bytes() or path.read_bytes() == b"1\n")
        assert carry_out(Undo("thaw", pair[0], str(path), "Thaw?"), job_of(*pair))
    finally:
        path.write_bytes(b"THAWED" if path.name == "freezer.state" else b"0")
        for pid in pair:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not (path.parent / "cgroup.procs").read_text() or state(pair[0]) == "Z")
        os.waitpid(pair[0], 0)
        path.parent.rmdir()


def test_another_process_of_the_same_number_is_left_alone(pair: tuple[int, int]) -> None:
    earlier = Member(pair[0], 1, started_ticks(pair[0]) - 1, "rank", "python", "", rank=0)
    with pytest.raises(NoJobError, match="has exited"):
        carry_out(Undo("continue", pair[0], "", "Continue?"), Job("node-7", (earlier,), 1))


def test_a_process_that_is_not_of_the_job_is_left_alone(pair: tuple[int, int]) -> None:
    with pytest.raises(NoJobError, match="has exited"):
        carry_out(Undo("continue", 1, "", "Continue?"), job_of(*pair))


def look(**switches: int) -> Look:
    """A look at processes p1, p2 ... by how often their main threads have run."""
    processes = (
        ProcessLook(int(name[1:]), 0, "S", threads=(Thread(1, "", "S", voluntary=count),))
        for name, count in switches.items()
    )
    return Look(0, tuple(processes))


def test_who_always_runs_did_not_wait() -> None:
    before, after = look(p1=5, p2=5, p3=5), look(p1=5, p2=6, p3=5)
    assert still(before, after, (1, 2)) == (1,)
    assert still(before, after, (3, 4)) == (3, 4)


_STOPS_THEN_SENDS = "import os, time; os.kill(os.getpid(), 19); print(flush=True); time.sleep(60)"
# As NCCL waits: it always runs, at the same place, until the other one goes on.
_SPINS = """
import os
os.set_blocking(0, False)
def wait():
    while True:
        try:
            if os.read(0, 1): return
        except BlockingIOError: pass
def work():
    while True: pass
print("up", flush=True)
wait()
work()
"""


def test_a_rank_that_waits_by_spinning_is_watched_by_its_place() -> None:
    first = subprocess.Popen([sys.executable, "-c", _STOPS_THEN_SENDS], stdout=subprocess.PIPE)
    second = subprocess.Popen(
        [sys.executable, "-c", _SPINS], stdin=first.stdout, stdout=subprocess.PIPE
    )
    try:
        assert second.stdout is not None
        assert second.stdout.readline() == b"up\n"
        wait_for(lambda: state(first.pid) == "T")
        job = job_of(first.pid, second.pid)
        assert not carry_out(Undo("continue", second.pid, "", ""), job, within_s=0.5)
        assert carry_out(Undo("continue", first.pid, "", ""), job)
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def diagnosis() -> Diagnosis:
    verdict = Verdict(
        state="stuck",
        cause="rank-stopped",
        culprits=(1,),
        victims=(0,),
        certainty="likely",
        summary="Rank 1 is stopped.",
    )
    ranks = (RankState(1, 4_711, "rank", "stopped", "", ""),)
    return Diagnosis(
        schema=SCHEMA,
        job=JobSeen(host="node-7", framework="unknown", world_size=2, ranks_seen=(0, 1)),
        verdict=verdict, ranks=ranks, cost=Cost(seconds=2.0, max_pause_ms=0.5),
    )  # fmt: skip


def test_what_it_showed_goes_into_the_verdict() -> None:
    undo = Undo("continue", 4_711, "", "Continue?")
    proven = confirmed(diagnosis(), undo, job_moved=True).verdict
    assert proven.evidence[0].rank == 1
    assert proven.evidence[0].text.startswith("confirmed: the job resumed after SIGCONT")
    assert proven.certainty == "proven"
    refuted = confirmed(diagnosis(), undo, job_moved=False).verdict
    assert refuted.evidence[0].text.startswith("the job did not resume")
    assert refuted.certainty == "possible"
