"""How many ranks a job has, by recordings that anybody may have made."""

from __future__ import annotations

import json

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor_probes.evidence import FlightDump


def _world(ranks: str) -> int | None:
    document = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {},
        "entries": [],
    }
    dump = FlightDump("file:x", 0, data=json.dumps(document).encode())
    return match(dumps.read([dump])).world_size


def test_as_many_as_are_named() -> None:
    assert _world("[0, 1, 7]") == 8


def test_a_rank_that_cannot_be_does_not_make_the_world_vast() -> None:
    assert _world("[0, 1, 999999999]") == 2
