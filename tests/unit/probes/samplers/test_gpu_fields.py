"""What one GPU says and refuses to say, with a stand-in for NVML's functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.samplers import gpu_device
from grpo_doctor_probes.samplers.gpu_device import PROCESSES, RETRY_NS, Gpu
from grpo_doctor_probes.samplers.nvml import Device, Nvml, NvmlError, Trouble
from grpo_doctor_probes.samplers.tracks import Track

LOST = NvmlError(Trouble.LOST, "GPU is lost")
REFUSED = NvmlError(Trouble.UNSUPPORTED, "Not Supported")
LATER = NvmlError(Trouble.TRANSIENT, "Timeout")
ANSWERS = {
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=40),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=5, total=80),
    "nvmlDeviceGetPowerUsage": 300_000,
    "nvmlDeviceGetClockInfo": 1_980,
    "nvmlDeviceGetCurrentClocksEventReasons": 4,
    "nvmlDeviceGetPcieThroughput": 7,
    "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=12, usedGpuMemory=3)],
    "nvmlGpmQueryDeviceSupport": SimpleNamespace(isSupportedDevice=False),
}
POWER, UTIL = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates"
RUNNING = "nvmlDeviceGetComputeRunningProcesses"


class FakeNvml(Nvml):
    """Functions of pynvml by name; an error among the answers is raised."""

    def __init__(self, **changes: Any) -> None:
        self.answers: dict[str, Any] = {**ANSWERS, **changes}
        self.lib: Any = SimpleNamespace(
            nvmlMemory_v2=2, NVML_CLOCK_SM=1, NVML_PCIE_UTIL_RX_BYTES=1, NVML_PCIE_UTIL_TX_BYTES=0
        )
        self._memory_v2 = True

    def call(self, function: str, *arguments: Any) -> Any:
        answer = self.answers.get(function, REFUSED)
        if isinstance(answer, NvmlError):
            raise answer
        return answer

    def again(self, device: Device) -> Device:
        if isinstance(self.answers[POWER], NvmlError):
            raise self.answers[POWER]
        return device


def gpu(**changes: Any) -> tuple[Gpu, FakeNvml]:
    nvml = FakeNvml(**changes)
    probed = Gpu(nvml, Device(None, "GPU-a", 0, "H100"))
    probed.probe()
    return probed, nvml


def fast(probed: Gpu) -> dict[str, float | None]:
    return {track.name: value for track, value in probed.read_fast().items()}


def test_a_device_that_says_all() -> None:
    probed, _ = gpu()
    assert fast(probed) == {
        "gpu.util": 40,
        "gpu.memory_used": 5,
        "gpu.power": 300.0,
        "gpu.sm_clock": 1980,
        "gpu.throttle": 4,
    }
    assert probed.slow == ["pcie_rx", "pcie_tx", PROCESSES]
    assert [*probed.read_slow("pcie_rx").values()] == [7000]
    row = probed.row(visible=True)
    assert (row.memory_total_bytes, row.visible) == (80, True)
    assert row.missing == ("gpm: not supported (compute capability below 9.0)",)


def test_what_a_device_never_answers_is_left_out_and_named() -> None:
    probed, _ = gpu(**{POWER: REFUSED, RUNNING: REFUSED})
    assert "gpu.power" not in fast(probed)
    assert PROCESSES not in probed.slow
    missing = probed.row(visible=False).missing
    assert missing[:2] == ("power: not supported", f"{PROCESSES}: not supported")


def test_what_fails_for_a_moment_is_asked_again() -> None:
    probed, nvml = gpu(**{POWER: LATER})
    assert fast(probed)["gpu.power"] is None
    nvml.answers[POWER] = 200_000
    assert fast(probed)["gpu.power"] == 200.0


def test_a_device_that_answers_nothing_is_lost() -> None:
    probed, nvml = gpu()
    nvml.answers |= dict.fromkeys(ANSWERS, LATER)
    nvml.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = LATER
    with pytest.raises(NvmlError) as raised:
        probed.read_fast()
    assert raised.value.trouble is Trouble.LOST
    nvml.answers[UTIL] = ANSWERS[UTIL]
    assert fast(probed)["gpu.util"] == 40


@pytest.mark.parametrize("function", [POWER, UTIL, "nvmlDeviceGetMemoryInfo"])
def test_a_lost_device_is_told_at_once(function: str) -> None:
    probed, nvml = gpu()
    nvml.answers[function] = LOST
    with pytest.raises(NvmlError, match="GPU is lost"):
        probed.read_fast()
    again, _ = gpu(**{function: LOST})
    assert again.lost
    assert again.row(visible=True).missing == ("all: GPU is lost",)


def test_the_tracks_of_a_lost_device_end_and_it_is_tried_once_a_second() -> None:
    probed, nvml = gpu()
    names = set(fast(probed))
    nvml.answers[POWER] = LOST
    assert {track.name: value for track, value in probed.lose(10).items()} == dict.fromkeys(names)
    nvml.answers[POWER] = 100_000
    assert not probed.revive(10 + RETRY_NS - 1)
    nvml.answers[POWER] = LOST
    assert not probed.revive(10 + RETRY_NS)
    assert probed.lost
    nvml.answers[POWER] = 100_000
    assert not probed.revive(10 + RETRY_NS + 1)
    assert probed.revive(10 + 2 * RETRY_NS)
    assert not probed.lost


def test_memory_that_is_not_told_for_a_moment_loses_no_device() -> None:
    probed, nvml = gpu(nvmlDeviceGetMemoryInfo=LATER)
    assert not probed.lost
    assert probed.row(visible=True).memory_total_bytes is None
    assert fast(probed)["gpu.memory_used"] is None
    nvml.answers["nvmlDeviceGetMemoryInfo"] = ANSWERS["nvmlDeviceGetMemoryInfo"]
    assert fast(probed)["gpu.memory_used"] == 5


def test_a_device_that_says_how_busy_its_cores_were(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, answers = Track("gpu.sm_active", "%", gpu="GPU-a"), {"now": 12.5}
    refused: list[NvmlError] = []

    class Pair:
        tracks = (busy,)

        def __init__(self, *_: object) -> None:
            pass

        def read(self) -> dict[Track, float | None]:
            if refused:
                raise refused.pop()
            return {busy: answers["now"]}

        def close(self) -> None:
            pass

    monkeypatch.setattr(gpu_device, "Gpm", Pair)
    probed, _ = gpu()
    assert fast(probed)["gpu.sm_active"] == 12.5
    assert probed.row(visible=True).missing == ()
    refused.append(LATER)
    assert fast(probed)["gpu.sm_active"] is None
    refused.append(LOST)
    with pytest.raises(NvmlError, match="GPU is lost"):
        probed.read_fast()
    probed.close()
    assert "gpu.sm_active" not in fast(probed)


def test_a_process_that_has_left_the_device_has_no_memory_there() -> None:
    probed, nvml = gpu()
    assert [(t.pid, v) for t, v in probed.read_slow(PROCESSES).items()] == [(12, 3)]
    nvml.answers[RUNNING] = [SimpleNamespace(pid=13, usedGpuMemory=4)]
    read = {track.pid: value for track, value in probed.read_slow(PROCESSES).items()}
    assert read == {12: None, 13: 4}
    nvml.answers[RUNNING] = LATER
    assert {track.pid: v for track, v in probed.read_slow(PROCESSES).items()} == {
        12: None,
        13: None,
    }


def test_where_reasons_for_throttling_have_their_old_name() -> None:
    probed, nvml = gpu(nvmlDeviceGetCurrentClocksEventReasons=REFUSED)
    assert "gpu.throttle" not in fast(probed)
    nvml.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = 8
    probed.probe()
    assert fast(probed)["gpu.throttle"] == 8
