"""Which ranks this host should have, and which may be on another."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_doctor_probes.evidence import Job


def elsewhere(job: Job, here: Mapping[int, int | None]) -> frozenset[int]:
    """Missing ranks that may be on another host: all but those that this one should have.

    Args:
        job: as it was found.
        here: the ranks of this host, each with its local rank where that is known.
    """
    missing = frozenset(job.ranks_missing) - here.keys()
    if job.local_ranks is None or job.local_ranks <= len(here):
        return missing
    if job.local_ranks == job.world_size:
        return frozenset()
    firsts = {rank - local for rank, local in here.items() if local is not None}
    return missing - {first + number for first in firsts for number in range(job.local_ranks)}
