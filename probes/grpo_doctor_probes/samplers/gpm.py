"""GPU performance monitoring (GPM, Hopper and later): how busy the SMs and tensor cores were.

`gpu.util` says only that some kernel was running; GPM counts the SMs that were. The numbers are
differences of two samples, at least 100 ms apart (NVML API reference, nvmlGpmMetricsGet).
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from grpo_doctor_probes.samplers.nvml import Device, Nvml, NvmlError, Trouble
from grpo_doctor_probes.samplers.tracks import Track

MIN_INTERVAL_NS = 110_000_000
_NVML_SUCCESS = 0


class Gpm:
    """The sample pair of one device. Raises NvmlError at construction where GPM is missing."""

    def __init__(self, nvml: Nvml, device: Device) -> None:
        self._nvml, self._device = nvml, device
        # A MIG instance is asked for through its GPU.
        gpu = device.handle if device.parent is None else device.parent_handle
        if not nvml.call("nvmlGpmQueryDeviceSupport", gpu).isSupportedDevice:
            raise NvmlError(Trouble.UNSUPPORTED, "not supported (compute capability below 9.0)")
        lib = nvml.lib
        self._metrics = (
            (Track("gpu.sm_active", "%", gpu=device.uuid), lib.NVML_GPM_METRIC_SM_UTIL),
            (Track("gpu.tensor_active", "%", gpu=device.uuid), lib.NVML_GPM_METRIC_ANY_TENSOR_UTIL),
        )
        self._samples: list[Any] = []
        self._sampled_ns: int | None = None
        self._request = lib.c_nvmlGpmMetricsGet_t()
        self._request.version = lib.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(self._metrics)
        for index, (_, metric) in enumerate(self._metrics):
            self._request.metrics[index].metricId = metric
        try:
            for _ in range(2):
                self._samples.append(nvml.call("nvmlGpmSampleAlloc"))
            self._take_sample(self._samples[1])
        except NvmlError:
            self.close()
            raise

    @property
    def tracks(self) -> tuple[Track, ...]:
        """The tracks that `read` gives values for."""
        return tuple(track for track, _ in self._metrics)

    def read(self) -> dict[Track, float | None]:
        """The means since the previous call; nothing at the first call and when it is too early."""
        previous_ns = self._sampled_ns
        if previous_ns is not None and time.monotonic_ns() - previous_ns < MIN_INTERVAL_NS:
            return {}
        self._samples.reverse()
        self._take_sample(self._samples[1])
        self._sampled_ns = time.monotonic_ns()
        if previous_ns is None:
            return {}
        self._request.sample1, self._request.sample2 = self._samples
        self._nvml.call("nvmlGpmMetricsGet", self._request)
        values: dict[Track, float | None] = {}
        for index, (track, _) in enumerate(self._metrics):
            answer = self._request.metrics[index]
            values[track] = float(answer.value) if answer.nvmlReturn == _NVML_SUCCESS else None
        return values

    def close(self) -> None:
        """Give the samples back."""
        while self._samples:
            with contextlib.suppress(NvmlError):
                self._nvml.call("nvmlGpmSampleFree", self._samples.pop())

    def _take_sample(self, sample: Any) -> None:
        nvml, device = self._nvml, self._device
        if device.parent is None:
            nvml.call("nvmlGpmSampleGet", device.handle, sample)
        else:
            nvml.call("nvmlGpmMigSampleGet", device.parent_handle, device.gpu_instance, sample)
