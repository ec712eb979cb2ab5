"""Where a rank stands, and what its headers teach about lengths."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from grpo_doctor_probes.procs.live import Header
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.supervisor.standing import (
    BETWEEN_PHASES,
    FACTOR,
    FIRST_S,
    FLOOR_S,
    GONE,
    OF_TIMEOUT,
    OUTSIDE_OF_PHASES,
    SILENT,
    SPINNING,
    STANDSTILL_S,
    STOPPED,
    Follower,
    Headers,
    Lengths,
    MainThread,
    Standing,
)
from tests.recording import write_recording
from tests.unit.probes.supervisor.watched import S, header, span

STEP = span("step", 1, layout.STEP)


def test_a_damaged_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "00000.spans").write_bytes(b"short")
    assert Headers(tmp_path).read() == []


def test_processes_go_by_our_numbers_though_they_know_themselves_by_others(tmp_path: Path) -> None:
    """In a container the recorder writes the number that the process has there."""
    first, second, copy = 11, 12, 13
    for rank, pid, start_ns, stem in (
        (0, first, 5, "00000"), (0, second, 7, f"00000.{second}"), (1, copy, 5, "00001"),
    ):  # fmt: skip
        write_recording(tmp_path, rank, pid=pid, start_ns=start_ns, stem=stem)
    own = {4711: first, 4712: second, 4713: copy, 4714: copy}
    for pid, number in own.items():
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "status").write_text(f"NSpid:\t{pid}\t{number}\n")
    headers = Headers(tmp_path, tmp_path / "proc")
    assert [h.pid for h in headers.read({4711: 0, 4713: 1})] == [4711, 4713]
    assert [h.pid for h in headers.read({4712: 0, 4713: 1})] == [4712, 4713]
    assert [h.pid for h in headers.read({})] == [4711, 4713]  # they have ended
    elsewhere = Headers(tmp_path, tmp_path / "proc")  # its rank 2 has the number of our rank 1
    assert [h.pid for h in elsewhere.read({4712: 0, 4714: 2})] == [4712, copy]


@pytest.mark.parametrize(
    ("files", "ranks", "pids"),
    [
        ({"00000": (10, 5), "00000.11": (11, 7)}, {}, [10]),
        ({"00000": (10, 5), "00000.11": (11, 7)}, {11: 0}, [11]),
        ({"00000": (10, 5), "00000.11": (11, 3)}, {11: 0}, [10]),  # of two the one begun last
        ({"00000": (10, 5), "00000.11": (11, 5)}, {11: 0}, [11]),
        ({"00000.11": (11, 7), "00000.12": (12, 8)}, {11: 0}, [11]),
        ({"00000.11.1": (11, 7)}, {11: 0}, [11]),  # of a container with the same number
        ({"00000.x": (11, 7), "0x.11": (11, 7)}, {11: 0}, []),
        ({"actor-00000": (11, 7)}, {11: 0}, []),
        ({}, {11: 0}, []),
    ],
)
def test_which_file_is_a_ranks(
    tmp_path: Path, files: dict[str, tuple[int, int]], ranks: dict[int, int], pids: list[int]
) -> None:
    for stem, (pid, start_ns) in files.items():
        write_recording(tmp_path, 0, pid=pid, start_ns=start_ns, stem=stem)
    assert [h.pid for h in Headers(tmp_path, tmp_path / "proc").read(ranks)] == pids


def at(place: str, *, first: bool = False, waits: bool = False) -> Standing:
    return Standing(0, 7, place, 0, first, waits)


@pytest.mark.parametrize(
    ("lengths_s", "first", "limit_s"),
    [
        ((), True, FIRST_S),
        ((), False, FLOOR_S),
        ((0.4,) * 50, False, FLOOR_S),
        ((100.0,) * 99 + (200.0,) * 5, False, FACTOR * 200),
        ((1000.0,) + (20.0,) * 300, False, FACTOR * 20),  # the latest 256
        ((40.0, 30.0), False, FACTOR * 40),  # nearest rank
        (tuple(map(float, range(101, 0, -1))), False, FACTOR * 100),
        (tuple(map(float, range(1, 201))), False, FACTOR * 198),
    ],
)
def test_limits_follow_from_what_was_seen(
    lengths_s: tuple[float, ...], limit_s: float, *, first: bool
) -> None:
    lengths = Lengths()
    for length_s in lengths_s:
        lengths.learn("rollout", length_s)
    assert lengths.knows("rollout") is bool(lengths_s)
    assert lengths.limit_s(at("rollout", first=first)) == limit_s
    assert lengths.limit_s(at("train")) == FLOOR_S
    assert lengths.limit_s(at(GONE)) == lengths.limit_s(at(STOPPED)) == STANDSTILL_S


def test_the_users_limit_holds_for_all_until_it_was_wrong() -> None:
    lengths = Lengths(fixed_s=7.0)
    lengths.learn("rollout", 300.0)
    assert {lengths.limit_s(at(place)) for place in ("rollout", "init", GONE)} == {7}
    lengths.tolerate("rollout", 8.0)
    assert lengths.limit_s(at("rollout")) == 16


def test_who_may_wait_is_inspected_once_before_the_backend_gives_up() -> None:
    lengths = Lengths(timeout_s=600)
    lengths.learn("train", 1000.0)
    assert lengths.limit_s(at("train")) == FACTOR * 1000
    assert lengths.limit_s(at("train", waits=True)) == OF_TIMEOUT * 600
    lengths.tolerate("train", 400.0)
    assert lengths.limit_s(at("train", waits=True)) == OF_TIMEOUT * 600
    lengths.tolerate("train", 481.0)
    assert lengths.limit_s(at("train", waits=True)) == FACTOR * 1000


class Known(Lengths):
    """Remembers what it was taught."""

    def __init__(self) -> None:
        super().__init__()
        self.taught: list[tuple[str, float]] = []

    def learn(self, name: str, length_s: float) -> None:
        super().learn(name, length_s)
        self.taught.append((name, length_s))


GATHER, ROLLOUT = layout.COLLECTIVE, ("rollout", "reward")


@pytest.mark.parametrize(
    ("looks", "place", "since_s", "first", "waits"),
    [
        ([(header(STEP, span("rollout", 2)), 30)], "rollout", 2, True, False),
        # Only the first span of a name is the first, and it stays so.
        ([(header(STEP, span("rollout", 2)), 3), (header(STEP, span("rollout", 2)), 90)],
         "rollout", 2, True, False),
        ([(header(STEP, span("rollout", 2)), 3), (header(STEP, span("rollout", 95)), 96)],
         "rollout", 95, False, False),
        # One that was too short to be seen open is known from the table of names.
        ([(header(STEP, span("rollout", 2), names=ROLLOUT), 3),
          (header(STEP, span("reward", 50), names=ROLLOUT), 51)], "reward", 50, False, False),
        ([(header(STEP, names=("step", 'rollout\x1f{"to": "cpu"}')), 3),
          (header(STEP, span("rollout", 3.0)), 5)], "rollout", 3, True, False),
        ([(header(STEP, names=("step", 'rollout\x1f{"to": "cpu"}')), 3),
          (header(STEP, span("rollout", 3.001)), 5)], "rollout", 3.001, False, False),
        # A collective waits, and is as new as its phase.
        ([(header(STEP, span("reward", 2), span("all_gather", 4, GATHER)), 5)],
         "reward, in all_gather", 4, True, True),
        ([(header(STEP, span("reward", 2), span("all_gather", 4, GATHER)), 5),
          (header(STEP, span("reward", 22), span("all_gather", 24, GATHER)), 25)],
         "reward, in all_gather", 24, False, True),
        ([(header(STEP, span("wait", 4, layout.COLLECTIVE_WAIT)), 5)], "wait", 4, True, True),
        ([(header(), 3)], OUTSIDE_OF_PHASES, 3, True, False),
        ([(header(), 3), (header(STEP), 8), (header(), 9)], OUTSIDE_OF_PHASES, 9, False, False),
        # What is in no phase counts from when it was first seen so, unless one came and went.
        ([(header(STEP, span("rollout", 2)), 3), (header(STEP), 10), (header(STEP), 14)],
         BETWEEN_PHASES, 10, True, False),
        ([(header(STEP), 10), (header(STEP, begun_s=10), 12)], BETWEEN_PHASES, 10, True, False),
        ([(header(STEP), 10), (header(STEP, begun_s=10.001), 14)], BETWEEN_PHASES, 14, True, False),
        # Threads beside the one with the steps do not count.
        ([(header(span("prefetch", 1), span("step", 2, layout.STEP, thread=1),
                  span("train", 3, thread=1)), 4)], "train", 3, True, False),
    ],
)  # fmt: skip
def test_where_a_rank_is_after_some_looks(
    looks: list[tuple[Header, float]], place: str, since_s: float, *, first: bool, waits: bool
) -> None:
    follower = Follower(Lengths())
    for latest, at_s in looks:
        standing = follower.follow(latest, round(at_s * S))
    assert (standing.place, standing.since_ns / S) == (place, since_s)
    assert (standing.first, standing.waits) == (first, waits)


def test_what_began_before_the_end_of_a_hang_or_an_absence_is_no_example() -> None:
    lengths = Known()
    follower = Follower(lengths)
    follower.follow(header(STEP, span("reward", 2)), 300 * S)
    follower.follow(header(STEP, span("train", 400)), 401 * S, 350 * S)
    follower.follow(header(STEP, span("reward", 402)), 403 * S, 350 * S)
    follower.follow(header(STEP), 405 * S, 350 * S)
    assert lengths.taught == [("train", 3.0), ("reward", 3.0)]


TICK_NS = S // os.sysconf("SC_CLK_TCK")


class Kernel:
    """What a kernel reports of the main thread of process 7."""

    def __init__(self, proc: Path, *, schedstat: bool, counts_sleeps: bool) -> None:
        self.folder = proc / "7" / "task" / "7"
        self.folder.mkdir(parents=True)
        self._schedstat, self._counts_sleeps = schedstat, counts_sleeps
        self._ran_ns, self._sleeps = S, 5
        self.then()
        self.thread = MainThread(7, 0, 10 * S, proc)

    def then(self, *, ran_ns: int = 0, sleeps: int = 0) -> None:
        """It has used its core for so long, and let go of it so often."""
        self._ran_ns += ran_ns
        self._sleeps += sleeps
        ticks = self._ran_ns // TICK_NS
        stat = f"7 (python) S 1 7 7 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 5\n"
        (self.folder / "stat").write_text(stat)
        counted = f"voluntary_ctxt_switches:\t{self._sleeps}\n" if self._counts_sleeps else ""
        (self.folder / "status").write_text(f"Name:\tpython\n{counted}")
        if self._schedstat:
            (self.folder / "schedstat").write_text(f"{self._ran_ns} 7 9\n")

    def at(self, at_s: float) -> tuple[str, float]:
        standing = self.thread.look(round(at_s * S))
        assert (standing.pid, standing.first, standing.waits) == (7, True, True)
        return standing.place, standing.since_ns / S


@pytest.mark.parametrize("schedstat", [True, False])
@pytest.mark.parametrize("counts_sleeps", [True, False])  # gVisor does not
def test_where_a_rank_without_spans_is(
    tmp_path: Path, *, schedstat: bool, counts_sleeps: bool
) -> None:
    kernel = Kernel(tmp_path, schedstat=schedstat, counts_sleeps=counts_sleeps)
    assert kernel.at(10) == (SPINNING, 10)
    kernel.then(ran_ns=S)
    assert kernel.at(12) == (SPINNING, 10 if counts_sleeps else 12)
    kernel.then(ran_ns=S, sleeps=1)
    assert kernel.at(14) == (SPINNING, 14)
    kernel.then(ran_ns=2 * TICK_NS)  # of 2 s: 1%
    assert kernel.at(16) == (SPINNING, 14 if counts_sleeps else 16)
    assert kernel.at(17) == (SPINNING, 14 if counts_sleeps else 17)
    assert kernel.at(17.001) == (SILENT, 14)
    assert kernel.at(60) == (SILENT, 14)
    kernel.then(ran_ns=3 * S)
    assert kernel.at(61)[0] == SPINNING


def test_a_rank_that_has_ended_is_nowhere(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, schedstat=True, counts_sleeps=True)
    shutil.rmtree(kernel.folder)
    with pytest.raises(OSError, match="stat"):
        kernel.thread.look(11 * S)
