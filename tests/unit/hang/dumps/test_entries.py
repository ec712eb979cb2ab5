"""Names of operations of every backend."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.dumps.documents import clean, operation


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("nccl:all_reduce", "all_reduce"),
        ("nccl:allreduce_coalesced", "all_reduce"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("gloo:barrier", "barrier"),
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:all_gather_into_tensor_coalesced", "all_gather"),
        ("nccl:all_gather_single", "all_gather"),
        ("nccl:all_gather_v", "all_gather"),
        ("xccl:_reduce_scatter_base", "reduce_scatter"),
        ("hccl:reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("nccl:all_to_all_v_single", "all_to_all"),
        ("nccl:_broadcast_oop", "broadcast"),
        ("nccl:_reduce_oop", "reduce"),
        ("nccl:ALLGATHER_coalesced", "coalesced"),
        ("nccl:coalesced", "coalesced"),
        ("nccl:split", "other"),
        ("nccl2:all_reduce", "all_reduce"),
        ("all_reduce", "all_reduce"),
        ("", "other"),
    ],
)
def test_variants_are_one_operation(name: str, op: str) -> None:
    assert operation(name).op == op


def test_backends_are_kept_whatever_they_are() -> None:
    assert [operation(f"{b}:gather").backend for b in ("nccl", "nccl2", "xccl", "my-own")] == [
        "nccl",
        "nccl2",
        "xccl",
        "my-own",
    ]


def test_both_ends_of_a_transfer_name_the_same_ranks() -> None:
    sent, received = operation("nccl:send 1->2"), operation("nccl:recv 2<-1")
    assert (sent.source, sent.target) == (received.source, received.target) == (1, 2)


def test_texts_cannot_steer_a_terminal() -> None:
    assert "\x1b" not in clean("a\x1b[31mred\n\u202eback")
    assert "\n" not in clean("a\nb")
    assert len(clean("x" * 10_000)) == 300
