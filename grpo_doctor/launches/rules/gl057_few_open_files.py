"""Few files may be open.

Sockets of Ray, of NCCL and of rollout servers, and what loader processes share, count as open
files. A limit of 1024 ends with `Too many open files`.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES
_LEAST = 4096


def check(view: View) -> Flaw | None:
    """The limit of open files on this host."""
    limit = view.host.open_files
    if limit is None or limit >= _LEAST or view.processes == 1:
        return None
    return Flaw(
        severity="low",
        headline=f"the limit of open files is {limit}",
        evidence=("Ray, NCCL and servers need a socket for each pair",),
        fixes=("ulimit -n 65536",),
    )
