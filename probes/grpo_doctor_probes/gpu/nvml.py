"""The part of NVML that is used here, typed, behind one kind of error.

`pynvml` (nvidia-ml-py) loads `libnvidia-ml.so.1` by its name; functions that an old driver or an
old nvidia-ml-py lacks are "unsupported" here, like those that the device refuses. Reference: NVML
API reference, and nvml.h for the error codes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Trouble(Enum):
    """What an NVML error means for the caller."""

    UNSUPPORTED = "this device will never answer that"
    LOST = "the device or the driver has gone"
    TRANSIENT = "not now"


class NvmlError(Exception):
    """An NVML call failed."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        super().__init__(text)
        self.trouble = trouble


class NoNvml(Exception):  # noqa: N818 - it is a state of the host, not a fault
    """There is no NVML on this host; the message says why."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. `mig_on`: it is partitioned into MIG instances, which are not modeled."""

    handle: Any
    uuid: str
    index: int
    name: str
    mig_on: bool = False


_UNSUPPORTED = (
    "INVALID_ARGUMENT",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "FUNCTION_NOT_FOUND",
    "ARGUMENT_VERSION_MISMATCH",
    "DEPRECATED",
)
MIN_INTERVAL_NS = 110_000_000  # of two GPM samples
_NVML_SUCCESS = 0
_LOST = ("UNINITIALIZED", "DRIVER_NOT_LOADED", "GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND")


class Nvml:
    """An open NVML. Raises NoNvml at construction where there is none."""

    def __init__(self) -> None:
        try:
            import pynvml  # noqa: PLC0415 - a host without it still has the other samples
        except ImportError as error:
            raise NoNvml(f"nvidia-ml-py cannot be imported: {error}") from error
        self.lib: Any = pynvml
        self._troubles = {
            getattr(pynvml, f"NVML_ERROR_{name}", None): trouble
            for trouble, names in ((Trouble.UNSUPPORTED, _UNSUPPORTED), (Trouble.LOST, _LOST))
            for name in names
        }
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                raise NoNvml("libnvidia-ml.so.1 not found") from error
            raise NoNvml(f"nvmlInit: {_text(error)}") from error

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of pynvml by name. Raises NvmlError."""
        call = getattr(self.lib, function, None)
        if call is None:
            raise NvmlError(Trouble.UNSUPPORTED, "this nvidia-ml-py is too old for it")
        try:
            return call(*arguments)
        except self.lib.NVMLLibraryMismatchError as error:
            raise NvmlError(Trouble.UNSUPPORTED, "this driver is too old for it") from error
        except self.lib.NVMLError as error:
            raise NvmlError(self.trouble(error.value), _text(error)) from error

    def trouble(self, code: int) -> Trouble:
        """Return the meaning of an NVML return code other than success."""
        return self._troubles.get(code, Trouble.TRANSIENT)

    def gpus(self) -> Iterator[Device | str]:
        """Every GPU of the host in NVML's order; a sentence instead for one that does not open."""
        for index in range(int(self.call("nvmlDeviceGetCount"))):
            try:
                yield self.gpu(index)
            except NvmlError as error:
                yield f"GPU {index} cannot be opened ({str(error).lower()}): it is not sampled"

    def gpu(self, index: int) -> Device:
        """Return the GPU with this NVML index."""
        handle = self.call("nvmlDeviceGetHandleByIndex", index)
        try:
            mig_on = self.call("nvmlDeviceGetMigMode", handle)[0] == 1
        except NvmlError as error:
            if error.trouble is not Trouble.UNSUPPORTED:
                raise
            mig_on = False
        uuid = str(self.call("nvmlDeviceGetUUID", handle))
        return Device(handle, uuid, index, str(self.call("nvmlDeviceGetName", handle)), mig_on)

    def utilization_pct(self, device: Device) -> float:
        """Share of the last sample period (1/6 s to 1 s) in which a kernel was running."""
        return int(self.call("nvmlDeviceGetUtilizationRates", device.handle).gpu)

    def memory_bytes(self, device: Device) -> tuple[int, int]:
        """Used and total. Version 2, of driver 510 and newer, leaves out what it reserves."""
        memory = self.call("nvmlDeviceGetMemoryInfo", device.handle, self.lib.nvmlMemory_v2)
        return int(memory.used), int(memory.total)

    def power_w(self, device: Device) -> float:
        """Power draw; NVML gives mW, on recent GPUs the mean of the last second."""
        return int(self.call("nvmlDeviceGetPowerUsage", device.handle)) / 1000

    def sm_clock_mhz(self, device: Device) -> float:
        """SM clock."""
        return int(self.call("nvmlDeviceGetClockInfo", device.handle, self.lib.NVML_CLOCK_SM))

    def throttle_bits(self, device: Device) -> float:
        """Clocks event reasons; drivers before 535 know them as throttle reasons."""
        try:
            return int(self.call("nvmlDeviceGetCurrentClocksEventReasons", device.handle))
        except NvmlError as error:
            if error.trouble is not Trouble.UNSUPPORTED:
                raise
        return int(self.call("nvmlDeviceGetCurrentClocksThrottleReasons", device.handle))

    def pcie_bytes_per_s(self, device: Device, *, sent: bool) -> float:
        """To or from the GPU, measured over 20 ms in which this call blocks; NVML gives KB/s."""
        counter = self.lib.NVML_PCIE_UTIL_TX_BYTES if sent else self.lib.NVML_PCIE_UTIL_RX_BYTES
        return int(self.call("nvmlDeviceGetPcieThroughput", device.handle, counter)) * 1000

    def process_memory_bytes(self, device: Device) -> dict[int, int | None]:
        """Memory of each process with a CUDA context, by pid as the driver sees it."""
        processes = self.call("nvmlDeviceGetComputeRunningProcesses", device.handle)
        return {int(process.pid): process.usedGpuMemory for process in processes}


def visible_uuids(environ: Mapping[str, str], devices: Sequence[Device]) -> frozenset[str]:
    """UUIDs of the GPUs that the job may use; all where it names MIG instances.

    Indices are taken in NVML's order, which is CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID or equal
    GPUs.

    Rules from the CUDA programming guide, "CUDA Environment Variables": a comma-separated list of
    indices, UUIDs or unique beginnings of UUIDs; the first entry that names no device hides itself
    and all after it.
    """
    entries = environ.get("CUDA_VISIBLE_DEVICES")
    if entries is None or names_instances(environ):
        return frozenset(device.uuid for device in devices)
    visible: set[str] = set()
    for entry in entries.split(","):
        device = device_of(entry.strip(), devices)
        if device is None:
            break
        visible.add(device.uuid)
    return frozenset(visible)


def names_instances(environ: Mapping[str, str]) -> bool:
    """Return whether the job is given MIG instances."""
    return "MIG-" in environ.get("CUDA_VISIBLE_DEVICES", "")


def order_is_uncertain(environ: Mapping[str, str], devices: Sequence[Device]) -> bool:
    """Whether indices may mean other GPUs to CUDA, which by default puts the fastest one first."""
    entries = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    mixed = len({device.name for device in devices}) > 1
    by_index = any(entry.strip().isdigit() for entry in entries)
    return mixed and by_index and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def device_of(entry: str, devices: Sequence[Device]) -> Device | None:
    """Return the only device that one entry of CUDA_VISIBLE_DEVICES names; None without one."""
    if entry.isdigit():
        matches = [device for device in devices if device.index == int(entry)]
    elif entry.startswith("GPU-"):
        matches = [device for device in devices if device.uuid.startswith(entry)]
    else:
        matches = []
    return matches[0] if len(matches) == 1 else None


class Gpm:
    """GPU performance monitoring (Hopper and later): how busy SMs and tensor cores were, in %.

    Utilization says only that some kernel was running; GPM counts the SMs that were. The numbers
    are differences of two samples, at least 100 ms apart (NVML API reference, nvmlGpmMetricsGet).
    Raises NvmlError at construction where the device has none.
    """

    NAMES = ("sm_active", "tensor_active")

    def __init__(self, nvml: Nvml, device: Device) -> None:
        self._nvml, self._device = nvml, device
        if not nvml.call("nvmlGpmQueryDeviceSupport", device.handle).isSupportedDevice:
            raise NvmlError(Trouble.UNSUPPORTED, "not supported (compute capability below 9.0)")
        lib = nvml.lib
        metrics = (lib.NVML_GPM_METRIC_SM_UTIL, lib.NVML_GPM_METRIC_ANY_TENSOR_UTIL)
        self._samples: list[Any] = []
        self._sampled_ns: int | None = None
        self._request = lib.c_nvmlGpmMetricsGet_t()
        self._request.version = lib.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(metrics)
        for index, metric in enumerate(metrics):
            self._request.metrics[index].metricId = metric
        try:
            for _ in range(2):
                self._samples.append(nvml.call("nvmlGpmSampleAlloc"))
            self._take_sample(self._samples[1])
        except NvmlError:
            self.close()
            raise

    def read(self) -> dict[str, float | None]:
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
        values: dict[str, float | None] = {}
        for index, name in enumerate(self.NAMES):
            answer = self._request.metrics[index]
            values[name] = float(answer.value) if answer.nvmlReturn == _NVML_SUCCESS else None
        return values

    def close(self) -> None:
        """Give the samples back."""
        while self._samples:
            with contextlib.suppress(NvmlError):
                self._nvml.call("nvmlGpmSampleFree", self._samples.pop())

    def _take_sample(self, sample: Any) -> None:
        self._nvml.call("nvmlGpmSampleGet", self._device.handle, sample)


def _text(error: Exception) -> str:
    text = str(error)
    # pynvml prints the codes that it does not know itself as bytes.
    return text[2:-1] if text.startswith("b'") else text
