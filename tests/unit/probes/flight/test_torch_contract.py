"""What the code takes for granted of torch, against what its CUDA wheels say.

`python -m tests.torch_contract VERSION --write` reads a further wheel into the table.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from grpo_doctor_probes import entrytimes
from grpo_doctor_probes.flight import dump_locations, dump_requests, recorders, ring
from grpo_doctor_probes.supervisor.flightenv import flight_variables
from tests.torch_contract.promises import TABLE, body_of

TORCHES: dict[str, Any] = json.loads(TABLE.read_text())
READ_AS_A_RING = [row for row in TORCHES.values() if row["recorder_bytes"] in ring.RECORDER_BYTES]


def numbers(version: str) -> tuple[int, int]:
    major, minor, _ = version.split(".")
    return int(major), int(minor)


@pytest.fixture(params=TORCHES)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_dump_without_entries_takes_no_lock_and_asks_no_device(version: str) -> None:
    torch = TORCHES[version]
    assert not torch["without_entries_locks"]
    assert not torch["without_entries_queries"]
    assert not torch["calls_communicators"]
    assert {"get", "dump_json"} <= set(torch["calls"])
    assert not [name for name in torch["calls"] if "cuda" in name.lower()]


def test_the_functions_that_are_called_are_there(version: str) -> None:
    symbols = set(TORCHES[version]["symbols"])
    assert recorders._NCCL in symbols
    assert len({recorders._FR, recorders._FR_OF_BACKEND} & symbols) == 1


def test_the_code_leads_to_the_recorder(version: str) -> None:
    assert TORCHES[version]["recorder_found"]
    first = ["enabled_", "capture_cpp_stack_", "mutex_", "entries_", "max_entries_", "next_", "id_"]
    assert TORCHES[version]["members"][: len(first)] == first


def test_from_which_torch_on_a_dump_has_the_mutex_while_it_asks_cuda(version: str) -> None:
    since = numbers(version) >= entrytimes._SAFE_SINCE
    assert TORCHES[version]["queries_under_mutex"] == since


def test_the_members_that_are_read_lie_in_that_order() -> None:
    assert READ_AS_A_RING
    for torch in READ_AS_A_RING:
        for table, members in (
            (ring.RECORDER_MEMBERS, torch["members"]),
            (ring.ENTRY_MEMBERS, torch["entry_members"]),
        ):
            names = [name for name, _ in sorted(table, key=lambda member: member[1])]
            assert names == [name for name in members if name in names]


def test_a_ring_that_is_laid_out_otherwise_has_another_size() -> None:
    for torch in TORCHES.values():
        if torch not in READ_AS_A_RING:
            assert "reset_epoch_" not in torch["entry_members"]


def test_the_settings_that_are_set_and_read_exist(version: str) -> None:
    settings = set(TORCHES[version]["settings"])
    assert {dump_locations.PREFIX_VARIABLES[0], dump_requests.PIPE_VARIABLES[0]} <= settings
    assert set(flight_variables({}, TABLE.parent, numbers(version), gpus=8)) <= settings


def test_bodies_are_cut_out_whole() -> None:
    assert body_of("f(); void f(int) { if (x) { y(); } } g {}", "void f(") == "{ if (x) { y(); } }"
    with pytest.raises(ValueError, match="no end"):
        body_of("f() {", "f(")
