"""GPU times from events that complete later. A stand-in for torch.cuda plays the device."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from grpo_doctor_probes import phase, recorder, step
from tests.recording import Row
from tests.unit.probes.conftest import Recorded


@dataclass
class Device:
    """Events complete when `done` has passed their time; nothing here ever waits."""

    now: float = 0.0
    done: float = 0.0
    capturing: bool = False
    broken: bool = False
    current: int = 0
    made: int = 0
    events: list[Event] = field(default_factory=list)

    def tick(self, milliseconds: float) -> None:
        self.now += milliseconds


@dataclass(eq=False)
class Event:
    device: Device
    at: float = -1.0
    index: int = -1

    def record(self) -> None:
        if self.device.broken:
            raise RuntimeError("CUDA error: device-side assert triggered")
        assert self.index in {-1, self.device.current}, "an event belongs to one device"
        self.at, self.index = self.device.now, self.device.current

    def query(self) -> bool:
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
    return device


def cuda_rows(recording: Recorded) -> list[Row]:
    return [r for r in recording.rows if r.kind == "cuda"]


def train(device: Device, number: int) -> None:
    with step(number):
        with phase("rollout"):
            device.tick(600)
        with phase("train"):
            device.tick(400)


def test_times_are_recorded_when_the_device_gets_there(recording: Recorded, device: Device) -> None:
    train(device, 0)  # CUDA is seen in use at the first step's begin
    assert cuda_rows(recording) == []
    device.done = 700
    with step(1):
        pass
    assert [(r.name, r.value) for r in cuda_rows(recording)] == [("rollout", 600)]
    device.done = 10_000
    recorder.stop()
    rows = [(r.name, r.value) for r in cuda_rows(recording)]
    assert rows == [("rollout", 600), ("train", 400), ("step", 0)]
    host = {(r.name, r.start_ns, r.end_ns, r.depth) for r in recording.rows if r.kind == "span"}
    assert {(r.name, r.start_ns, r.end_ns, r.depth) for r in cuda_rows(recording)[:2]} == host
    assert recording.header.dropped == 0


def test_what_never_completes_is_counted(recording: Recorded, device: Device) -> None:
    train(device, 0)
    recorder.stop()
    assert cuda_rows(recording)[0:0] == []
    assert recording.header.dropped == 2
    assert recording.header.errors == 0


def test_events_are_used_again(recording: Recorded, device: Device) -> None:
    device.done = 1e12
    for number in range(50):
        train(device, number)
    assert device.made <= 12


def test_what_waits_is_bounded(
    recording: Recorded, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_doctor_probes.cuda._MAX_PENDING", 10)
    for number in range(20):
        train(device, number)
    assert device.made < 40
    assert recording.header.dropped > 0


def test_deep_spans_get_no_events(recording: Recorded, device: Device) -> None:
    device.done = 1e12
    with step(0), phase("a"), phase("b"), phase("c"), phase("d"):
        pass
    recorder.stop()
    assert {r.name for r in cuda_rows(recording)} == {"a", "b"}


def test_graph_capture_is_left_alone(recording: Recorded, device: Device) -> None:
    device.done = 1e12
    with step(0):
        device.capturing = True
        with phase("rollout"):
            pass
        device.capturing = False
        with phase("train"):
            device.capturing = True
        device.capturing = False
    recorder.stop()
    assert cuda_rows(recording) == []
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
