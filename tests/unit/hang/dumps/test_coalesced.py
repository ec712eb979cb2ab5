"""Groups of operations launched as one, of which NCCL's recorder follows the end alone."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.dumps import read
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor_probes.evidence import FlightDump
from tests.dumps.formats import document, dumps
from tests.dumps.simulator import Call, Halt, Job, job
from tests.verdicts import of_dumps

GROUPS = {"0": range(4), "1": (0, 2), "2": (1, 3)}
NOT_FOLLOWED = {
    "state": "scheduled",
    "retired": False,
    "time_discovered_started_ns": None,
    "time_discovered_completed_ns": None,
}
WITHOUT_TENSORS: dict[str, list[str]] = {
    "input_sizes": [],
    "output_sizes": [],
    "input_dtypes": [],
    "output_dtypes": [],
}


def pipeline(*last: Call | Halt) -> Job:
    """Eight rounds of two stages; then rank 0 has `last` instead of its transfer."""

    def step(rank: int) -> list[Call]:
        transfer = Call("send" if rank < 2 else "recv", str(1 + rank % 2), peer=(rank + 2) % 4)
        return [transfer, Call("reduce_scatter", line=12), Call("all_reduce", line=13)]

    rounds: dict[int, list[Call | Halt]] = {
        rank: [call for _ in range(8) for call in step(rank)] for rank in range(4)
    }
    if last:
        rounds[0] += last
        for rank in range(1, 4):
            rounds[rank] += step(rank)
    return job(GROUPS, rounds).run()


def coalesced(built: Job, rank: int, ring: int, *, counters: bool) -> FlightDump:
    """The rank's dump with every transfer, and two reduce_scatters, in a group of their own."""
    content = document(built, rank)
    entries: list[dict[str, Any]] = []
    for entry in content["entries"]:
        parts = {"all_reduce": 0, "reduce_scatter": 2}.get(entry["profiling_name"][5:], 1)
        entries += [{**entry, **NOT_FOLLOWED} for _ in range(parts)]
        end = {"profiling_name": "nccl:coalesced", **WITHOUT_TENSORS} if parts else {}
        entries.append({**entry, **end})
    for number, entry in enumerate(entries):
        entry["record_id"] = number
    content["entries"] = entries[-ring:]
    if not counters:
        del content["pg_status"]
    (own_dump,) = [dump for dump in dumps(built) if dump.rank == rank]
    return replace(own_dump, data=pickle.dumps(content, 2))


@pytest.mark.parametrize("counters", [True, False], ids=["counters", "none"])
@pytest.mark.parametrize("rings", [(2000,) * 4, (9, 11, 12, 14), (20, 13, 8, 10)], ids=str)
def test_a_healthy_job_has_nothing_open(rings: tuple[int, ...], *, counters: bool) -> None:
    built = pipeline()
    recordings = read(coalesced(built, r, rings[r], counters=counters) for r in range(4))
    assert all(entry.done for recording in recordings.ranks for entry in recording.entries)
    matched = match(recordings)
    assert (matched.waits, matched.blame, matched.shifts) == ((), (), ())


@pytest.mark.parametrize("rings", [(2000,) * 4, (20, 13, 18, 14)], ids=str)
def test_who_does_not_come_to_its_transfer_is_found(rings: tuple[int, ...]) -> None:
    built = pipeline(Halt())
    files = [coalesced(built, r, rings[r], counters=True) for r in range(4)]
    recordings = read(files)
    assert [rank.entries[-1].done for rank in recordings.ranks] == [True, False, False, False]
    assert of_dumps(files).culprits == (0,)


def test_a_group_of_which_the_ring_has_lost_a_part_is_left_out() -> None:
    built = pipeline()
    for ring in range(1, 30):
        (recording,) = read([coalesced(built, 0, ring, counters=True)]).ranks
        first = [e.op for e in recording.entries][:2]
        assert first in ([], ["all_reduce"], ["all_reduce", "send"], ["send", "coalesced"]) or (
            first == ["reduce_scatter", "reduce_scatter"]
        )
