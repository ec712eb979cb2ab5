"""Which devices CUDA_VISIBLE_DEVICES names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpo_doctor_probes.gpu.nvml import Device


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
        device = device_of(entry.strip(), devices)
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


def device_of(entry: str, devices: Sequence[Device]) -> Device | None:
    """Return the only device that one entry of CUDA_VISIBLE_DEVICES names; None without one."""
    if entry.isdigit():
        matches = [gpu for gpu in devices if gpu.parent is None and gpu.index == int(entry)]
    elif entry.startswith("MIG-") and entry.count("/") == 2:
        matches = [
            mig
            for mig in devices
            if mig.parent and entry == f"MIG-{mig.parent}/{mig.gpu_instance}/{mig.compute_instance}"
        ]
    elif entry.startswith(("GPU-", "MIG-")):
        matches = [device for device in devices if device.uuid.startswith(entry)]
    else:
        matches = []
    return matches[0] if len(matches) == 1 else None
