"""All GPUs of the host at one moment, and which processes compute on them."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from grpo_doctor_probes.evidence import GpuLook
from grpo_doctor_probes.samplers.nvml import Device, NoNvml, Nvml, NvmlError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Value = TypeVar("Value")

# nvml.h, nvmlClocksEventReasons. Idle (1) and application clocks (2) are no throttling.
_REASONS = (
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "temperature (software)"),
    (0x40, "temperature (hardware)"),
    (0x80, "power brake"),
)


def gpus() -> tuple[GpuLook, ...]:
    """Look at every GPU. Empty without a driver; what a GPU does not tell is None."""
    try:
        nvml = Nvml()
    except NoNvml:
        return ()
    try:
        return tuple(_look(nvml, gpu) for gpu in nvml.gpus() if isinstance(gpu, Device))
    except NvmlError:  # the driver went away between the two calls
        return ()
    finally:
        with contextlib.suppress(NvmlError):
            nvml.close()


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """What slows the clocks down, in words."""
    return tuple(text for bit, text in _REASONS if bits & bit)


def _look(nvml: Nvml, gpu: Device) -> GpuLook:
    at_ns = time.monotonic_ns()
    used_total = _try(lambda: nvml.memory_bytes(gpu))
    return GpuLook(
        index=gpu.index,
        at_ns=at_ns,
        utilization_pct=_try(lambda: nvml.utilization_pct(gpu)),
        power_w=_try(lambda: nvml.power_w(gpu)),
        power_limit_w=_try(lambda: _power_limit_w(nvml, gpu)),
        sm_mhz=_try(lambda: nvml.sm_clock_mhz(gpu)),
        memory_used_bytes=used_total[0] if used_total else None,
        memory_total_bytes=used_total[1] if used_total else None,
        throttled_by=throttle_reasons(int(_try(lambda: nvml.throttle_bits(gpu)) or 0)),
        pids=tuple(sorted(_pids(nvml, gpu))),
    )


def _power_limit_w(nvml: Nvml, gpu: Device) -> float:
    return int(nvml.call("nvmlDeviceGetEnforcedPowerLimit", gpu.handle)) / 1000


def _pids(nvml: Nvml, gpu: Device) -> set[int]:
    """On the GPU and its MIG instances. In a container these are numbers of the host."""
    found: set[int] = set()
    with contextlib.suppress(NvmlError):
        for device in (gpu, *nvml.instances(gpu)):
            found.update(nvml.process_memory_bytes(device))
    return found


def _try(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except NvmlError:
        return None
