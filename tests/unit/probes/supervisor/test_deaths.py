"""The ends of real processes, whether the kernel killed for memory, and who died first in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor_probes.supervisor import deaths
from grpo_doctor_probes.supervisor.deaths import (
    Death,
    DeathWatch,
    OomCounters,
    Subject,
    as_facts,
    kernel_line,
    obituary,
)
from tests.unit.probes.conftest import until

PATIENCE_S = 30


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_deaths_are_told_in_their_order(sleepers: list[subprocess.Popen[bytes]]) -> None:
    watch = DeathWatch()
    for rank, process in enumerate(sleepers):
        watch.watch(Subject(process.pid, f"rank {rank}", rank))
    for count, (rank, number) in enumerate([(2, signal.SIGKILL), (0, signal.SIGTERM)], start=1):
        sleepers[rank].send_signal(number)
        until(lambda count=count: len(watch.deaths) == count)  # type: ignore[misc]
    sleepers[1].kill()  # just before the end
    sleepers[1].wait()
    noted = watch.close()
    ends = [(d.subject.rank, d.signal) for d in noted]
    assert ends[:2] == [(2, "SIGKILL"), (0, "SIGTERM")]
    assert ends[2][0] == 1
    assert noted[0].at_ns < noted[1].at_ns


@pytest.mark.skipif(
    tuple(map(int, os.uname().release.split(".")[:2])) < (6, 15),
    reason="before Linux 6.15 a process that was collected tells nothing any more",
)
def test_a_process_that_its_parent_collects_at_once_still_tells(
    sleepers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "read_stat", lambda _: SimpleNamespace(state="X"))
    watch = DeathWatch()
    watch.watch(Subject(sleepers[0].pid, "rank 0", 0))
    sleepers[0].kill()
    sleepers[0].wait()  # as a launcher in waitpid does
    until(lambda: bool(watch.deaths))
    assert watch.close()[0].signal == "SIGKILL"


@pytest.mark.parametrize(
    ("ending", "status", "looks_at_kernel"),
    [
        ("kill -KILL $$", signal.SIGKILL, True),
        ("kill -TERM $$", signal.SIGTERM, False),
        ("exit 9", 9 << 8, False),
        ("exit 0", 0, False),
        ("exit 0", None, True),  # nobody knows any more how it ended
    ],
)
def test_what_killed_it_is_asked_where_it_may_have_been_the_kernel(
    monkeypatch: pytest.MonkeyPatch, ending: str, status: int | None, *, looks_at_kernel: bool
) -> None:
    class Grown(OomCounters):
        def grown(self, _: int) -> int:
            return 3

    monkeypatch.setattr(deaths, "OomCounters", Grown)
    monkeypatch.setattr(deaths, "kernel_line", lambda _: "Out of memory")
    if status is None:
        monkeypatch.setattr(deaths, "wait_status", lambda *_: None)
    process = subprocess.Popen(["sh", "-c", f"read x; {ending}"], stdin=subprocess.PIPE)
    watch = DeathWatch()
    watch.watch(Subject(process.pid, "rank 0", 0))
    assert process.stdin is not None
    process.stdin.close()
    until(lambda: bool(watch.deaths))
    (death,) = watch.close()
    process.wait()
    assert death.status == status
    assert (death.oom_kills, death.kernel) == ((3, "Out of memory") if looks_at_kernel else (0, ""))


@pytest.mark.parametrize(
    ("status", "name", "in_order"),
    [
        (None, None, False),
        (0, None, True),
        (5 << 8, None, False),
        (signal.SIGKILL, "SIGKILL", False),
        (signal.SIGSEGV | 0x80, "SIGSEGV", False),  # with a core
        (50, "signal 50", False),  # one of real time
    ],
)
def test_a_wait_status_in_words(status: int | None, name: str | None, *, in_order: bool) -> None:
    death = Death(Subject(7, "rank 0", 0), 1, status)
    assert (death.signal, death.in_order) == (name, in_order)


@pytest.mark.parametrize(
    ("zombie_after", "has_pidfd", "status", "pauses"),
    [
        (0, True, 9, 0),
        (0, False, 9, 0),
        (2, True, 9, 2),
        (99, True, None, 10),
        (99, False, None, 0),
    ],
)
def test_one_that_is_being_collected_is_looked_at_some_times(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    zombie_after: int,
    status: int | None,
    pauses: int,
    *,
    has_pidfd: bool,
) -> None:
    """Not where nothing tells that it is still there."""
    paused: list[float] = []

    def now() -> None:
        words = ["Z" if len(paused) >= zombie_after else "S", *["0"] * 48, "9"]
        (tmp_path / "7" / "stat").write_text(f"7 (python) {' '.join(words)}\n")

    def pause(seconds: float) -> None:
        paused.append(seconds)
        now()

    (tmp_path / "7").mkdir()
    now()
    monkeypatch.setattr(deaths, "time", SimpleNamespace(sleep=pause))
    no_pidfd = os.open(os.devnull, os.O_RDONLY)
    assert deaths.wait_status(7, no_pidfd if has_pidfd else None, tmp_path) == status
    assert len(paused) == pauses
    os.close(no_pidfd)


def test_without_pidfds_the_end_is_seen_at_the_next_check(
    sleepers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "pidfd_open", lambda _pid: None)
    watch = DeathWatch()
    watch.watch(Subject(sleepers[0].pid, "rank 0", 0))
    watch.check()
    assert watch.deaths == ()
    sleepers[0].kill()
    sleepers[0].wait()
    watch.check()
    assert [d.subject.rank for d in watch.close()] == [0]


def test_one_that_is_gone_already_and_one_watched_twice_are_no_trouble(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    watch = DeathWatch()
    watch.watch(Subject(2**22 + 1, "rank 9", 9))
    watch.watch(Subject(sleepers[0].pid, "a helper"))
    watch.watch(Subject(sleepers[0].pid, "rank 0", 0))
    sleepers[0].kill()
    until(lambda: bool(watch.deaths))
    (death,) = watch.close()
    assert death.subject.role == "rank 0"


def test_a_restarted_rank_is_watched_however_many_helpers_came_before(
    sleepers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_doctor_probes.supervisor.deaths._MOST", 1)
    watch = DeathWatch()
    for process, rank in zip(sleepers, (None, None, 0)):
        watch.watch(Subject(process.pid, "any", rank))
    watched = [watch.watches(process.pid) for process in sleepers]
    watch.close()
    assert watched == [True, False, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="making a control group needs root")
@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists(),
    reason="the memory controller is not of version 1 here",
)
def test_a_process_that_the_kernel_kills_for_memory_is_told(tmp_path: Path) -> None:
    group = Path(f"/sys/fs/cgroup/memory/grpo-doctor-test-{os.getpid()}")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 * 2**20))
        code = "import sys; sys.stdin.read(1); b = bytearray(256 << 20)"
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        (group / "cgroup.procs").write_text(str(process.pid))
        watch = DeathWatch()
        watch.watch(Subject(process.pid, "rank 1", 1))
        process.communicate(b"x", timeout=PATIENCE_S)
        until(lambda: bool(watch.deaths))
        (death,) = watch.close()
        assert (death.signal, death.oom_kills) == ("SIGKILL", 1)
        assert f"illed process {process.pid} " in death.kernel
    finally:
        group.rmdir()


def test_one_with_the_number_of_an_ended_one_is_watched_as_well(
    sleepers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    number, processes = 4711, iter(sleepers)
    monkeypatch.setattr(deaths, "pidfd_open", lambda _: os.pidfd_open(next(processes).pid))
    stat = tmp_path / str(number) / "stat"
    stat.parent.mkdir()
    stat.write_text(f"{number} (python) Z 1\n")
    watch = DeathWatch(tmp_path)
    watch.watch(Subject(number, "the helper of rank 0"))
    sleepers[0].kill()
    until(lambda: len(watch.deaths) == 1)
    watch.watch(Subject(number, "rank 0", 0))  # not collected yet: the same one still
    assert watch.watches(number)
    stat.write_text(f"{number} (python) S 1\n")
    assert not watch.watches(number)
    watch.watch(Subject(number, "rank 1", 1))
    assert watch.watches(number)
    sleepers[1].kill()
    until(lambda: len(watch.deaths) == 2)
    assert [death.subject.role for death in watch.close()] == ["the helper of rank 0", "rank 1"]


@pytest.mark.parametrize(
    ("cgroup", "name"),
    [
        ("0::/job\n", "job/memory.events"),
        ("0::/job\n", "memory.events"),  # a container sees its own group at the top
        ("4:memory:/job\n0::/\n", "memory/job/memory.oom_control"),
        ("4:memory:/host/path\n0::/\n", "memory/memory.oom_control"),
    ],
)
def test_kills_since_a_process_was_noted(tmp_path: Path, cgroup: str, name: str) -> None:
    for pid in (7, 8):
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "cgroup").write_text(cgroup)
    counted = tmp_path / "sys/fs/cgroup" / name
    counted.parent.mkdir(parents=True)
    counted.write_text("oom 9\noom_kill 3\n")
    counters = OomCounters(tmp_path / "proc", tmp_path / "sys")
    counters.note(7)
    counted.write_text("oom 9\noom_kill 5\n")
    assert counters.grown(7) == 2
    assert counters.grown(7) == 0  # its number may be another's by now
    counters.note(99)  # of no group
    assert [counters.grown(pid) for pid in (8, 99)] == [0, 0]


def record(at_s: float, text: str) -> bytes:
    return f"3,1,{round(at_s * 1e6)},-;{text}\n".encode()


SAID = "Out of memory: Killed process 77 (python) total-vm:9kB"


@pytest.mark.parametrize(
    ("records", "line"),
    [
        ([record(100, SAID)], SAID),
        ([record(40, SAID)], SAID),
        ([record(39.9, SAID)], ""),  # a minute ago its number may have been another's
        ([record(100, SAID.replace("77", "770"))], ""),
        ([record(100, "Memory cgroup out of memory: Killed process 77 (a)")] * 2, None),
        ([record(98, SAID), record(99, "usb 1-1: new device")], SAID),
        ([record(98, SAID), record(99, SAID + " again")], SAID + " again"),
        ([b"Killed process 77 (python)"], ""),
        ([], ""),
    ],
)
def test_what_the_kernel_said_lately_of_a_process(
    monkeypatch: pytest.MonkeyPatch, records: list[bytes], line: str | None
) -> None:
    monkeypatch.setattr(deaths, "records", lambda _: iter(records))
    monkeypatch.setattr(deaths, "time", SimpleNamespace(monotonic=lambda: 100.0))
    text = kernel_line(77)
    assert text == (records[0].partition(b";")[2].decode().strip() if line is None else line)


S = 1_000_000_000


def rank(number: int, at_s: float, status: int | None, **more: object) -> Death:
    subject = Subject(100 + number, f"rank {number}", number)
    return Death(subject, round(at_s * S), status, **more)  # type: ignore[arg-type]


def helper(at_s: float, status: int | None, *, serves: bool = False) -> Death:
    role = "the rollout engine" if serves else "a helper (gcc)"
    return Death(Subject(7, role, None, serves), round(at_s * S), status)


def test_the_first_is_named_with_signal_phase_and_memory_or_the_kernels_words() -> None:
    deaths = [rank(0, 10.4, 1 << 8), rank(1, 10.0, signal.SIGKILL, oom_kills=1)]
    first, then = obituary(deaths, {101: "reward"})
    assert first == (
        "rank 1 (pid 101) died first, by SIGKILL, while in reward; "
        "the kernel killed it for memory (memory.events oom_kill +1)"
    )
    assert then == "then rank 0 (pid 100) 0.4 s later, with exit code 1"
    killed = rank(1, 10.0, signal.SIGKILL, kernel="Out of memory: Killed process 101 (a)\x1b[2J")
    (sentence,) = obituary([killed], {})  # of a group without a counter
    assert sentence.endswith("the kernel says: Out of memory: Killed process 101 (a)?[2J")


@pytest.mark.parametrize(
    ("earlier_s", "serves", "mentioned"),
    [(60.0, True, True), (60.1, True, False), (1.0, False, False), (0.0, True, True)],
)
def test_a_helper_that_ended_shortly_before_is_told_if_ranks_need_it(
    earlier_s: float, *, serves: bool, mentioned: bool
) -> None:
    engine = helper(100.0 - earlier_s, 3 << 8, serves=serves)
    sentences = obituary([engine, rank(0, 100.0, 1 << 8)], {})
    before = f"the rollout engine (pid 7) had ended {earlier_s:.1f} s before that, with exit code 3"
    assert sentences[1:] == [before] * mentioned


@pytest.mark.parametrize(
    ("status", "kernel", "cause"),
    [
        (signal.SIGSEGV, "", True),
        (signal.SIGABRT, "", True),
        (signal.SIGKILL, "", False),
        (signal.SIGTERM, "", False),
        (1 << 8, "", False),
        (signal.SIGKILL, "Out of memory: Killed process 7 (gcc)", True),
    ],
)
def test_of_what_a_helper_must_die_to_be_the_first(
    status: int, kernel: str, *, cause: bool
) -> None:
    death = Death(Subject(7, "a helper (gcc)"), 9 * S, status, kernel=kernel)
    first, *_ = obituary([rank(0, 10.0, 1 << 8), death], {})
    assert first.startswith("a helper (gcc) (pid 7) died first" if cause else "rank 0 (pid 100)")


@pytest.mark.parametrize(
    ("status", "words"),
    [(5 << 8, "ended first, with exit code 5"), (None, "ended first, cause unknown")],
)
def test_an_exit_code_or_an_unknown_end_is_no_death(status: int | None, words: str) -> None:
    assert obituary([rank(2, 1, status)], {}) == [f"rank 2 (pid 102) {words}"]


@pytest.mark.parametrize(
    ("followers", "words"), [(1, ""), (3, ""), (4, " and 1 more"), (8, " and 5 more")]
)
def test_three_followers_are_named(followers: int, words: str) -> None:
    first, then = obituary([rank(n, 10 + n, signal.SIGTERM) for n in range(followers + 1)], {})
    assert first == "rank 0 (pid 100) died first, by SIGTERM"
    listed = [
        f"rank {n} (pid {100 + n}) {n}.0 s later, by SIGTERM" for n in range(1, followers + 1)
    ]
    assert then == f"then {', '.join(listed[:3])}{words}"


def test_followers_are_ranks_that_failed() -> None:
    deaths = [rank(0, 10, 1 << 8), helper(11, signal.SIGSEGV), rank(1, 12, 0), rank(2, 13, None)]
    assert obituary(deaths, {})[1:] == ["then rank 2 (pid 102) 3.0 s later, cause unknown"]
    assert len(obituary(deaths[:3], {})) == 1


@pytest.mark.parametrize("deaths", [[], [rank(0, 1, 0)], [helper(1, None)]])
def test_nothing_is_said_of_a_good_end(deaths: list[Death]) -> None:
    assert obituary(deaths, {}) == []


def test_all_that_is_known_of_a_death_is_a_fact() -> None:
    killed = rank(1, 2, signal.SIGKILL, oom_kills=1, kernel="Out of memory")
    assert as_facts([rank(0, 3, 5 << 8), killed], {101: "train"}) == [
        {
            "pid": 101, "role": "rank 1", "rank": 1, "at_ns": 2 * S, "wait_status": 9,
            "signal": "SIGKILL", "phase": "train", "oom_kills": 1, "kernel": "Out of memory",
        },
        {
            "pid": 100, "role": "rank 0", "rank": 0, "at_ns": 3 * S, "wait_status": 5 << 8,
            "signal": None, "phase": None, "oom_kills": 0, "kernel": None,
        },
    ]  # fmt: skip
