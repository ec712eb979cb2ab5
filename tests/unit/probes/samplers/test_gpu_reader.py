"""All GPUs of a host, with a stand-in for NVML's functions: who is read, lost and found again."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.samplers import gpu_child
from grpo_doctor_probes.samplers.gpu_child import GpuReader, decoded
from grpo_doctor_probes.samplers.nvml import Device, NoNvml, NvmlError, Trouble
from grpo_doctor_probes.samplers.tracks import Reading
from tests.unit.probes.samplers.test_gpu_fields import LOST, POWER, FakeNvml

S = 1_000_000_000
UTIL = "nvmlDeviceGetUtilizationRates"


class Host(FakeNvml):
    """GPUs by index; those in `gone` do not answer."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.devices: list[Device | str] = [
            Device(index, f"GPU-{index}", index, "H100") for index in range(count)
        ]
        self.parts: list[Device] = []
        self.gone: set[int] = set()
        self.reopened = self.closed = 0
        self.requests: list[tuple[str, Any]] = []

    def call(self, function: str, *arguments: Any) -> Any:
        handle = arguments[0] if arguments else None
        self.requests.append((function, handle))
        if handle in self.gone:
            raise LOST
        if function == UTIL:
            return SimpleNamespace(gpu=10 * (handle or 0))
        return super().call(function, *arguments)

    def gpus(self) -> Iterator[Device | str]:
        if not self.devices:
            return
        yield from self.devices

    def instances(self, gpu: Device) -> Iterator[Device]:
        yield from (part for part in self.parts if part.parent == gpu.uuid)

    def again(self, device: Device) -> Device:
        if device.handle in self.gone:
            raise LOST
        return device

    def reopen(self) -> None:
        self.reopened += 1

    def close(self) -> None:
        self.closed += 1


def reader(
    monkeypatch: pytest.MonkeyPatch, host: Host | Exception, visible: str | None = None
) -> GpuReader:
    def opened() -> Host:
        if isinstance(host, Exception):
            raise host
        return host

    monkeypatch.setattr(gpu_child, "Nvml", opened)
    return GpuReader({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})


def power(reading: Reading) -> dict[str | None, float | None]:
    return {t.gpu: value for t, value in reading.values.items() if t.name == "gpu.power"}


def test_without_a_driver_that_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = reader(monkeypatch, NoNvml("libnvidia-ml.so.1 not found"))
    assert reads.read(0).notes == [
        "no NVIDIA driver: GPU samples are off (libnvidia-ml.so.1 not found)"
    ]
    assert reads.read(S) == Reading()
    reads.close()


def test_a_driver_without_gpus_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(0)
    reads = reader(monkeypatch, host)
    assert reads.read(0).notes == ["the NVIDIA driver shows no GPU here: GPU samples are off"]
    assert reads.read(S) == Reading()
    assert host.reopened == 0
    reads.close()
    reads.close()
    assert host.closed == 1


def test_a_driver_that_lists_no_gpus_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(1)

    def refuse() -> Iterator[Device | str]:
        raise NvmlError(Trouble.TRANSIENT, "Timeout")

    monkeypatch.setattr(host, "gpus", refuse)
    reads = reader(monkeypatch, host)
    assert reads.read(0).notes == ["GPU samples are off: NVML lists no GPUs (Timeout)"]
    assert reads.read(S) == Reading()


def test_all_gpus_are_read_and_those_of_the_job_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(2)
    host.parts = [Device(5, "MIG-5", 1, "H100", mig="1g", parent="GPU-1")]
    host.devices.append("GPU 2 cannot be opened: it is not sampled")
    reads = reader(monkeypatch, host, visible="0")
    first = reads.read(0)
    assert [(row.uuid, row.visible) for row in first.gpus] == [
        ("GPU-0", True), ("GPU-1", False), ("MIG-5", False),
    ]  # fmt: skip
    assert first.notes == ["GPU 2 cannot be opened: it is not sampled"]
    utils = {t.gpu: value for t, value in first.values.items() if t.name == "gpu.util"}
    assert utils == {"GPU-0": 0, "GPU-1": 10, "MIG-5": 50}
    second = reads.read(S)
    assert (second.gpus, second.notes) == ([], [])
    assert power(second) == {"GPU-0": 300.0, "GPU-1": 300.0, "MIG-5": 300.0}


@pytest.mark.parametrize(("second", "notes"), [("H100", 0), ("A100", 1)])
def test_an_order_that_is_uncertain_is_said(
    monkeypatch: pytest.MonkeyPatch, second: str, notes: int
) -> None:
    host = Host(2)
    host.devices[1] = Device(1, "GPU-1", 1, second)
    texts = reader(monkeypatch, host, visible="0").read(0).notes
    assert len(texts) == notes
    assert all("CUDA_DEVICE_ORDER=PCI_BUS_ID" in note for note in texts)


def test_slow_numbers_take_turns_and_come_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(2)
    reads = reader(monkeypatch, host)
    names = [
        {(t.name, t.gpu) for t in reads.read(at * S // 10).values if "pcie" in t.name}
        for at in range(21)
    ]
    fields = [name for tick in names for name in tick]
    assert set(fields) == {
        (f"gpu.pcie_{link}", f"GPU-{at}") for link in ("rx", "tx") for at in (0, 1)
    }
    assert all(2 <= fields.count(name) <= 3 for name in set(fields))


def test_a_lost_gpu_is_tried_each_second_and_the_other_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(2)
    reads = reader(monkeypatch, host, visible="1")
    reads.read(0)
    host.gone.add(1)
    lost = reads.read(S)
    assert lost.notes == ["GPU 1 (GPU-1) does not answer (gpu is lost): trying again every second"]
    assert power(lost) == {"GPU-0": 300.0, "GPU-1": None}
    assert power(reads.read(S + S // 2)) == {"GPU-0": 300.0}
    host.gone.clear()
    assert power(reads.read(2 * S - 1)) == {"GPU-0": 300.0}
    reading = reads.read(2 * S)
    assert reading.notes == ["GPU 1 (GPU-1) answers again"]
    assert [(row.uuid, row.visible) for row in reading.gpus] == [("GPU-1", True)]
    assert power(reading) == {"GPU-0": 300.0, "GPU-1": 300.0}
    assert host.reopened == 0
    # Its slow numbers still come once a second, and those of the other one as well.
    host.requests.clear()
    for tick in range(10):
        reads.read(4 * S + tick * S // 10)
    slow = [handle for function, handle in host.requests if function.endswith("PcieThroughput")]
    assert sorted(slow) == [0, 0, 1, 1]


def test_a_gpu_that_is_lost_at_first_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(2)
    host.gone.add(0)
    reads = reader(monkeypatch, host)
    first = reads.read(0)
    assert first.notes == ["GPU 0 (GPU-0) does not answer: trying again every second"]
    assert power(first) == {"GPU-1": 300.0}
    host.gone.clear()
    assert power(reads.read(2 * S)) == {"GPU-0": 300.0, "GPU-1": 300.0}


def test_nvml_is_opened_anew_once_a_second_while_all_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a reset of the driver no old handle works."""
    host = Host(2)
    reads = reader(monkeypatch, host)
    reads.read(0)
    host.gone |= {0, 1}
    reads.read(S)
    counts = []
    for at_ns in (S + 1, S + S // 2, 2 * S, 2 * S + 1, 3 * S + 1):
        reads.read(at_ns)
        counts.append(host.reopened)
    assert counts == [1, 1, 1, 2, 3]
    host.gone.clear()
    assert power(reads.read(5 * S)) == {"GPU-0": 300.0, "GPU-1": 300.0}
    assert host.reopened == 4
    reads.read(7 * S)
    assert host.reopened == 4


def test_a_driver_that_cannot_be_opened_anew_is_tried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(1)
    reads = reader(monkeypatch, host)
    reads.read(0)
    host.gone.add(0)

    def refuse() -> None:
        raise NoNvml("nvmlInit: Driver Not Loaded")

    monkeypatch.setattr(host, "reopen", refuse)
    for second in range(1, 5):
        reads.read(second * S)
    host.gone.clear()
    assert power(reads.read(9 * S)) == {"GPU-0": 300.0}


def test_a_line_for_each_time_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Host(2)
    host.answers[POWER] = 200_000
    reader(monkeypatch, host)
    monkeypatch.setattr(os, "_exit", lambda _: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO("5\n1000000005\n"))
    gpu_child.main(["CUDA_VISIBLE_DEVICES=1"])
    first, second = (decoded(line) for line in capsys.readouterr().out.splitlines())
    assert [row.visible for row in first.gpus] == [False, True]
    assert power(second) == {"GPU-0": 200.0, "GPU-1": 200.0}
    assert host.closed == 1


def test_what_nobody_expected_of_a_driver_is_a_line_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader(monkeypatch, RuntimeError("boom"))
    monkeypatch.setattr(os, "_exit", lambda _: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO("5\n"))
    gpu_child.main([])
    line = capsys.readouterr().out
    assert json.loads(line) == {"error": "RuntimeError: boom"}
    with pytest.raises(ValueError, match="RuntimeError: boom"):
        decoded(line)
