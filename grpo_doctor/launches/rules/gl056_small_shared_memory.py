"""Shared memory is small.

Loader processes hand batches over in shared memory, and NCCL keeps buffers there: a container's
default of 64 MB ends with a bus error.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES
_LEAST_BYTES = 1 << 30


def check(view: View) -> Flaw | None:
    """The size of /dev/shm on this host."""
    size = view.host.shm_bytes
    if size is None or size >= _LEAST_BYTES:
        return None
    if not view.value("dataload.num_workers") and view.processes == 1:
        return None
    return Flaw(
        severity="medium",
        headline=f"shared memory (shm) has only {size / 2**20:.0f} MiB",
        evidence=("loader processes and NCCL keep what they pass on there",),
        fixes=("docker run --shm-size=16g ...", "or --ipc=host"),
    )
