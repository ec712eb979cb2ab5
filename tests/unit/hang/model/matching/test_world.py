"""How many ranks a job has, by recordings that anybody may have made."""

from __future__ import annotations

import json

import pytest

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


@pytest.mark.parametrize(
    ("ranks", "world"),
    [("[0, 1, 7]", 8), ("[0, 1, 999999999]", 2)],  # no rank that cannot be makes it vast
)
def test_as_many_as_are_named(ranks: str, world: int) -> None:
    assert _world(ranks) == world
