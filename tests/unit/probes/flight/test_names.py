"""Ranks in the names that torch, operators and clusters give to dump files."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from grpo_doctor_probes.flight.files import rank_of


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3),
        ("comm_lib_trace_rank_12", 12),
        ("trace_rank3.json", 3),
        ("tracerank7", 7),
        ("Rank-05.pkl", 5),
        ("host-1_rank_00003.pkl", 3),
        ("gpu-node-17.cluster.local_nccl_trace_rank_4.json.gz", 4),
        ("10.0.3.7_rank_2", 2),
        ("nccl_trace_rank_3_20261121T103000", 3),
        ("nccl_trace_rank_3_1763720000123", 3),
        ("local_rank_1_rank_9", 9),
        ("dump_rank=6", 6),
        ("dump_3", 3),
        ("trace_0.json", 0),
        ("crank1_rank_2", 2),
        ("job/rank_3/dump.json", 3),
    ],
)
def test_a_rank_that_is_named(name: str, rank: int) -> None:
    assert rank_of(PurePath(name)) == rank


@pytest.mark.parametrize(
    "name",
    [
        "dump.json",
        "gpu-17_trace_4",  # which of them?
        "local_rank_1",  # of some host
        "node_rank_2.pkl",
        "rank_1_of_rank_2",
        "nccl_trace_20261121",
        "v2_trace.json",
        "rank.json",
        "trace_rank_x7",
        "job/dump.json",
        "rank_3/gpu-17_trace_4",  # a name that contradicts itself is not mended by its folder
    ],
)
def test_a_rank_that_nobody_can_tell(name: str) -> None:
    assert rank_of(PurePath(name)) is None
