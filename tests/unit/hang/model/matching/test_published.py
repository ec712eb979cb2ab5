"""The situations that PyTorch's tests of its own analyzer name, with our records of them.

Where we differ it is said why. Theirs: test/distributed/flight_recorder/test_fr_analysis.py.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor.hang.model.matching.model import Matching
from grpo_doctor_probes.evidence import FlightDump

EVERY_NAME = (
    *("broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "all_gather", "all_gather_single"),
    *("all_gather_v", "all_reduce", "_all_gather_base", "all_gather_into_tensor_coalesced"),
    *("reduce_scatter", "reduce_scatter_single", "reduce_scatter_v", "gather", "scatter"),
    *("reduce_scatter_tensor_coalesced", "_reduce_scatter_base", "all_to_all", "split", "barrier"),
    *("all_to_all_single", "all_to_all_v_single", "all_reduce_barrier", "new_window"),
    *("allreduce_coalesced", "ALLGATHER_coalesced", "REDUCE_SCATTER_coalesced"),
)
SQUARE = [[4, 4]]


def call(name: str, inputs: Any = SQUARE, outputs: Any = SQUARE, **more: Any) -> dict[str, Any]:
    """An entry with numbers as texts and types as one text, as their tests have them."""
    return {
        "profiling_name": name if ":" in name else f"nccl:{name}",
        "state": "scheduled",
        "process_group": ("0", "default_pg"),
        "input_sizes": inputs,
        "output_sizes": outputs,
        "input_dtypes": "float32",
        "output_dtypes": "float32",
        "collective_seq_id": "1",
        "p2p_seq_id": "0",
        "time_created_ns": 0,
        "frames": [],
        **more,
    }


def met(*ranks: list[dict[str, Any]]) -> Matching:
    groups = {
        "0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(len(ranks))))},
        "1": {"name": "1", "desc": "sub_pg"},
    }
    files = []
    for rank, entries in enumerate(ranks):
        own = {**groups, "1": {**groups["1"], "ranks": str([rank])}}
        numbered = [{"record_id": n, **entry} for n, entry in enumerate(entries)]
        data = pickle.dumps({"version": "2.8", "pg_config": own, "entries": numbered}, 2)
        files.append(FlightDump(f"file:d/rank_{rank}", rank, data=data))
    return match(dumps.read(files))


def kind(*ranks: list[dict[str, Any]]) -> str:
    return met(*ranks).statuses[0].kind


def reasons(*ranks: list[dict[str, Any]]) -> set[str]:
    return {blame.reason for blame in met(*ranks).blame}


@pytest.mark.parametrize("name", EVERY_NAME)
def test_the_same_call_on_both_ranks_agrees(name: str) -> None:
    assert kind([call(name)], [call(name)]) == "all-joined-none-done"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (call("all_gather"), "other-op"),
        (call("all_reduce", [[5, 4]], SQUARE), "other-size"),
        (call("all_reduce", SQUARE, [[5, 4]]), "other-size"),
        (call("all_reduce", input_dtypes="float16", output_dtypes="float16"), "other-type"),
    ],
)
def test_operations_sizes_or_types_differ(other: dict[str, Any], reason: str) -> None:
    assert reasons([call("all_reduce")], [other]) == {reason}


def test_equal_amounts_in_other_shapes_do_not_hang_and_are_no_fault() -> None:
    """They call this a mismatch; NCCL and gloo see elements."""
    assert (
        kind([call("all_reduce")], [call("all_reduce", [[16]], [[16]])]) == "all-joined-none-done"
    )


def test_done_on_one_rank_first_is_no_fault() -> None:
    """They call a difference of states a mismatch and name a culprit."""
    matched = met([call("all_reduce")], [call("all_reduce", state="completed")])
    assert (matched.statuses[0].kind, matched.blame) == ("partial", ())


@pytest.mark.parametrize("outputs", [[[]], SQUARE])
def test_only_the_root_of_a_gather_has_outputs(outputs: Any) -> None:
    root = call("gather", SQUARE, [[4, 4], [4, 4]], state="scheduled")
    assert (
        kind([root], [call("gather", SQUARE, outputs, output_dtypes="")]) == "all-joined-none-done"
    )


def test_all_to_all_may_be_uneven_as_long_as_it_adds_up() -> None:
    even = [call("all_to_all", [[3]], [[5]])], [call("all_to_all", [[5]], [[3]])]
    uneven = [call("all_to_all", [[3]], [[5]])], [call("all_to_all", [[5]], [[4]])]
    assert kind(*even) == "all-joined-none-done"
    assert kind(*uneven) == "mismatch"


@pytest.mark.parametrize("backend", ["nccl", "ncclx", "gloo", "xccl", "nccl2", "unknown_backend"])
def test_any_backend_is_read(backend: str) -> None:
    """Theirs ends at a name that it does not know."""
    calls = [call(f"{backend}:all_reduce")]
    assert kind(calls, calls) == "all-joined-none-done"


def test_groups_of_one_name_with_other_members_are_apart() -> None:
    done = call("all_reduce", state="completed")
    own = call("all_reduce", [[5]], [[5]], state="completed", process_group=("1", "sub_pg"))
    matched = met([done, own], [done, own])
    assert len(matched.statuses) == 3
    assert {status.kind for status in matched.statuses} == {"fine"}


def coalesced(end: str, *parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [*parts, call(end, [[]], [[]])]


def test_coalesced_groups_that_agree() -> None:
    pair = call("broadcast"), call("broadcast")
    calls = coalesced("coalesced", *pair)
    assert kind(calls, calls) == "all-joined-none-done"


def test_coalesced_groups_with_a_part_of_another_size() -> None:
    five = [[5, 5]]
    first = coalesced(
        "ALLGATHER_coalesced", call("_broadcast_oop"), call("_broadcast_oop", five, five)
    )
    second = coalesced("ALLGATHER_coalesced", call("_broadcast_oop"), call("_broadcast_oop"))
    matched = met(first, second)
    assert matched.statuses[0].kind == "mismatch"
    assert {blame.grounds for blame in matched.blame} == {"either"}


def test_a_coalesced_group_that_is_empty_on_one_rank() -> None:
    parts = [call("_reduce_oop", collective_seq_id="2")] * 2
    end = call("REDUCE_SCATTER_coalesced", [[]], [[]], collective_seq_id="2")
    done = call("all_reduce", state="completed")
    matched = met([done], [done, *parts, end])
    assert matched.statuses[0].missing == (0,)
