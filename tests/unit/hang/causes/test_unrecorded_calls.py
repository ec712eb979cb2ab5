"""Calls that no recorder has: pairs, roots, barriers, and ranks without a recording."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.hang.causes.calls import unrecorded_calls
from grpo_doctor.hang.model.matching.model import Wait
from grpo_doctor_probes.evidence import CallArguments, Frame
from tests.evidence import TORCH, EvidenceBuilder, collective, frames
from tests.unit.hang.causes.proposed import case_of, proposed, with_matching
from tests.verdicts import verdict

MAKES = frames(
    f"_new_process_group_helper {TORCH}/distributed_c10d.py:90",
    f"new_group {TORCH}/distributed_c10d.py:95",
    "prepare /home/me/train.py:5",
)


def test_who_does_not_make_a_group_has_left_it_out() -> None:
    build = EvidenceBuilder()
    for rank in (0, 2, 3):
        build.elsewhere(rank, MAKES)
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "collective-skipped", (1,))
    assert "train.py:70, update, and did not reach new_group" in outcome.summary


# Sends and receives.

WORKS = frames("score /home/me/rewards.py:5", "main /home/me/train.py:9")


def transfer(
    *calls: tuple[str, str], missing: int | None = None, local_ranks: int | None = None
) -> list[tuple[tuple[int, ...], str]]:
    """`("recv", "3")` by rank: what it calls, and with whom; `("", "")` works."""
    build = EvidenceBuilder(ranks=len(calls), recorded=False)
    for rank, (operation, partner) in enumerate(calls):
        build.rank(rank).stack = collective(operation) if operation else WORKS
        key = "src" if operation == "recv" else "dst"
        if partner:
            build.arguments.append(CallArguments(100 + rank, operation, {key: partner}))
    if missing is not None:
        build.lose(missing)
        build.local_ranks = local_ranks
    return [
        (label.culprits, label.reason)
        for label in proposed(unrecorded_calls, build)
        if label.cause == "p2p-unmatched"
    ]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ((("recv", "1"), ("send", "0"), ("barrier", "")), []),
        (  # rank 0 only waits for one that waits for a third
            (("send", "1"), ("recv", "2"), ("all_reduce", "")),
            [((1,), "waits in recv with rank 2, which is in all_reduce")],
        ),
        (
            (("recv", "1"), ("recv", "0"), ("barrier", "")),
            [
                ((0,), "waits in recv with rank 1, which is in recv"),
                ((1,), "waits in recv with rank 0, which is in recv"),
            ],
        ),
        (
            (("send", "1"), ("send", "0"), ("barrier", "")),
            [
                ((0,), "waits in send with rank 1, which is in send"),
                ((1,), "waits in send with rank 0, which is in send"),
            ],
        ),
        (
            (("recv", "1"), ("send", "2"), ("recv", "1")),
            [((0,), "waits in recv with rank 1, which is in send")],
        ),
        (
            (("recv", "1"), ("barrier", ""), ("barrier", "")),
            [((0,), "waits in recv with rank 1, which is in barrier")],
        ),
        ((("recv", ""), ("barrier", ""), ("barrier", "")), [((0,), "waits in recv")]),
        ((("recv", "7"), ("barrier", ""), ("barrier", "")), [((0,), "waits in recv")]),
        ((("recv", "1"), ("", ""), ("barrier", "")), []),  # it waits for one at work
        ((("recv", ""), ("", ""), ("barrier", "")), []),  # it may wait for that
        ((("recv", "7"), ("", ""), ("barrier", "")), []),  # whoever that is
        (
            (("recv", "2"), ("", ""), ("recv", "3"), ("recv", "2")),
            [
                ((2,), "waits in recv with rank 3, which is in recv"),
                ((3,), "waits in recv with rank 2, which is in recv"),
            ],
        ),
    ],
)
def test_a_send_or_receive_whose_partner_stands_in_another_call(
    calls: tuple[tuple[str, str], ...], expected: list[tuple[tuple[int, ...], str]]
) -> None:
    assert transfer(*calls) == expected


# Sources and targets.


def roots(*meant: tuple[int, str], why: Any = "joined") -> list[tuple[int, ...]]:
    """Ranks in a broadcast that wait so, each with the source that it means."""
    build = EvidenceBuilder()
    waits = []
    for rank, root in meant:
        if rank < 4:  # the others are not on this host
            build.rank(rank).stack = collective("broadcast")
            build.arguments.append(CallArguments(100 + rank, "broadcast", {"src": root}))
        waits.append(Wait(rank, "0", 7, "broadcast", (3,), why))
    case = with_matching(case_of(build), waits=tuple(waits), heard=(0, 1, 2, 3))
    return [
        label.culprits for label in unrecorded_calls(case) if label.cause == "collective-mismatch"
    ]


@pytest.mark.parametrize(
    ("meant", "why", "culprits"),
    [
        (((0, "0"), (1, "0"), (2, "2")), "joined", [(2,)]),
        (((0, "0"), (1, "0")), "joined", []),
        (((0, "0"), (2, "2")), "missing", []),  # the others still come
        (((0, "0"), (1, "0"), (2, "3")), "joined", [(2,)]),
        (((0, "0"), (1, "3"), (2, "3")), "joined", [(1, 2)]),  # rank 3 has left it
        (((0, "3"), (1, "8")), "joined", [(0, 1)]),  # both have
        (((0, "3"), (1, "3"), (2, "8")), "joined", [(2,)]),
        (((0, "0"), (2, "2"), (9, "9")), "joined", [(0, 2)]),
    ],
)
def test_ranks_that_mean_another_source_than_the_rest(
    meant: tuple[tuple[int, str], ...], why: str, culprits: list[tuple[int, ...]]
) -> None:
    assert roots(*meant, why=why) == culprits


# Barriers that no recorder has, and operations without recordings.


@pytest.mark.parametrize(
    ("operations", "culprits"),
    [
        (("monitored_barrier",) * 3 + ("all_reduce",), [(3,)]),
        (("monitored_barrier",) * 2 + ("all_reduce",) * 2, []),
        (("monitored_barrier",) * 3 + ("all_reduce",) * 2, [(3, 4)]),
        (("monitored_barrier",) * 4, []),
        (("all_reduce",) * 4, []),
    ],
)
def test_the_few_that_do_not_come_to_a_barrier(
    operations: tuple[str, ...], culprits: list[tuple[int, ...]]
) -> None:
    build = EvidenceBuilder(ranks=len(operations))
    for rank, operation in enumerate(operations):
        checks = () if operation == "all_reduce" else ("check /home/me/train.py:90",)
        build.rank(rank).stack = collective(operation, *checks)
    labels = [
        label for label in proposed(unrecorded_calls, build) if label.cause == "collective-skipped"
    ]
    assert [label.culprits for label in labels] == culprits
    for label in labels:
        assert label.reason == (
            "is in all_reduce at train.py:70, update, and did not reach monitored_barrier "
            "(train.py:90, check)"
        )


def at(function: str) -> tuple[Frame, ...]:
    return collective("broadcast", f"{function} /home/me/train.py:300", "main /home/me/train.py:9")


@pytest.mark.parametrize(
    ("stack", "how", "liveness"),
    [
        (at("update"), "still", "never-wakes"),
        (at("sync_weights"), "still", "unseen"),
        (at("sync_weights"), "is_active", "computing"),
        (at("update"), "is_active", "never-wakes"),
        (at("update"), "busy", "computing"),
        # In a rollout, within which weights are sent.
        (
            collective("broadcast", "generate /x/t.py:3", "sync_weights /x/t.py:9"),
            "still",
            "unseen",
        ),
    ],
)
def test_an_operation_that_may_be_one_with_an_engine_may_end(
    stack: tuple[Frame, ...], how: str, liveness: str
) -> None:
    build = EvidenceBuilder(ranks=3, recorded=False)
    for rank in (1, 2):
        build.rank(rank).stack = collective("barrier")
    first = build.rank(0)
    first.stack = stack
    if how == "busy":
        first.works(stack, moves=False)
    elif how == "is_active":
        first.cpu_share, first.wakes = 0.2, 300
    (label,) = proposed(unrecorded_calls, build)
    assert (label.culprits, label.liveness) == ((0,), liveness)


def test_with_ranks_on_other_hosts_it_may_be_one_with_those() -> None:
    build = EvidenceBuilder(ranks=4, recorded=False)
    for rank in (1, 2):
        build.rank(rank).stack = collective("barrier")
    build.lose(3)
    build.local_ranks = 3
    labels = [
        label for label in proposed(unrecorded_calls, build) if label.cause == "collective-mismatch"
    ]
    assert [(label.culprits, label.liveness) for label in labels] == [((0,), "unseen")]
