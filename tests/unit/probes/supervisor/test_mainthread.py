"""What main threads do, of a /proc made of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_doctor_probes.supervisor.observe import BUSY_SHARE, Observer
from grpo_doctor_probes.supervisor.standing import Lengths

S = 1_000_000_000
MS = 1_000_000
TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")


class Thread:
    """A main thread as the kernel tells it, and what is made of that."""

    def __init__(self, proc: Path, pid: int = 7, *, schedstat: bool = True) -> None:
        self.pid, self._schedstat = pid, schedstat
        self._folder = proc / str(pid) / "task" / str(pid)
        self._folder.mkdir(parents=True)
        self.threads = Observer(Lengths(), proc)
        self.is_now()

    def is_now(self, state: str = "S", ran_ms: float = 0, sleeps: int | None = 5) -> None:
        ticks = int(ran_ms) // TICK_MS
        stat = f"{self.pid} (python) {state} 1 7 7 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 5\n"
        (self._folder / "stat").write_text(stat)
        counted = "" if sleeps is None else f"voluntary_ctxt_switches:\t{sleeps}\n"
        (self._folder / "status").write_text(f"Name:\tpython\n{counted}nonvoluntary:\t9\n")
        if self._schedstat:
            (self._folder / "schedstat").write_text(f"{round(ran_ms * MS)} 7 9\n")

    def look(self, at_s: float) -> tuple[str, float, float, float]:
        """Its state, and since when it is in that, was busy, and slept, in seconds."""
        activity = self.threads._look([self.pid], round(at_s * S))[self.pid]
        since_s, busy_s, slept_s = (
            at_ns / S for at_ns in (activity.since_ns, activity.busy_ns, activity.slept_ns)
        )
        return activity.state, since_s, busy_s, slept_s


@pytest.fixture
def thread(tmp_path: Path) -> Thread:
    return Thread(tmp_path)


def test_a_thread_is_in_a_state_since_it_was_first_seen_in_it(thread: Thread) -> None:
    assert thread.look(10)[:2] == ("S", 10)
    assert thread.look(12)[:2] == ("S", 10)
    thread.is_now("D")
    assert thread.look(14)[:2] == ("D", 14)
    assert thread.look(16)[:2] == ("D", 14)
    thread.is_now("S")
    assert thread.look(18)[:2] == ("S", 18)


@pytest.mark.parametrize(("ran_ms", "busy"), [(0, False), (40, False), (40.001, True)])
def test_a_thread_is_busy_that_runs_for_more_than_a_fiftieth(
    thread: Thread, ran_ms: float, *, busy: bool
) -> None:
    assert BUSY_SHARE == 0.02
    thread.is_now(ran_ms=500)
    assert thread.look(8)[2] == 8
    assert thread.look(10)[2] == 8
    thread.is_now(ran_ms=500 + ran_ms)
    assert thread.look(12)[2] == (12 if busy else 8)


def test_a_thread_that_sleeps_has_let_go_of_its_core(thread: Thread) -> None:
    thread.look(10)
    assert thread.look(12)[3] == 10
    thread.is_now(sleeps=6)
    assert thread.look(14)[3] == 14
    assert thread.look(16)[3] == 14
    thread.is_now(sleeps=None)  # not counted: as if it always did
    assert thread.look(18)[3] == 18
    assert thread.look(20)[3] == 20


def test_a_kernel_without_schedstat_counts_in_ticks(tmp_path: Path) -> None:
    thread = Thread(tmp_path, schedstat=False)
    thread.look(10)
    thread.is_now(ran_ms=10 * TICK_MS)
    assert thread.look(11)[2] == 11
    thread.threads.close()


def test_who_is_not_asked_about_any_more_is_forgotten(tmp_path: Path) -> None:
    thread, second = Thread(tmp_path), Thread(tmp_path, 8)
    thread.look(10)
    assert set(thread.threads._look([8], 12 * S)) == {8}
    assert thread.look(14)[:2] == ("S", 14)
    assert thread.threads._look([second.pid, 7], 16 * S)[8].since_ns == 16 * S


def test_who_has_ended_or_is_damaged_is_left_out(thread: Thread, tmp_path: Path) -> None:
    (tmp_path / "9" / "task" / "9").mkdir(parents=True)
    for name in ("stat", "status", "schedstat"):
        (tmp_path / "9" / "task" / "9" / name).write_text("nonsense\n")
    assert set(thread.threads._look([7, 8, 9], 10 * S)) == {7}
    thread.threads.close()
    assert thread.threads._look([], 11 * S) == {}
