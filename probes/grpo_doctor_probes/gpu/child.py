"""The process that calls NVML: a request a line in, lines of JSON out.

`sample NS` is answered by one line. `look` and `count` first name each call that may block
(`asks`), so that silence says which one did, and end with `end` or `none`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

from grpo_doctor_probes.gpu.device import Gpu, GpuRow, Values
from grpo_doctor_probes.gpu.nvml import (
    MIN_INTERVAL_NS,
    Device,
    Gpm,
    NoNvml,
    Nvml,
    NvmlError,
    names_instances,
    order_is_uncertain,
    visible_uuids,
)

Value = TypeVar("Value")
SLOW_PERIOD_NS = 1_000_000_000
# PCIe counters block for 20 ms: of 8 GPUs and two directions, two at a tick are 40% of it.
SLOW_PER_TICK = 2
# nvml.h, NVML_FI_DEV_*: totals over all links of a GPU; what it lacks has its own return code.
_NVLINK_ERRORS = (38, 45, 52, 59)  # CRC of flits, CRC of data, replays, recoveries
_NVLINK_DATA_KIB = (138, 139)  # sent, received; of all links with this scope:
_ALL_LINKS = 0xFFFFFFFF
_UNCORRECTED, _VOLATILE = 1, 0  # since the driver was loaded


@dataclass
class Sample:
    """What was read at one tick: values, devices seen for the first time, notes for the user."""

    values: Values = field(default_factory=dict)
    gpus: list[GpuRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return it as JSON."""
        values = [[*series, value] for series, value in self.values.items()]
        gpus = [asdict(row) for row in self.gpus]
        return json.dumps({"values": values, "gpus": gpus, "notes": self.notes})


class Reader:
    """Every GPU, marked with whether CUDA_VISIBLE_DEVICES in `environ` has it.

    Utilization, memory, power, clock and throttle reasons are read at every tick, SM and tensor
    activity at ticks 110 ms apart, PCIe traffic and the memory of processes once a second in turn.
    Without a driver one note is all.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._opened = False
        self._gpus: list[Gpu] = []

    def read(self, now_ns: int) -> Sample:
        """Sample all GPUs."""
        sample = Sample()
        if not self._opened:
            self._opened = True
            self._open(sample)
        for gpu in self._gpus:
            if not gpu.lost:
                self._take(gpu, gpu.read_fast, sample)
        due = [
            (due_ns, gpu, slow)
            for gpu in self._gpus
            for slow, due_ns in gpu.slow_due_ns.items()
            if due_ns <= now_ns and not gpu.lost
        ]
        for _, gpu, slow in sorted(due, key=lambda turn: turn[0])[:SLOW_PER_TICK]:
            gpu.slow_due_ns[slow] = now_ns + SLOW_PERIOD_NS
            if not gpu.lost:
                self._take(gpu, partial(gpu.read_slow, slow), sample)
        return sample

    def _open(self, sample: Sample) -> None:
        try:
            nvml = Nvml()
            opened = list(nvml.gpus())
        except NoNvml as error:
            sample.notes.append(f"no NVIDIA driver: GPU samples are off ({error})")
            return
        except NvmlError as error:
            sample.notes.append(f"GPU samples are off: NVML lists no GPUs ({error})")
            return
        devices = [gpu for gpu in opened if isinstance(gpu, Device)]
        sample.notes += [problem for problem in opened if isinstance(problem, str)]
        if not devices:
            sample.notes.append("the NVIDIA driver shows no GPU here: GPU samples are off")
        if names_instances(self._environ):
            sample.notes.append("the job uses MIG instances: the GPU samples are of whole GPUs")
        visible = visible_uuids(self._environ, devices)
        if order_is_uncertain(self._environ, devices):
            sample.notes.append(
                "the GPUs differ and CUDA_VISIBLE_DEVICES has indices: which GPUs the job uses is "
                "uncertain; set CUDA_DEVICE_ORDER=PCI_BUS_ID to fix the order"
            )
        for device in devices:
            gpu = Gpu(nvml, device, visible=device.uuid in visible)
            self._gpus.append(gpu)
            gpu.probe()
            sample.gpus.append(gpu.row())
            if gpu.lost:
                sample.notes.append(f"{gpu.label} does not answer: it is not sampled")

    def _take(self, gpu: Gpu, read: Callable[[], Values], sample: Sample) -> None:
        try:
            sample.values.update(read())
        except NvmlError as error:
            sample.values.update(gpu.lose())
            sample.notes.append(
                f"{gpu.label} does not answer ({str(error).lower()}): it is not sampled any more"
            )


def look(*, all_numbers: bool) -> Iterator[dict[str, Any]]:
    """Yield `asks`, `none`, `count`, `gpu`, `lost`, `more`, `end`: every GPU once, or their count.

    What a GPU does not report is None.
    """
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
            yield {"more": index, "sm_active_pct": monitor.read().get("sm_active")}


def _numbers(nvml: Nvml, gpu: Device) -> dict[str, Any]:
    at_ns = time.monotonic_ns()
    pci = _try(lambda: nvml.call("nvmlDeviceGetPciInfo", gpu.handle))
    memory = _try(lambda: nvml.memory_bytes(gpu))
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
        "pids": sorted(_try(lambda: nvml.process_memory_bytes(gpu)) or ()),
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


def _try(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except NvmlError:
        return None


def _text(value: bytes | str) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def main(arguments: Sequence[str]) -> None:
    """Answer each request, until the pipe is closed.

    `arguments`: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER of the job, `NAME=VALUE`, if set.
    """
    reader = Reader(dict(argument.split("=", 1) for argument in arguments))
    with contextlib.suppress(BrokenPipeError):
        for request in sys.stdin:
            for line in _answers(reader, request.split()):
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
    os._exit(0)  # what is left in a buffer has no reader


def _answers(reader: Reader, request: Sequence[str]) -> Iterator[str]:
    try:
        if request[0] == "sample":
            yield reader.read(int(request[1])).line()
        else:
            yield from map(json.dumps, look(all_numbers=request[0] == "look"))
    except Exception as error:  # noqa: BLE001 - what a driver hands out may surprise in any way
        yield json.dumps({"error": f"{type(error).__name__}: {error}"})
