"""What the process that calls NVML answers, with a stand-in for NVML's functions."""

from __future__ import annotations

import io
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from grpo_doctor_probes.gpu import child
from grpo_doctor_probes.gpu.child import Reader, Sample
from grpo_doctor_probes.gpu.device import PROCESSES, Series
from grpo_doctor_probes.gpu.nvml import Device, NoNvml, Nvml, NvmlError, Trouble

S = 1_000_000_000
LOST = NvmlError(Trouble.LOST, "GPU is lost")
REFUSED = NvmlError(Trouble.UNSUPPORTED, "Not Supported")
LATER = NvmlError(Trouble.TRANSIENT, "Timeout")
POWER, UTIL = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates"
MEMORY, RUNNING = "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses"
ANSWERS = {
    UTIL: SimpleNamespace(gpu=40),
    MEMORY: SimpleNamespace(used=5, total=80),
    POWER: 300_000,
    "nvmlDeviceGetClockInfo": 1_980,
    "nvmlDeviceGetCurrentClocksEventReasons": 4,
    "nvmlDeviceGetPcieThroughput": 7,
    RUNNING: [SimpleNamespace(pid=12, usedGpuMemory=3)],
    "nvmlGpmQueryDeviceSupport": SimpleNamespace(isSupportedDevice=False),
}
NAMES = ("gpu.util", "gpu.memory_used", "gpu.power", "gpu.sm_clock", "gpu.throttle")
FAST = dict(zip(NAMES, (40, 5, 300.0, 1980, 4)))
SLOW = {"gpu.pcie_rx", "gpu.pcie_tx", f"gpu.{PROCESSES}"}


class Host(Nvml):
    """GPUs by index; those in `gone` do not answer. An error among the answers is raised."""

    def __init__(self, count: int = 1, changes: Mapping[str, Any] = ANSWERS) -> None:
        self.answers: dict[str, Any] = {**ANSWERS, "nvmlDeviceGetCount": count, **changes}
        self.lib: Any = MagicMock()  # its constants
        devices = (Device(index, f"GPU-{index}", index, "H100") for index in range(count))
        self.devices: list[Device | str] = list(devices)
        self.gone: set[int] = set()

    def call(self, function: str, *arguments: Any) -> Any:
        if arguments and arguments[0] in self.gone:
            raise LOST
        answer = self.answers.get(function, REFUSED)
        if isinstance(answer, NvmlError):
            raise answer
        return answer() if callable(answer) else answer

    def gpus(self) -> Iterator[Device | str]:
        yield from self.devices

    def gpu(self, index: int) -> Device:
        if index in self.gone:
            raise LOST
        device = self.devices[index]
        assert isinstance(device, Device)
        return device


@pytest.fixture
def open_on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Reader]:
    """A reader on this host, or where opening NVML fails."""

    def opened(host: Host | Exception, visible: str | None = None) -> Reader:
        def nvml() -> Host:
            if isinstance(host, Exception):
                raise host
            return host

        monkeypatch.setattr(child, "Nvml", nvml)
        return Reader({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})

    return opened


Open = Callable[..., Reader]


def of(sample: Sample, name: str) -> dict[str, float | None]:
    """Values of one name by GPU."""
    return {series.gpu: v for series, v in sample.values.items() if series.name == name}


def fast(sample: Sample) -> dict[str, float | None]:
    return {series.name: v for series, v in sample.values.items() if series.name not in SLOW}


def test_a_device_that_answers_all(open_on: Open) -> None:
    reader = open_on(Host())
    first = reader.read(0)
    assert fast(first) == FAST
    assert of(first, "gpu.pcie_rx") == of(first, "gpu.pcie_tx") == {"GPU-0": 7000}
    second = reader.read(S // 10)
    assert second.values[Series("gpu.process_memory", "bytes", "GPU-0", 12)] == 3
    (row,) = first.gpus
    assert (row.memory_total_bytes, row.visible) == (80, True)
    assert row.missing == ("gpm: not supported (compute capability below 9.0)",)
    assert (second.gpus, second.notes) == ([], [])


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (Device(0, "GPU-0", 0, "H100"), ""),
        (Device(0, "GPU-0", 0, "H100", mig_on=True), " while MIG is on"),
    ],
)
def test_what_a_device_never_answers_is_left_out_and_named(
    open_on: Open, device: Device, reason: str
) -> None:
    host = Host(1, {POWER: REFUSED, RUNNING: REFUSED})
    host.devices = [device]
    sample = open_on(host).read(0)
    assert fast(sample) == {name: v for name, v in FAST.items() if name != "gpu.power"}
    assert sample.gpus[0].mig == ("on" if device.mig_on else None)
    assert sample.gpus[0].missing[:2] == (
        f"power: not supported{reason}",
        f"{PROCESSES}: not supported{reason}",
    )


@pytest.mark.parametrize(
    ("host", "visible", "notes"),
    [
        (
            NoNvml("libnvidia-ml.so.1 not found"), None,
            ["no NVIDIA driver: GPU samples are off (libnvidia-ml.so.1 not found)"],
        ),
        (LATER, None, ["GPU samples are off: NVML lists no GPUs (Timeout)"]),
        (Host(0), None, ["the NVIDIA driver shows no GPU here: GPU samples are off"]),
        (Host(0), "MIG-7", ["the NVIDIA driver shows no GPU here: GPU samples are off",
                            "the job uses MIG instances: the GPU samples are of whole GPUs"]),
    ],
)  # fmt: skip
def test_a_host_without_gpus_says_why_once(
    open_on: Open, host: Host | Exception, visible: str | None, notes: list[str]
) -> None:
    reader = open_on(host, visible)
    assert reader.read(0).notes == notes
    assert reader.read(S) == Sample()


def test_all_gpus_are_read_and_those_of_the_job_are_marked(open_on: Open) -> None:
    host = Host(2)
    host.devices.append("GPU 2 cannot be opened: it is not sampled")
    first = open_on(host, "0").read(0)
    marked = [(row.uuid, row.visible) for row in first.gpus]
    assert marked == [("GPU-0", True), ("GPU-1", False)]
    assert first.notes == ["GPU 2 cannot be opened: it is not sampled"]
    assert of(first, "gpu.util") == {"GPU-0": 40, "GPU-1": 40}


def test_slow_numbers_take_turns_two_at_a_tick(open_on: Open) -> None:
    reader = open_on(Host(8))
    turns: Counter[tuple[str, str]] = Counter()
    for tick in range(120):
        read = [s for s in reader.read(tick * S // 10).values if s.name in SLOW]
        assert len(read) <= child.SLOW_PER_TICK
        turns.update((series.name, series.gpu) for series in read)
    assert len(turns) == 24
    assert set(turns.values()) == {10}  # 20 a second
    alone: Counter[str] = Counter()
    reader = open_on(Host())
    for tick in range(40):
        alone.update(s.name for s in reader.read(tick * S // 10).values if s.name in SLOW)
    assert alone == dict.fromkeys(SLOW, 4)


def test_a_lost_gpu_is_left_and_the_other_continues(open_on: Open) -> None:
    host = Host(2)
    reader = open_on(host, "1")
    reader.read(0)
    host.gone.add(1)
    lost = reader.read(S)
    assert lost.notes == ["GPU 1 (GPU-1) does not answer (gpu is lost): it is not sampled any more"]
    assert of(lost, "gpu.power") == {"GPU-0": 300.0, "GPU-1": None}
    for tick in range(10):
        later = reader.read(2 * S + tick)
        assert of(later, "gpu.power") == {"GPU-0": 300.0}
        assert {series.gpu for series in later.values} == {"GPU-0"}


@pytest.fixture
def answer(
    open_on: Open, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[dict[str, Any]]]:
    """The lines of a child on this host to these requests."""

    def lines(host: Host | Exception, requests: str, *arguments: str) -> list[dict[str, Any]]:
        open_on(host)
        monkeypatch.setattr(os, "_exit", lambda _: None)
        monkeypatch.setattr(sys, "stdin", io.StringIO(requests))
        child.main(arguments)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return lines


Answer = Callable[..., list[dict[str, Any]]]


def test_a_line_for_each_sample(answer: Answer) -> None:
    first, second = answer(Host(2), "sample 5\nsample 1000000005\n", "CUDA_VISIBLE_DEVICES=1")
    assert [row["visible"] for row in first["gpus"]] == [False, True]
    assert ["gpu.power", "W", "GPU-1", None, 300.0] in second["values"]


def looked_at(lines: list[dict[str, Any]]) -> dict[str, Any]:
    (gpu,) = [line["gpu"] for line in lines if "gpu" in line]
    assert isinstance(gpu, dict)
    return gpu


def test_all_numbers_of_one_look(answer: Answer) -> None:
    changes = {
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetMaxClockInfo": 2000,
        "nvmlDeviceGetTotalEccErrors": 3,
        "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"0000:3B"),
    }
    host = Host(1, changes)
    gpu = looked_at(answer(host, "look\n"))
    assert gpu.pop("at_ns") > 0
    assert gpu == {
        "index": 0, "uuid": "GPU-0", "name": "H100", "bus_id": "0000:3B", "utilization_pct": 40,
        "power_w": 300, "power_limit_w": 700, "sm_mhz": 1980, "sm_max_mhz": 2000,
        "memory_used_bytes": 5, "memory_total_bytes": 80, "throttle_bits": 4,
        "ecc_uncorrected": 3, "nvlink_errors": None, "nvlink_bytes": None,
        "pids": [12],
    }  # fmt: skip


def test_a_driver_that_refuses_everything_leaves_names(answer: Answer) -> None:
    lines = answer(Host(1, dict.fromkeys(ANSWERS, REFUSED)), "look\n")
    filled_in = {name for name, v in looked_at(lines).items() if v not in (None, "", [], 0)}
    assert filled_in == {"at_ns", "uuid", "name"}
    assert lines[-1] == {"end": True}


def test_a_lost_gpu_is_named_and_the_next_is_asked(answer: Answer) -> None:
    host = Host(2)
    host.gone.add(0)
    lines = answer(host, "look\n")
    assert {"lost": 0, "why": "gpu is lost"} in lines
    assert looked_at(lines)["index"] == 1
