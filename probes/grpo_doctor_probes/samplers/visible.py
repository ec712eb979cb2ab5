"""Which GPUs CUDA_VISIBLE_DEVICES leaves to a job.

Rules from the CUDA programming guide, "CUDA Environment Variables": a comma-separated list of
indices, UUIDs, unique beginnings of UUIDs, MIG UUIDs or MIG-<GPU UUID>/<GPU instance>/<compute
instance>; the first entry that names no device hides itself and all after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_doctor_probes.samplers.nvml import Device


def visible_uuids(environ: Mapping[str, str], devices: Sequence[Device]) -> frozenset[str]:
    """UUIDs of the devices that the job may use, whole GPUs and MIG instances alike.

    A GPU that is named stands for its instances too, and an instance for its GPU. Indices are
    taken in NVML's order, which is CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID or equal GPUs.
    """
    wanted = environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return frozenset(device.uuid for device in devices)
    visible: set[str] = set()
    for entry in wanted.split(","):
        device = _named(entry.strip(), devices)
        if device is None:
            break
        visible.add(device.uuid)
        if device.parent is not None:
            visible.add(device.parent)
        visible.update(one.uuid for one in devices if one.parent == device.uuid)
    return frozenset(visible)


def order_is_uncertain(environ: Mapping[str, str], devices: Sequence[Device]) -> bool:
    """Whether indices may mean other GPUs to CUDA, which by default puts the fastest one first."""
    wanted = environ.get("CUDA_VISIBLE_DEVICES", "")
    mixed = len({device.name for device in devices if device.parent is None}) > 1
    by_index = any(entry.strip().isdigit() for entry in wanted.split(","))
    return mixed and by_index and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _named(entry: str, devices: Sequence[Device]) -> Device | None:
    if entry.isdigit():
        matches = [one for one in devices if one.parent is None and one.index == int(entry)]
    elif entry.startswith("MIG-") and entry.count("/") == 2:
        matches = [one for one in devices if entry in _instance_names(one)]
    elif entry.startswith(("GPU-", "MIG-")):
        matches = [one for one in devices if one.uuid.startswith(entry)]
    else:
        matches = []
    return matches[0] if len(matches) == 1 else None


def _instance_names(device: Device) -> tuple[str, ...]:
    if device.parent is None:
        return ()
    return (f"MIG-{device.parent}/{device.gpu_instance}/{device.compute_instance}",)
