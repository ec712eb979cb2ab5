"""The loop that samples: its rows, its clock, and how often a part is read."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.gpu.device import GpuRow
from grpo_doctor_probes.samplers.sampler import Sampling, SystemClock
from grpo_doctor_probes.samplers.tracks import Pace, Reading, Track

S = 1_000_000_000
LOAD = Track("host.psi_io", "%")
UTIL = Track("gpu.util", "%", gpu="GPU-1")
HIDDEN = Track("gpu.util", "%", gpu="GPU-2")


class ScriptedClock(SystemClock):
    """Jumps to each deadline at once, and after `ticks` ticks blocks until the loop is stopped."""

    def __init__(self, ticks: int) -> None:
        self.now_ns = 1000 * S
        self._left = ticks

    def monotonic_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return 5

    def wait_until(self, deadline_ns: int, stop: threading.Event) -> bool:
        self._left -= 1
        if self._left <= 0:
            return stop.wait()
        self.now_ns = max(self.now_ns, deadline_ns)
        return stop.is_set()


class Scripted:
    """A source that answers what it is told."""

    def __init__(self, name: str, answer: Callable[[int], Reading]) -> None:
        self.name = name
        self.closed = 0
        self._answer = answer
        self._calls = 0

    def read(self, now_ns: int) -> Reading:
        self._calls += 1
        return self._answer(self._calls)

    def close(self) -> None:
        self.closed += 1


def record(tmp_path: Path, ticks: int, *sources: Scripted, **options: Any) -> Sampling:
    clock = options.pop("clock", None) or ScriptedClock(ticks)
    sampling = Sampling(tmp_path, "a", 1, sources=sources, clock=clock, **options)
    sampling.start()
    assert sampling.wait_for_ticks(ticks, timeout_s=30)
    return sampling


def rows(sampling: Sampling) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sampling.path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("broken", "why"),
    [("raises", "RuntimeError: boom"), ("text", "TypeError: gpu.util is 'high', not a number")],
)
def test_a_broken_source_is_named_once_and_the_others_go_on(
    tmp_path: Path, broken: str, why: str
) -> None:
    def fails_at_the_third(call: int) -> Reading:
        if call == 3 and broken == "raises":
            raise RuntimeError("boom")
        wrong: Any = "high"
        return Reading({UTIL: wrong if call == 3 else 50 + call})

    healthy = Scripted("host", lambda call: Reading({LOAD: call}))
    gpu = Scripted("gpu", fails_at_the_third)
    sampling = record(tmp_path, 5, gpu, healthy)
    sampling.stop()
    assert (gpu.closed, healthy.closed) == (1, 1)
    notes = [row["note"] for row in rows(sampling) if "note" in row]
    assert notes == [f"the gpu sampler failed and is off ({why}); other samplers continue"]
    values = [row["v"] for row in rows(sampling) if "v" in row]
    assert values == [{"0": 51, "1": 1}, {"0": 52, "1": 2}, {"0": None, "1": 3}, {"1": 4}, {"1": 5}]
    assert sampling.latest() == {"host.psi_io": 5}


def test_the_rate_halves_whenever_the_file_has_grown_by_the_limit(tmp_path: Path) -> None:
    source = Scripted("host", lambda call: Reading({LOAD: call}))
    sampling = record(tmp_path, 60, source, limit_bytes=1000)
    sampling.stop()
    notes = [row for row in rows(sampling) if "hz" in row and "note" in row]
    assert [row["hz"] for row in notes] == [5.0, 2.5]
    assert "sampling at 5 Hz" in notes[0]["note"]
    times = [row["t"] for row in rows(sampling) if "v" in row]
    assert times[1] - times[0] == S // 10
    assert times[-1] - times[-2] == 4 * S // 10


def test_a_full_disk_is_remembered_and_sampling_goes_on(tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    (tmp_path / "hosts" / "a.samples.jsonl").symlink_to("/dev/full")
    sampling = record(tmp_path, 5, Scripted("host", lambda call: Reading({LOAD: call})))
    assert sampling.problem is not None
    assert ": No space left on device; the run continues" in sampling.problem
    assert str(sampling.path) in sampling.problem
    assert sampling.latest() == {"host.psi_io": 5}
    sampling.stop()


def test_a_row_that_cannot_be_written_is_noted_once_and_costs_its_tick(tmp_path: Path) -> None:
    no_json: Any = GpuRow("GPU-1", 0, "H200", 1, None, True, (b"bytes",))  # type: ignore[arg-type]
    source = Scripted("gpu", lambda call: Reading({UTIL: 1}, [no_json] if call < 3 else []))
    sampling = record(tmp_path, 2, source, clock=ScriptedClock(4))
    sampling.stop()
    (note,) = [row["note"] for row in rows(sampling) if "note" in row]
    assert "TypeError" in note
    assert [row["v"] for row in rows(sampling) if "v" in row] == [{"0": 1}]


def test_latest_is_the_mean_over_the_gpus_of_the_job(tmp_path: Path) -> None:
    gpus = [
        GpuRow("GPU-1", 0, "H200", 1, None, True, ()),
        GpuRow("GPU-2", 1, "H200", 1, None, False, ()),
        GpuRow("GPU-3", 2, "H200", 1, None, True, ()),
    ]
    third = Track("gpu.util", "%", gpu="GPU-3")
    source = Scripted("gpu", lambda call: Reading({UTIL: 40, HIDDEN: 100, third: 60}, gpus))
    sampling = record(tmp_path, 1, source)
    assert sampling.latest() == {"gpu.util": 50}
    sampling.stop()


def test_a_source_that_never_returns_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_doctor_probes.samplers.sampler._STOP_WAIT_S", 0.05)
    reached, release = threading.Event(), threading.Event()

    def blocks(call: int) -> Reading:
        reached.set()
        release.wait()
        return Reading({UTIL: 1})

    sampling = Sampling(tmp_path, "a", 1, sources=[Scripted("gpu", blocks)], clock=ScriptedClock(9))
    sampling.start()
    assert reached.wait(30)
    sampling.stop()
    _, note, end = rows(sampling)
    assert note["note"] == "the gpu sampler does not return: it was abandoned"
    assert end["end"] is True
    release.set()
    assert sampling.wait_for_ticks(1, timeout_s=30)
    assert len(rows(sampling)) == 3


@pytest.mark.parametrize("hz", [0, -1, 1e6, float("nan")])
def test_an_impossible_rate_is_refused(tmp_path: Path, hz: float) -> None:
    with pytest.raises(ValueError, match=r"0\.01 to 100"):
        Sampling(tmp_path, "a", 1, hz=hz)
    sampling = Sampling(tmp_path, "a", 1)
    sampling.stop()  # before its start
    assert not sampling.path.exists()


MS = 1_000_000


def test_a_cheap_part_keeps_its_period_in_spite_of_jitter() -> None:
    pace = Pace(1000 * MS)
    assert pace.due(0)
    pace.done(0, cpu_ns=1000)
    assert not pace.due(990 * MS - 1)
    assert pace.due(990 * MS)


def test_the_system_clock_waits_and_can_be_stopped() -> None:
    clock, stop = SystemClock(), threading.Event()
    deadline_ns = clock.monotonic_ns() + 5 * MS
    assert not clock.wait_until(deadline_ns, stop)
    assert clock.monotonic_ns() >= deadline_ns
    assert not clock.wait_until(0, stop)
    stop.set()
    assert clock.wait_until(clock.monotonic_ns() + 10_000 * MS, stop)
    assert abs(clock.unix_ns() - time.time_ns()) < 10_000 * MS
