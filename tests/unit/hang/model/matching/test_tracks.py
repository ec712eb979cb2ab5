"""Counters of a recording that count more than its ring holds."""

from __future__ import annotations

import json

import pytest

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor_probes.evidence import FlightDump


def _dump(rank: int, backend: str, called: int, done: int, counted: int) -> FlightDump:
    """`called` collectives of the world, the first `done` of them over; `counted` by its group."""
    entries = [
        {
            "record_id": number,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "op_id": number,
            "profiling_name": f"{backend}:all_reduce",
            "time_created_ns": number,
            "input_sizes": [[4]],
            "output_sizes": [[4]],
            "input_dtypes": ["Float"],
            "output_dtypes": ["Float"],
            "state": "completed" if number <= done else "scheduled",
            "retired": number <= done,
            "is_p2p": False,
        }
        for number in range(1, called + 1)
    ]
    status = {
        "last_enqueued_collective": str(counted + called - done),
        "last_started_collective": "-1",
        "last_completed_collective": str(counted),
    }
    document = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {"0": status},
        "entries": entries,
    }
    return FlightDump(f"file:{rank}", rank, data=json.dumps(document).encode())


@pytest.mark.parametrize("transfers", [0, 5])
def test_transfers_that_gloo_counts_and_does_not_record_bring_nobody_to_a_collective(
    transfers: int,
) -> None:
    made = match(
        dumps.read([_dump(0, "gloo", 4, 3, 3 + transfers), _dump(1, "gloo", 3, 3, 3 + transfers)])
    )
    (status,) = made.statuses
    assert (status.kind, status.missing) == ("missing", (1,))
    assert [blame.rank for blame in made.blame] == [1]


def test_a_device_counter_that_is_ahead_of_the_ring_still_tells_who_called() -> None:
    made = match(dumps.read([_dump(0, "nccl", 4, 3, 3), _dump(1, "nccl", 3, 3, 4)]))
    (status,) = made.statuses
    assert (status.kind, status.missing) == ("partial", ())
