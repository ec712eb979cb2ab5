"""Two samples of a device and what lies between them, with a stand-in for NVML."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.samplers import gpm
from grpo_doctor_probes.samplers.nvml import Device, Nvml, NvmlError, Trouble


class FakeNvml(Nvml):
    """Counts samples and answers with two metrics, the second of which failed."""

    def __init__(self, *, supported: bool = True, refuses: str = "") -> None:
        self.supported, self.refuses = supported, refuses
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.lib: Any = SimpleNamespace(
            NVML_GPM_METRIC_SM_UTIL=2, NVML_GPM_METRIC_ANY_TENSOR_UTIL=5,
            NVML_GPM_METRICS_GET_VERSION=1,
            c_nvmlGpmMetricsGet_t=lambda: SimpleNamespace(
                metrics=[SimpleNamespace(value=30 + n, nvmlReturn=n) for n in range(2)]
            ),
        )  # fmt: skip

    def call(self, function: str, *arguments: Any) -> Any:
        self.calls.append((function, arguments))
        if function == self.refuses:
            raise NvmlError(Trouble.UNSUPPORTED, "refused")
        if function == "nvmlGpmQueryDeviceSupport":
            return SimpleNamespace(isSupportedDevice=self.supported)
        return len(self.calls)

    def calls_of(self, function: str) -> list[tuple[Any, ...]]:
        return [arguments for name, arguments in self.calls if name == function]


DEVICE = Device("whole", "GPU-a", 0, "H100")


def test_means_come_from_the_second_call_on_and_never_twice_in_110_ms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = FakeNvml()
    pair = gpm.Gpm(nvml, DEVICE)
    now = [5_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    assert pair.read() == {}
    now[0] += gpm.MIN_INTERVAL_NS - 1
    assert pair.read() == {}
    assert not nvml.calls_of("nvmlGpmMetricsGet")
    now[0] += 1
    assert list(pair.read().values()) == [30.0, None]
    assert [track.name for track in pair.tracks] == ["gpu.sm_active", "gpu.tensor_active"]
    assert nvml.calls_of("nvmlGpmQueryDeviceSupport") == [("whole",)]
    assert all(arguments[0] == "whole" for arguments in nvml.calls_of("nvmlGpmSampleGet"))
    pair.close()
    pair.close()
    assert len(nvml.calls_of("nvmlGpmSampleFree")) == 2


def test_an_instance_is_asked_through_its_gpu() -> None:
    nvml = FakeNvml()
    part = Device("part", "MIG-a", 0, "H100", parent="GPU-a", parent_handle="whole", gpu_instance=7)
    pair = gpm.Gpm(nvml, part)
    pair.read()
    assert nvml.calls_of("nvmlGpmQueryDeviceSupport") == [("whole",)]
    assert [arguments[:2] for arguments in nvml.calls_of("nvmlGpmMigSampleGet")] == [
        ("whole", 7)
    ] * 2
    assert {track.gpu for track in pair.tracks} == {"MIG-a"}


def test_an_older_device_and_a_refused_sample_are_no_pair() -> None:
    with pytest.raises(NvmlError, match="compute capability below"):
        gpm.Gpm(FakeNvml(supported=False), DEVICE)
    nvml = FakeNvml(refuses="nvmlGpmSampleGet")
    with pytest.raises(NvmlError, match="refused"):
        gpm.Gpm(nvml, DEVICE)
    assert len(nvml.calls_of("nvmlGpmSampleFree")) == 2
