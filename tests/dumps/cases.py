"""Faults of collectives as programs of eight ranks, and whose fault each is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.dumps.simulator import Call, Halt, Job, Program, job

RANKS = 8
ROUNDS = 12


@dataclass(frozen=True)
class Case:
    """`culprits` empty: nothing is wrong. `causes` are the classes that fit: the first with
    lines of code, the others without.
    """

    name: str
    culprits: frozenset[int]
    causes: tuple[str, ...]
    build: Callable[[], Job]
    after_s: float = 60.0


def slug(name: str) -> str:
    """The folder of a case."""
    return name.replace(",", "").replace(" ", "-")


GROUPS: Mapping[str, Sequence[int]] = {
    "0": range(RANKS),
    "1": range(4),
    "2": range(4, RANKS),
    "3": range(RANKS),
}


def tensor_group(rank: int) -> str:
    """The half of the job that a rank is in."""
    return "1" if rank < 4 else "2"


def step(rank: int) -> list[Call]:
    """One healthy round."""
    return [
        Call("all_reduce", elements=4096, line=10, compute_ns=50_000_000),
        Call("all_gather", tensor_group(rank), 256, line=11),
        Call("all_reduce", elements=1, line=12),
        Call("all_reduce", "3", 64, line=13),
        Call("broadcast", elements=128, line=14),
    ]


def healthy(rank: int, rounds: int = ROUNDS) -> list[Call | Halt]:
    """Rounds without a fault."""
    return [call for _ in range(rounds) for call in step(rank)]


def programs(last: Callable[[int], Program]) -> Job:
    """Healthy rounds, then what `last` gives for each rank."""
    return job(GROUPS, {rank: [*healthy(rank), *last(rank)] for rank in range(RANKS)}).run()


def with_call(rank: int, culprit: int, index: int, instead: Sequence[Call | Halt]) -> Program:
    """A last round in which the culprit has something else in one place, then one round more."""
    calls: list[Call | Halt] = list(step(rank))
    if rank == culprit:
        calls[index : index + 1] = instead
    return [*calls, *step(rank)]


def swap(rank: int, culprit: int) -> Program:
    """The culprit takes two groups in the other order."""
    calls = step(rank)
    if rank == culprit:
        calls[2:4] = Call("all_reduce", "3", 64, line=93), Call("all_reduce", elements=1, line=94)
    return [*calls, *step(rank)]


def loops(rank: int, rounds: int) -> Program:
    """All the same collective in every round, then a barrier after the loop."""
    return [*[Call("all_reduce", elements=4096, line=10)] * rounds, Call("barrier", line=30)]


def logging_loop(rank: int) -> Program:
    """Rank 0 alone reduces a metric in round 5, of the size of everything else."""
    call = Call("all_reduce", elements=4096, line=10)
    extra = [Call("all_reduce", elements=4096, line=22)] if rank == 0 else []
    return [*[call] * 5, *extra, *[call] * 8]


def pipeline(rank: int, silent: int) -> Program:
    """Each stage receives from the one before and sends on; one does not send."""
    receive = [Call("recv", peer=rank - 1, line=40)] if rank else []
    send = [Call("send", peer=rank + 1, line=41)] if rank < RANKS - 1 else []
    exchange = [*receive, *send]
    return [*exchange, *exchange, *receive, *([Halt()] if rank == silent else send)]


def skewed() -> Job:
    """Healthy, looked at while rank 5 has not called the round's first collective yet."""
    return job(
        GROUPS,
        {r: [*healthy(r), *([Halt()] if r == 5 else step(r))] for r in range(RANKS)},
    ).run()


def busy_half() -> Job:
    """Healthy; half of the ranks had a lot more to do in a group of their own."""
    more = [Call("all_reduce", "1", 8, line=50)] * 40
    return programs(lambda rank: [*(more if rank < 4 else []), *step(rank)])


def two_ranks(order: Callable[[int], Program]) -> Job:
    """Two ranks in two groups of both."""
    return job({"0": range(2), "1": range(2)}, {r: order(r) for r in range(2)}).run()


def one_after_other(rank: int) -> Program:
    """Two rounds in one order, then rank 1 in the other."""
    in_first, in_second = Call("all_reduce", "0", 8, line=60), Call("all_reduce", "1", 8, line=61)
    reversed_order = [Call("all_reduce", "1", 8, line=62), Call("all_reduce", "0", 8, line=63)]
    last = reversed_order if rank == 1 else [in_first, in_second]
    return [in_first, in_second, in_first, in_second, in_first, in_second, *last]


def _only(*ranks: int) -> frozenset[int]:
    return frozenset(ranks)


CASES: tuple[Case, ...] = (
    Case("healthy", _only(), ("",), lambda: programs(lambda rank: [])),
    Case("healthy, in flight", _only(), ("",), skewed, after_s=0.05),
    Case("healthy, a busier group", _only(), ("",), busy_half),
    Case(
        "missing rank",
        _only(5),
        ("unknown",),
        lambda: programs(lambda rank: with_call(rank, 5, 0, [Halt()])),
    ),
    Case(
        "missing rank, a busier group",
        _only(6),
        ("unknown",),
        lambda: programs(
            lambda rank: [
                *([Call("all_reduce", "1", 8, line=50)] * 40 if rank < 4 else []),
                *with_call(rank, 6, 0, [Halt()]),
            ]
        ),
    ),
    Case(
        "other operation",
        _only(5),
        ("collective-mismatch",),
        lambda: programs(
            lambda rank: with_call(rank, 5, 0, [Call("reduce", elements=4096, line=70)])
        ),
    ),
    Case(
        "other operation on the first rank",
        _only(0),
        ("collective-mismatch",),
        lambda: programs(
            lambda rank: with_call(rank, 0, 0, [Call("reduce", elements=4096, line=70)])
        ),
    ),
    Case(
        "other size",
        _only(2),
        ("collective-mismatch",),
        lambda: programs(
            lambda rank: with_call(rank, 2, 0, [Call("all_reduce", elements=2048, line=10)])
        ),
    ),
    Case(
        "other type",
        _only(3),
        ("collective-mismatch",),
        lambda: programs(
            lambda rank: with_call(rank, 3, 0, [Call("all_reduce", "0", 4096, "Double", 10)])
        ),
    ),
    Case(
        "skipped",
        _only(5),
        ("collective-skipped", "group-order-cycle"),
        lambda: programs(lambda rank: with_call(rank, 5, 2, [])),
    ),
    Case(
        "extra, of the same size",
        _only(0),
        ("collective-mismatch",),
        lambda: job(GROUPS, {r: logging_loop(r) for r in range(RANKS)}).run(),
    ),
    Case(
        "extra, then another size",
        _only(0),
        ("collective-mismatch", "group-order-cycle"),
        lambda: programs(
            lambda rank: with_call(
                rank,
                0,
                2,
                [Call("all_reduce", elements=1, line=80), Call("all_reduce", elements=1, line=12)],
            )
        ),
    ),
    Case(
        "barrier on six of eight",
        _only(6, 7),
        ("collective-mismatch",),
        lambda: programs(
            lambda rank: [*([Call("barrier", line=90)] if rank < 6 else []), *step(rank)]
        ),
    ),
    Case(
        "uneven batches",
        _only(4),
        ("collective-mismatch",),
        lambda: job(GROUPS, {r: loops(r, ROUNDS - (r == 4)) for r in range(RANKS)}).run(),
    ),
    Case(
        "groups in another order",
        _only(3),
        ("group-order-cycle",),
        lambda: programs(lambda rank: swap(rank, 3)),
    ),
    Case(
        "two ranks, another order than before",
        _only(1),
        ("group-order-cycle",),
        lambda: two_ranks(one_after_other),
    ),
    Case(
        "send left out",
        _only(3),
        ("p2p-unmatched",),
        lambda: job(GROUPS, {r: pipeline(r, 3) for r in range(RANKS)}).run(),
    ),
    Case(
        "receive left out",
        _only(6),
        ("p2p-unmatched",),
        lambda: job(
            {"0": range(RANKS)},
            {
                r: [
                    Call("all_reduce"),
                    *(
                        [Call("send", peer=6, line=41)] * 2
                        if r == 2
                        else [Call("recv", peer=2, line=42), Halt()]
                        if r == 6
                        else []
                    ),
                ]
                for r in range(RANKS)
            },
        ).run(),
    ),
)
BY_NAME = {case.name: case for case in CASES}
