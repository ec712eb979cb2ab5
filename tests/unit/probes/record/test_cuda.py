"""GPU times from events that complete later, and the capture mode in which they are made.

Stand-ins for torch.cuda and for CUDA's runtime play the device.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grpo_doctor_probes import phase, step
from grpo_doctor_probes.record import cuda, recorder
from grpo_doctor_probes.record.cuda import capture_mode
from tests.recording import Row
from tests.unit.probes.conftest import Recorded, in_threads


@dataclass
class Device:
    """Events complete when `done` has passed their time; nothing here ever waits."""

    now: float = 0.0
    done: float = 0.0
    capturing: bool = False
    broken: bool = False
    relaxed: bool = False  # the mode of the thread that does the steps
    current: int = 0
    made: int = 0
    events: list[Event] = field(default_factory=list)

    def tick(self, milliseconds: float) -> None:
        self.now += milliseconds

    def __enter__(self) -> None:
        assert not self.relaxed
        self.relaxed = True

    def __exit__(self, *_: object) -> None:
        self.relaxed = False


@dataclass(eq=False)
class Event:
    device: Device
    at: float = -1.0
    index: int = -1

    def record(self) -> None:
        if self.device.broken:
            raise RuntimeError("CUDA error: device-side assert triggered")
        assert self.index in {-1, self.device.current}, "an event belongs to one device"
        assert self.device.relaxed, "another thread may capture a graph"
        self.at, self.index = self.device.now, self.device.current

    def query(self) -> bool:
        assert self.device.relaxed, "another thread may capture a graph"
        assert not self.device.capturing
        return self.at <= self.device.done

    def elapsed_time(self, end: Event) -> float:
        assert self.query(), "asked before it was known"
        assert end.query(), "asked before it was known"
        assert self.index == end.index
        return end.at - self.at

    def synchronize(self) -> None:
        raise AssertionError("the recorder never waits for the GPU")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()

    def make(enable_timing: bool) -> Event:
        assert enable_timing
        device.made += 1
        return Event(device)

    cuda: Any = ModuleType("torch.cuda")
    cuda.is_initialized = lambda: True
    cuda.is_current_stream_capturing = lambda: device.capturing
    cuda.current_device = lambda: device.current
    cuda.Event = make
    torch: Any = ModuleType("torch")
    torch.cuda = cuda
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr("grpo_doctor_probes.record.cuda.capture_mode", lambda: device)
    return device


def cuda_rows(recording: Recorded) -> list[Row]:
    return [r for r in recording.rows if r.kind == "cuda"]


def train(device: Device, number: int) -> None:
    with step(number):
        with phase("rollout"):
            device.tick(600)
        with phase("train"):
            device.tick(400)


@pytest.mark.parametrize(("done", "most"), [(1e12, 12), (0.0, 40)])
def test_events_are_used_again_and_what_waits_is_bounded(
    recording: Recorded, device: Device, monkeypatch: pytest.MonkeyPatch, done: float, most: int
) -> None:
    monkeypatch.setattr("grpo_doctor_probes.record.cuda._MAX_PENDING", 10)
    device.done = done
    for number in range(20):
        train(device, number)
    assert device.made <= most
    dropped = recording.header.dropped
    assert bool(dropped) is (not done)
    recorder.stop()  # what never completes is counted
    assert recording.header.dropped == dropped + (0 if done else 10)


def test_nothing_is_asked_while_a_graph_is_captured(recording: Recorded, device: Device) -> None:
    train(device, 0)
    device.done = 1e12
    with step(1):
        device.capturing = True
        for _ in range(10):
            with phase("rollout"):
                pass
        assert cuda_rows(recording) == []
        device.capturing = False
        with phase("late"):
            device.capturing = True  # an event at one end alone is none
        device.capturing = False
    recorder.stop()
    assert {r.name for r in cuda_rows(recording)} == {"rollout", "train", "step"}
    assert len(cuda_rows(recording)) == 3
    assert recording.header.errors == 0


def test_a_recording_that_ends_within_a_capture_asks_nothing(
    recording: Recorded, device: Device
) -> None:
    train(device, 0)
    device.done, device.capturing = 1e12, True
    recorder.stop()
    header = recording.header
    assert (cuda_rows(recording), header.errors, header.dropped) == ([], 0, 2)


def test_threads_of_a_reward_get_no_events(recording: Recorded, device: Device) -> None:
    device.done = 1e12

    def reward() -> None:
        device.current = 0  # what a new thread has, the rank's being 1
        with phase("reward/mine"):
            device.tick(5)
        device.current = 1

    device.current = 1
    with step(0), phase("reward"):
        made = device.made
        in_threads(reward)
        assert device.made == made
    recorder.stop()
    assert {r.name for r in cuda_rows(recording)} == {"reward"}
    assert recording.header.errors == 0


@pytest.mark.parametrize(
    ("local_rank", "visible", "timed"),
    [("1", None, True), ("0", None, False), (None, None, False), ("0", "3", True)],
)
def test_steps_of_another_thread_are_timed_on_the_ranks_own_device_only(
    recording: Recorded,
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    local_rank: str | None,
    visible: str | None,
    timed: bool,
) -> None:
    for name, value in (("LOCAL_RANK", local_rank), ("CUDA_VISIBLE_DEVICES", visible)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    device.current, device.done = 1, 1e12

    def two_steps() -> None:
        train(device, 0)
        train(device, 1)

    in_threads(two_steps)
    assert bool(cuda_rows(recording)) == timed
    assert bool(device.made) == timed


def test_without_a_way_to_ask_safely_nothing_is_asked(
    recording: Recorded, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    monkeypatch.setattr("grpo_doctor_probes.record.cuda.capture_mode", lambda: looks.append(1))
    for number in range(50):
        train(device, number)
    assert device.made == 0
    assert len(looks) == 8
    assert recording.header.errors == 0


def test_an_error_of_the_device_is_met_once(recording: Recorded, device: Device) -> None:
    with step(0):
        device.broken = True
        for _ in range(100):
            with phase("train"):
                pass
    assert len([r for r in recording.rows if r.name == "train"]) == 100
    assert recording.header.errors == 1
    with phase("after"):
        pass
    assert recording.rows[-1].depth == 0


def test_several_devices_keep_their_events_apart(recording: Recorded, device: Device) -> None:
    device.done = 1e12
    with step(0):
        for number in range(8):
            device.current = number % 2
            with phase("train"):
                device.tick(5)
        with phase("rollout"):
            device.current = 1 - device.current
    recorder.stop()
    assert [r.value for r in cuda_rows(recording)] == [5.0] * 8
    assert recording.header.errors == 0


def test_torch_without_cuda_is_left_alone(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = ModuleType("torch")
    torch.cuda = ModuleType("torch.cuda")
    torch.cuda.is_initialized = lambda: False
    monkeypatch.setitem(sys.modules, "torch", torch)
    with step(0), phase("train"):
        pass
    assert cuda_rows(recording) == []
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))  # being imported
    with step(1):
        pass
    assert recording.header.errors == 0


RUNTIME = """
int fails = 0;
static __thread int mode = 0;
int cudaThreadExchangeStreamCaptureMode(int *given) {
    int before = mode;
    if (fails) return fails;
    mode = *given;
    *given = before;
    return 0;
}
int now(void) { return mode; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runtime of which nothing is loaded yet."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build a library that stands in for CUDA's runtime")
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "runtime.c").write_text(RUNTIME)
    built = folder / "libcudart.so.12"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", str(built), str(folder / "runtime.c")], check=True
    )
    return built


@pytest.fixture
def runtime(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ctypes.CDLL]:
    """The runtime, loaded and the only one in what stands for our mappings."""
    loaded = ctypes.CDLL(str(library))
    lines = Path("/proc/self/maps").read_text().splitlines(keepends=True)
    (tmp_path / "maps").write_text("".join(line for line in lines if str(library) in line))
    monkeypatch.setattr(cuda, "MAPS", str(tmp_path / "maps"))
    yield loaded
    ctypes.c_int.in_dll(loaded, "fails").value = 0


def test_a_thread_is_relaxed_within_and_as_before_afterwards(runtime: ctypes.CDLL) -> None:
    mode = capture_mode()
    assert mode is not None
    for _ in range(2):
        with mode:
            assert runtime.now() == 2
        assert runtime.now() == 0
    with pytest.raises(ZeroDivisionError), mode:
        _ = 1 / 0
    assert runtime.now() == 0


def test_where_the_runtime_refuses_nothing_is_asked(runtime: ctypes.CDLL) -> None:
    mode = capture_mode()
    assert mode is not None
    ctypes.c_int.in_dll(runtime, "fails").value = 100
    with pytest.raises(OSError, match="CUDA error 100"), mode:
        pytest.fail("it was asked")


@pytest.mark.parametrize(
    "text",
    ["", "7f00-7f01 r--p 00000000 08:01 7 /gone/libcudart.so.12\n", "7f00-7f01 r--p 0 0 0\n"],
)
def test_without_a_runtime_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "maps").write_text(text)
    monkeypatch.setattr(cuda, "MAPS", str(tmp_path / "maps"))
    assert capture_mode() is None
    monkeypatch.setattr(cuda, "MAPS", str(tmp_path / "missing"))
    assert capture_mode() is None
