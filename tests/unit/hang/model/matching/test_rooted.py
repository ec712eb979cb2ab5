"""Collectives with one rank that collects or hands out: all must mean the same one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor.hang.model.matching.model import Matching
from grpo_doctor_probes.evidence import FlightDump

RANKS = 4


def entry(op: str, number: int, *, root: bool, done: bool, part: int = 28) -> dict[str, Any]:
    """As gloo's recorder has it: only the root has what all give, or get."""
    own_sizes, all_sizes = [[part]], [[RANKS, part]] if root else []
    inputs, outputs = (own_sizes, all_sizes) if op == "gather" else (all_sizes, own_sizes)
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "profiling_name": f"gloo:{op}",
        "time_created_ns": 1_790_000_000_000_000_000 + number,
        "input_sizes": inputs,
        "output_sizes": outputs,
        "input_dtypes": ["Byte"] if inputs else [],
        "output_dtypes": ["Byte"] if outputs else [],
        "state": "scheduled",
        "retired": done,
        "is_p2p": False,
    }


def matched(*of_ranks: Sequence[dict[str, Any]]) -> Matching:
    files = []
    for rank, entries in enumerate(of_ranks):
        document = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": list(entries)}
        files.append(FlightDump("file:x", rank, data=json.dumps(document).encode()))
    return match(dumps.read(files), RANKS)


def claimed(op: str, roots: Sequence[int], number: int = 5) -> list[list[dict[str, Any]]]:
    return [
        [entry(op, number, root=rank in roots, done=rank not in roots)] for rank in range(RANKS)
    ]


def test_who_was_the_target_before_is_right() -> None:
    earlier = [[entry("gather", 4, root=rank == 0, done=True)] for rank in range(RANKS)]
    dumps_of_both = [
        [*before, *now]
        for before, now in zip(earlier, claimed("gather", (0, 2)), strict=True)
    ]  # fmt: skip
    (blame,) = matched(*dumps_of_both).blame
    assert blame.rank == 2
