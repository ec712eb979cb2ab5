"""The ends of real processes, heard from beside them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor_probes.supervisor import deaths
from grpo_doctor_probes.supervisor.deaths import Death, DeathWatch, OomCounters, Subject

PATIENCE_S = 30


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def reaped_at_once(watch: DeathWatch, process: subprocess.Popen[bytes]) -> Death:
    """Kills it and collects it at once, as a launcher in waitpid does."""
    watch.watch(Subject(process.pid, "rank 0", 0))
    process.kill()
    process.wait()
    wait_for(lambda: bool(watch.deaths))
    return watch.deaths[0]


def test_deaths_are_told_in_their_order(sleepers: list[subprocess.Popen[bytes]]) -> None:
    watch = DeathWatch()
    for rank, process in enumerate(sleepers):
        watch.watch(Subject(process.pid, f"rank {rank}", rank))
    for count, (rank, number) in enumerate([(2, signal.SIGKILL), (0, signal.SIGTERM)], start=1):
        sleepers[rank].send_signal(number)
        wait_for(lambda count=count: len(watch.deaths) == count)  # type: ignore[misc]
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
    monkeypatch.setattr(deaths, "_of_zombie", lambda _pid, _proc: None)
    watch = DeathWatch()
    assert reaped_at_once(watch, sleepers[0]).signal == "SIGKILL"
    watch.close()


def test_an_end_of_which_nothing_is_left_is_still_told(
    sleepers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "wait_status", lambda *_: None)
    watch = DeathWatch()
    death = reaped_at_once(watch, sleepers[0])
    assert (death.status, death.signal, death.in_order) == (None, None, False)
    watch.close()


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
    wait_for(lambda: bool(watch.deaths))
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
    wait_for(lambda: bool(watch.deaths))
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
        wait_for(lambda: bool(watch.deaths))
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
    wait_for(lambda: len(watch.deaths) == 1)
    watch.watch(Subject(number, "rank 0", 0))  # not collected yet: the same one still
    assert watch.watches(number)
    stat.write_text(f"{number} (python) S 1\n")
    assert not watch.watches(number)
    watch.watch(Subject(number, "rank 1", 1))
    assert watch.watches(number)
    sleepers[1].kill()
    wait_for(lambda: len(watch.deaths) == 2)
    assert [death.subject.role for death in watch.close()] == ["the helper of rank 0", "rank 1"]
