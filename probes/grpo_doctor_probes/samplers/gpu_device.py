"""One GPU or MIG instance: which fields it has, their values, and whether it still answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from grpo_doctor_probes.samplers.gpm import Gpm
from grpo_doctor_probes.samplers.nvml import Device, Nvml, NvmlError, Trouble
from grpo_doctor_probes.samplers.tracks import GpuRow, Track


def visible_uuids(environ: Mapping[str, str], devices: Sequence[Device]) -> frozenset[str]:
    """UUIDs of the devices that the job may use, whole GPUs and MIG instances alike.

    A GPU that is named stands for its instances too, and an instance for its GPU. Indices are
    taken in NVML's order, which is CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID or equal GPUs.

    Rules from the CUDA programming guide, "CUDA Environment Variables": a comma-separated list of
    indices, UUIDs, unique beginnings of UUIDs, MIG UUIDs or MIG-<GPU UUID>/<GPU instance>/<compute
    instance>; the first entry that names no device hides itself and all after it.
    """
    entries = environ.get("CUDA_VISIBLE_DEVICES")
    if entries is None:
        return frozenset(device.uuid for device in devices)
    visible: set[str] = set()
    for entry in entries.split(","):
        device = _device_of(entry.strip(), devices)
        if device is None:
            break
        visible.add(device.uuid)
        if device.parent is not None:
            visible.add(device.parent)
        visible.update(instance.uuid for instance in devices if instance.parent == device.uuid)
    return frozenset(visible)


def order_is_uncertain(environ: Mapping[str, str], devices: Sequence[Device]) -> bool:
    """Whether indices may mean other GPUs to CUDA, which by default puts the fastest one first."""
    entries = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    mixed = len({device.name for device in devices if device.parent is None}) > 1
    by_index = any(entry.strip().isdigit() for entry in entries)
    return mixed and by_index and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _device_of(entry: str, devices: Sequence[Device]) -> Device | None:
    if entry.isdigit():
        matches = [gpu for gpu in devices if gpu.parent is None and gpu.index == int(entry)]
    elif entry.startswith("MIG-") and entry.count("/") == 2:
        matches = [device for device in devices if device.parent and entry == _name_of(device)]
    elif entry.startswith(("GPU-", "MIG-")):
        matches = [device for device in devices if device.uuid.startswith(entry)]
    else:
        matches = []
    return matches[0] if len(matches) == 1 else None


def _name_of(instance: Device) -> str:
    return f"MIG-{instance.parent}/{instance.gpu_instance}/{instance.compute_instance}"


Value = TypeVar("Value")
Values = dict[Track, float | None]
Reader = Callable[[Nvml, Device], float]

RETRY_NS = 1_000_000_000


class Field(NamedTuple):
    """A number that NVML gives for a device."""

    name: str
    unit: str
    read: Reader


FAST_FIELDS = (
    Field("util", "%", Nvml.utilization_pct),
    Field("memory_used", "bytes", lambda nvml, device: nvml.memory_bytes(device)[0]),
    Field("power", "W", Nvml.power_w),
    Field("sm_clock", "MHz", Nvml.sm_clock_mhz),
    Field("throttle", "bitmask", Nvml.throttle_bits),
)
SLOW_FIELDS = (
    Field("pcie_rx", "bytes/s", Nvml.pcie_rx_bytes_per_s),
    Field("pcie_tx", "bytes/s", Nvml.pcie_tx_bytes_per_s),
)
PROCESSES = "process_memory"


class Gpu:
    """A device and what it supports. Fields that it refuses at the first try are left out."""

    def __init__(self, nvml: Nvml, device: Device) -> None:
        self.device = device
        self.lost = False
        self._nvml = nvml
        self._retry_ns = 0
        self._tracks: set[Track] = set()
        self.fast: list[Field] = []
        self.slow: list[str] = []
        self._slow_fields: dict[str, Field] = {}
        self._missing: list[str] = []
        self._memory_total_bytes: int | None = None
        self._gpm: Gpm | None = None

    @property
    def label(self) -> str:
        """How notes call it."""
        return f"GPU {self.device.index} ({self.device.uuid})"

    def probe(self) -> None:
        """Try every field once. A device that is lost already has none until it comes back."""
        self._missing = []
        try:
            memory, _ = self._try(lambda nvml, device: nvml.memory_bytes(device))
            if memory is not None:
                self._memory_total_bytes = memory[1]
            self.fast = [field for field in FAST_FIELDS if self._has(field.name, field.read)]
            slow = [field for field in SLOW_FIELDS if self._has(field.name, field.read)]
            self._slow_fields = {field.name: field for field in slow}
            self.slow = [field.name for field in slow]
            if self._has(PROCESSES, lambda nvml, device: len(nvml.process_memory_bytes(device))):
                self.slow.append(PROCESSES)
            self._gpm, error = self._try(Gpm)
            if error is not None:
                self._missing.append(f"gpm: {str(error).lower()}")
        except NvmlError as error:
            self.lost = True
            self._missing = [f"all: {error}"]

    def row(self, *, visible: bool) -> GpuRow:
        """Return what the sample file says of this device."""
        device = self.device
        return GpuRow(
            device.uuid,
            device.index,
            device.name,
            self._memory_total_bytes,
            device.mig,
            device.parent,
            visible,
            tuple(self._missing),
        )

    def read_fast(self) -> Values:
        """Return the fields that cost little. Raises NvmlError when the device is lost."""
        values: Values = {}
        failure: NvmlError | None = None
        for field in self.fast:
            value, error = self._try(field.read)
            failure = failure or error
            values[self._track(field.name, field.unit)] = value
        if failure is not None and all(value is None for value in values.values()):
            raise NvmlError(Trouble.LOST, str(failure))
        if self._gpm is not None:
            values.update(self._read_gpm(self._gpm))
        self._tracks.update(values)
        return values

    def read_slow(self, name: str) -> Values:
        """Return one of `slow`. Raises NvmlError when the device is lost."""
        if name == PROCESSES:
            values = self._read_processes()
        else:
            field = self._slow_fields[name]
            values = {self._track(name, field.unit): self._try(field.read)[0]}
        self._tracks.update(values)
        return values

    def lose(self, now_ns: int) -> Values:
        """The device does not answer: all its values are gone, and it is tried again later."""
        self.lost, self._retry_ns = True, now_ns + RETRY_NS
        self.close()
        return dict.fromkeys(self._tracks)

    def revive(self, now_ns: int) -> bool:
        """Once a second, see whether a lost device answers again, and what it supports now."""
        if now_ns < self._retry_ns:
            return False
        self._retry_ns = now_ns + RETRY_NS
        try:
            self.device = self._nvml.again(self.device)
        except NvmlError:
            return False
        self.lost = False
        self.probe()
        return not self.lost

    def close(self) -> None:
        """Release what NVML holds for this device."""
        gpm, self._gpm = self._gpm, None
        if gpm is not None:
            gpm.close()

    def _track(self, name: str, unit: str) -> Track:
        return Track(f"gpu.{name}", unit, gpu=self.device.uuid)

    def _has(self, name: str, read: Reader) -> bool:
        _, error = self._try(read)
        if error is None or error.trouble is not Trouble.UNSUPPORTED:
            return True
        self._missing.append(f"{name}: {self._reason(error)}")
        return False

    def _reason(self, error: NvmlError) -> str:
        text = str(error).lower()
        if self.device.parent is not None:
            return f"{text} on a MIG instance, see its GPU"
        return f"{text} while MIG is on" if self.device.mig_on else text

    def _try(self, read: Callable[[Nvml, Device], Value]) -> tuple[Value | None, NvmlError | None]:
        """Return what it reads, or why it does not. Raises NvmlError when the device is lost."""
        try:
            return read(self._nvml, self.device), None
        except NvmlError as error:
            if error.trouble is Trouble.LOST:
                raise
            return None, error

    def _read_gpm(self, gpm: Gpm) -> Values:
        values, _ = self._try(lambda *_: gpm.read())
        return dict.fromkeys(gpm.tracks) if values is None else values

    def _read_processes(self) -> Values:
        values: Values = {track: None for track in self._tracks if track.name == f"gpu.{PROCESSES}"}
        used_by, _ = self._try(lambda nvml, device: nvml.process_memory_bytes(device))
        for pid, used_bytes in (used_by or {}).items():
            values[Track(f"gpu.{PROCESSES}", "bytes", gpu=self.device.uuid, pid=pid)] = used_bytes
        return values
