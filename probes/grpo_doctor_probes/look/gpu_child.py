"""The process that samples NVML once: it reports what it is about to ask, then the answer.

These lines thus say which call did not return.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from grpo_doctor_probes.samplers.gpm import MIN_INTERVAL_NS, Gpm
from grpo_doctor_probes.samplers.nvml import Device, NoNvml, Nvml, NvmlError

Value = TypeVar("Value")
# nvml.h, NVML_FI_DEV_*: totals over all links of a GPU; what it lacks has its own return code.
_NVLINK_ERRORS = (38, 45, 52, 59)  # CRC of flits, CRC of data, replays, recoveries
_NVLINK_DATA_KIB = (138, 139)  # sent, received; of all links with this scope:
_ALL_LINKS = 0xFFFFFFFF
_UNCORRECTED, _VOLATILE = 1, 0  # since the driver was loaded


def main(arguments: Sequence[str]) -> None:
    """Write lines of JSON: `asks`, `none`, `count`, `gpu`, `lost`, `more`, `end`.

    With the argument `count` the GPUs are counted, no more.
    """
    with contextlib.suppress(BrokenPipeError):
        for line in _lines(all_numbers="count" not in arguments):
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    os._exit(0)  # what is left in a buffer has no reader


def _lines(*, all_numbers: bool) -> Iterator[dict[str, Any]]:
    yield {"asks": "nvmlInit"}
    try:
        nvml = Nvml()
        yield {"asks": "nvmlDeviceGetCount"}
        count = int(nvml.call("nvmlDeviceGetCount"))
    except (NoNvml, NvmlError) as error:
        yield {"none": str(error)}
        return
    yield {"count": count}
    if all_numbers:
        yield from _all(nvml, count)
    yield {"end": True}


def _all(nvml: Nvml, count: int) -> Iterator[dict[str, Any]]:
    monitors: list[tuple[int, Gpm]] = []
    for index in range(count):
        yield {"asks": f"GPU {index}", "index": index}
        try:
            gpu = nvml.gpu(index)
            yield {"gpu": _numbers(nvml, gpu)}
        except NvmlError as error:
            yield {"lost": index, "why": str(error).lower()}
            continue
        with contextlib.suppress(NvmlError):
            monitor = Gpm(nvml, gpu)
            monitor.read()
            monitors.append((index, monitor))
    if monitors:
        time.sleep(MIN_INTERVAL_NS / 1e9)
    for index, monitor in monitors:
        yield {"asks": f"GPU {index}", "index": index}
        with contextlib.suppress(NvmlError):
            shares = monitor.read()
            more = {f"{track.name.removeprefix('gpu.')}_pct": v for track, v in shares.items()}
            yield {"more": index, **more}


def _numbers(nvml: Nvml, gpu: Device) -> dict[str, Any]:
    """Return the values; None for those it does not report."""
    at_ns = time.monotonic_ns()
    pci = _try(lambda: nvml.call("nvmlDeviceGetPciInfo", gpu.handle))
    memory = _try(lambda: nvml.memory_bytes(gpu))
    pcie = _try(lambda: nvml.pcie_rx_bytes_per_s(gpu) + nvml.pcie_tx_bytes_per_s(gpu))
    errors, data_kib = _nvlink(nvml, gpu)
    limit_mw = _try(lambda: nvml.call("nvmlDeviceGetEnforcedPowerLimit", gpu.handle))
    sm = nvml.lib.NVML_CLOCK_SM
    return {
        "index": gpu.index,
        "at_ns": at_ns,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "bus_id": _text(pci.busId) if pci is not None else "",
        "utilization_pct": _try(lambda: nvml.utilization_pct(gpu)),
        "power_w": _try(lambda: nvml.power_w(gpu)),
        "power_limit_w": None if limit_mw is None else int(limit_mw) / 1000,
        "sm_mhz": _try(lambda: nvml.sm_clock_mhz(gpu)),
        "sm_max_mhz": _try(lambda: int(nvml.call("nvmlDeviceGetMaxClockInfo", gpu.handle, sm))),
        "memory_used_bytes": memory[0] if memory else None,
        "memory_total_bytes": memory[1] if memory else None,
        "throttle_bits": int(_try(lambda: nvml.throttle_bits(gpu)) or 0),
        "ecc_uncorrected": _try(
            lambda: int(
                nvml.call("nvmlDeviceGetTotalEccErrors", gpu.handle, _UNCORRECTED, _VOLATILE)
            )
        ),
        "nvlink_errors": errors,
        "nvlink_bytes": None if data_kib is None else data_kib * 1024,
        "pcie_bytes_per_s": pcie,
        "pids": sorted(_pids(nvml, gpu)),
    }


def _nvlink(nvml: Nvml, gpu: Device) -> tuple[int | None, int | None]:
    """Errors of all links since the driver was loaded, and KiB that went over them."""
    fields = [*_NVLINK_ERRORS, *((field, _ALL_LINKS) for field in _NVLINK_DATA_KIB)]
    counters = _try(lambda: nvml.call("nvmlDeviceGetFieldValues", gpu.handle, fields))
    if counters is None:
        return None, None
    cut = len(_NVLINK_ERRORS)
    return _sum(counters[:cut]), _sum(counters[cut:])


def _sum(counters: Sequence[Any]) -> int | None:
    numbers = [int(counter.value.ullVal) for counter in counters if counter.nvmlReturn == 0]
    return sum(numbers) if numbers else None


def _pids(nvml: Nvml, gpu: Device) -> set[int]:
    """On the GPU and its MIG instances. In a container these are numbers of the host."""
    pids: set[int] = set()
    with contextlib.suppress(NvmlError):
        for device in (gpu, *nvml.instances(gpu)):
            pids.update(nvml.process_memory_bytes(device))
    return pids


def _try(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except NvmlError:
        return None


def _text(value: bytes | str) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
