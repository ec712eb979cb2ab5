"""The process that reads the GPUs for the sampler: a line with its time in, a line of JSON out.

Calls of NVML may block, so they are made here. Slow ones take turns, so that together they leave
most of each tick free.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Generic, TypeVar

from grpo_doctor_probes.samplers.gpu_device import RETRY_NS, Gpu, order_is_uncertain, visible_uuids
from grpo_doctor_probes.samplers.nvml import Device, NoNvml, Nvml, NvmlError
from grpo_doctor_probes.samplers.tracks import GpuRow, Reading, Track

PERIOD_NS = 1_000_000_000
TICK_SHARE = 0.4
Job = TypeVar("Job", bound=Hashable)


class Rota(Generic[Job]):
    """Gives each job a turn at most once a second.

    NVML's PCIe counters block for 20 ms: 8 GPUs, two directions, are 320 ms a second. A tick starts
    jobs, the longest overdue first, until they have taken `TICK_SHARE` of the time between ticks.
    """

    def __init__(self, timer_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._due_ns: dict[Job, int] = {}
        self._timer_ns = timer_ns
        self._tick_ns: int | None = None

    def add(self, job: Job) -> None:
        """Append a job; it is due at once."""
        self._due_ns[job] = 0

    def discard(self, unwanted: Callable[[Job], bool]) -> None:
        """Take jobs out for good."""
        for job in [job for job in self._due_ns if unwanted(job)]:
            del self._due_ns[job]

    def turns(self, now_ns: int) -> Iterator[Job]:
        """The jobs to do now; the time that the caller takes for each counts. At least one."""
        interval_ns = 0 if self._tick_ns is None else now_ns - self._tick_ns
        self._tick_ns = now_ns
        begun_ns = self._timer_ns()
        for job, due_ns in sorted(self._due_ns.items(), key=lambda entry: entry[1]):
            if due_ns > now_ns:
                return
            self._due_ns[job] = now_ns + PERIOD_NS
            yield job
            if self._timer_ns() - begun_ns >= TICK_SHARE * interval_ns:
                return


class GpuReader:
    """Every GPU and MIG instance, marked with whether CUDA_VISIBLE_DEVICES in `environ` has it.

    Utilization, memory, power, clock and throttle reasons are read at every tick, SM and tensor
    activity at ticks 110 ms apart, PCIe traffic and the memory of processes once a second in turn.
    A GPU that is lost is tried again once a second. Without a driver one note is all.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._nvml: Nvml | None = None
        self._opened = False
        self._gpus: list[Gpu] = []
        self._visible: frozenset[str] = frozenset()
        self._reopen_ns = 0
        self._rota: Rota[tuple[Gpu, str]] = Rota()

    def read(self, now_ns: int) -> Reading:
        """Sample all GPUs."""
        reading = Reading()
        if not self._opened:
            self._opened = True
            self._open(reading)
        if self._nvml is None:
            return reading
        if self._gpus and all(gpu.lost for gpu in self._gpus):
            with contextlib.suppress(NoNvml):
                self._reopen(self._nvml, now_ns)
        for gpu in self._gpus:
            if gpu.lost:
                self._revive(gpu, now_ns, reading)
            else:
                self._read_fast(gpu, now_ns, reading)
        for gpu, name in self._rota.turns(now_ns):
            self._read_slow(gpu, name, now_ns, reading)
        return reading

    def close(self) -> None:
        """Close NVML."""
        if self._nvml is None:
            return
        with contextlib.suppress(NvmlError):
            for gpu in self._gpus:
                gpu.close()
            self._nvml.close()
        self._nvml = None

    def _open(self, reading: Reading) -> None:
        try:
            nvml = Nvml()
        except NoNvml as error:
            reading.notes.append(f"no NVIDIA driver: GPU samples are off ({error})")
            return
        self._nvml = nvml
        try:
            devices = self._devices(nvml, reading)
        except NvmlError as error:
            reading.notes.append(f"GPU samples are off: NVML lists no GPUs ({error})")
            return
        if not devices:
            reading.notes.append("the NVIDIA driver shows no GPU here: GPU samples are off")
        self._visible = visible_uuids(self._environ, devices)
        if order_is_uncertain(self._environ, devices):
            reading.notes.append(
                "the GPUs differ and CUDA_VISIBLE_DEVICES has indices: which GPUs the job uses is "
                "uncertain; set CUDA_DEVICE_ORDER=PCI_BUS_ID to fix the order"
            )
        for device in devices:
            gpu = Gpu(nvml, device)
            self._gpus.append(gpu)
            self._probe(gpu, reading)

    def _devices(self, nvml: Nvml, reading: Reading) -> list[Device]:
        devices: list[Device] = []
        for gpu in nvml.gpus():
            if isinstance(gpu, str):
                reading.notes.append(gpu)
                continue
            devices.append(gpu)
            with contextlib.suppress(NvmlError):
                devices += nvml.instances(gpu)
        return devices

    def _probe(self, gpu: Gpu, reading: Reading) -> None:
        gpu.probe()
        reading.gpus.append(gpu.row(visible=gpu.device.uuid in self._visible))
        if gpu.lost:
            reading.notes.append(f"{gpu.label} does not answer: trying again every second")
        for name in gpu.slow:
            self._rota.add((gpu, name))

    def _read_fast(self, gpu: Gpu, now_ns: int, reading: Reading) -> None:
        try:
            reading.values.update(gpu.read_fast())
        except NvmlError as error:
            self._lose(gpu, error, now_ns, reading)

    def _read_slow(self, gpu: Gpu, name: str, now_ns: int, reading: Reading) -> None:
        if gpu.lost:
            return
        try:
            reading.values.update(gpu.read_slow(name))
        except NvmlError as error:
            self._lose(gpu, error, now_ns, reading)

    def _lose(self, gpu: Gpu, error: NvmlError, now_ns: int, reading: Reading) -> None:
        reading.values.update(gpu.lose(now_ns))
        reading.notes.append(
            f"{gpu.label} does not answer ({str(error).lower()}): trying again every second"
        )

    def _revive(self, gpu: Gpu, now_ns: int, reading: Reading) -> None:
        if not gpu.revive(now_ns):
            return
        self._rota.discard(lambda job: job[0] is gpu)
        for name in gpu.slow:
            self._rota.add((gpu, name))
        reading.gpus.append(gpu.row(visible=gpu.device.uuid in self._visible))
        reading.notes.append(f"{gpu.label} answers again")
        self._read_fast(gpu, now_ns, reading)

    def _reopen(self, nvml: Nvml, now_ns: int) -> None:
        """After a driver reset no old handle works; while one GPU answers, NVML stays open."""
        if now_ns >= self._reopen_ns:
            self._reopen_ns = now_ns + RETRY_NS
            nvml.reopen()


def main(arguments: Sequence[str]) -> None:
    """Read whenever a time comes, until the pipe is closed.

    `arguments`: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER of the job, `NAME=VALUE`, if set.
    """
    environ = dict(argument.split("=", 1) for argument in arguments)
    reader = GpuReader(environ)
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            sys.stdout.write(_answer(reader, int(line)) + "\n")
            sys.stdout.flush()
    reader.close()
    os._exit(0)  # what is left in a buffer has no reader


def _answer(reader: GpuReader, now_ns: int) -> str:
    try:
        return encoded(reader.read(now_ns))
    except Exception as error:  # noqa: BLE001 - what a driver hands out may surprise in any way
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


def encoded(reading: Reading) -> str:
    """Return a reading as a line."""
    return json.dumps(
        {
            "values": [
                [track.name, track.unit, track.gpu, track.pid, value]
                for track, value in reading.values.items()
            ],
            "gpus": [asdict(row) for row in reading.gpus],
            "notes": reading.notes,
        }
    )


def decoded(line: str) -> Reading:
    """Return a reading out of its line. Raises ValueError with what the child could not do."""
    document = json.loads(line)
    if "error" in document:
        raise ValueError(document["error"])
    return Reading(
        {
            Track(name, unit, gpu=gpu, pid=pid): value
            for name, unit, gpu, pid, value in document["values"]
        },
        [GpuRow(**{**row, "missing": tuple(row["missing"])}) for row in document["gpus"]],
        document["notes"],
    )
