"""One GPU: which fields it has, their values, and whether it still answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from grpo_doctor_probes.gpu.nvml import Device, Gpm, Nvml, NvmlError, Trouble

Value = TypeVar("Value")
Read = Callable[[Nvml, Device], float]
PROCESSES = "process_memory"


class Series(NamedTuple):
    """One series of numbers of a device (its UUID), or of a process on it."""

    name: str
    unit: str
    gpu: str
    pid: int | None = None


Values = dict[Series, float | None]


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU: what it is, whether the job may use it, what it cannot report.

    `mig` is `on` where it is partitioned. `index` is NVML's.
    """

    uuid: str
    index: int
    name: str
    memory_total_bytes: int | None
    mig: str | None
    visible: bool
    missing: tuple[str, ...]


class Field(NamedTuple):
    """A number that NVML gives for a device."""

    name: str
    unit: str
    read: Read


FAST_FIELDS = (
    Field("util", "%", Nvml.utilization_pct),
    Field("memory_used", "bytes", lambda nvml, device: nvml.memory_bytes(device)[0]),
    Field("power", "W", Nvml.power_w),
    Field("sm_clock", "MHz", Nvml.sm_clock_mhz),
    Field("throttle", "bitmask", Nvml.throttle_bits),
)
SLOW_FIELDS = (
    Field("pcie_rx", "bytes/s", partial(Nvml.pcie_bytes_per_s, sent=False)),
    Field("pcie_tx", "bytes/s", partial(Nvml.pcie_bytes_per_s, sent=True)),
    Field(PROCESSES, "bytes", lambda nvml, device: len(nvml.process_memory_bytes(device))),
)


class Gpu:
    """A device and what it supports. Fields that it refuses at the first try are left out.

    `slow_due_ns` has its slow fields, each with when it is due.
    """

    def __init__(self, nvml: Nvml, device: Device, *, visible: bool) -> None:
        self.device, self.visible = device, visible
        self.lost = False
        self.slow_due_ns: dict[Field, int] = {}
        self._nvml = nvml
        self._known: set[Series] = set()
        self._fast: list[Field] = []
        self._missing: list[str] = []
        self._memory_total_bytes: int | None = None
        self._gpm: Gpm | None = None

    @property
    def label(self) -> str:
        """How notes call it."""
        return f"GPU {self.device.index} ({self.device.uuid})"

    def probe(self) -> None:
        """Try every field once. A device that is lost already has none."""
        self._missing = []
        try:
            memory, _ = self._try(Nvml.memory_bytes)
            if memory is not None:
                self._memory_total_bytes = memory[1]
            self._fast = [field for field in FAST_FIELDS if self._has(field)]
            self.slow_due_ns = {field: 0 for field in SLOW_FIELDS if self._has(field)}
            self._gpm, error = self._try(Gpm)
            if error is not None:
                self._missing.append(f"gpm: {str(error).lower()}")
        except NvmlError as error:
            self.lost = True
            self._missing = [f"all: {error}"]

    def row(self) -> GpuRow:
        """Return what the sample file says of this device."""
        device = self.device
        return GpuRow(
            device.uuid,
            device.index,
            device.name,
            self._memory_total_bytes,
            "on" if device.mig_on else None,
            self.visible,
            tuple(self._missing),
        )

    def read_fast(self) -> Values:
        """Return the fields that cost little. Raises NvmlError when the device is lost."""
        values: Values = {
            self._series(field.name, field.unit): self._try(field.read)[0] for field in self._fast
        }
        if (gpm := self._gpm) is not None:
            shares, _ = self._try(lambda *_: gpm.read())
            shares = dict.fromkeys(Gpm.NAMES) if shares is None else shares
            values.update({self._series(name, "%"): value for name, value in shares.items()})
        self._known.update(values)
        return values

    def read_slow(self, field: Field) -> Values:
        """Return one of the slow fields. Raises NvmlError when the device is lost."""
        values: Values
        if field.name == PROCESSES:
            # A process that has left the device has no memory there any more.
            values = {series: None for series in self._known if series.pid is not None}
            used_by, _ = self._try(Nvml.process_memory_bytes)
            for pid, used_bytes in (used_by or {}).items():
                values[self._series(PROCESSES, field.unit, pid)] = used_bytes
        else:
            values = {self._series(field.name, field.unit): self._try(field.read)[0]}
        self._known.update(values)
        return values

    def lose(self) -> Values:
        """Have no values any more: only a reset, with no process on it, brings it back."""
        self.lost = True
        if self._gpm is not None:
            self._gpm.close()
        self._gpm = None
        return dict.fromkeys(self._known)

    def _series(self, name: str, unit: str, pid: int | None = None) -> Series:
        return Series(f"gpu.{name}", unit, self.device.uuid, pid)

    def _has(self, field: Field) -> bool:
        _, error = self._try(field.read)
        if error is None or error.trouble is not Trouble.UNSUPPORTED:
            return True
        while_mig = " while MIG is on" * self.device.mig_on
        self._missing.append(f"{field.name}: {str(error).lower()}{while_mig}")
        return False

    def _try(self, read: Callable[[Nvml, Device], Value]) -> tuple[Value | None, NvmlError | None]:
        """Return what it reads, or why it does not. Raises NvmlError when the device is lost."""
        try:
            return read(self._nvml, self.device), None
        except NvmlError as error:
            if error.trouble is Trouble.LOST:
                raise
            return None, error
