"""Cycles, jobs that move, and documents that are hardly any."""

from __future__ import annotations

from typing import Any

from tests.demo_verdicts.pieces import (
    REDUCE,
    make,
    node,
    process,
    stack,
    wait,
)


def deadlock() -> dict[str, Any]:
    """Two groups in different order at the weight sync: a cycle, with bystanders."""
    return make(
        4,
        {
            "state": "stuck",
            "class": "group-order-cycle",
            "culprits": [0, 1],
            "victims": [2, 3],
            "certainty": "likely",
            "phase": "sync",
            "summary": "Ranks 0 and 1 wait for each other: rank 0 in all_gather of group fsdp "
            "(sync.py:52), rank 1 in broadcast of group transfer (sync.py:61).",
            "evidence": [
                {
                    "source": "flight recorder",
                    "rank": 0,
                    "text": "is in all_gather #17 of group fsdp and has not called broadcast "
                    "#5 of group transfer",
                },
                {
                    "source": "flight recorder",
                    "rank": 1,
                    "text": "is in broadcast #5 of group transfer and has not called "
                    "all_gather #17 of group fsdp",
                },
            ],
            "confirm": ["Both lines are under `if rank == 0` or in two threads of one rank."],
            "fixes": [
                {
                    "text": "Call the collectives of both groups in the same order on every "
                    "rank: gather the weights first, on all ranks, then broadcast.",
                    "knob": None,
                    "spelling": None,
                }
            ],
        },
        ranks=[
            process(0, "waiting", "all_gather, sync.py:52", "rank 1, in all_gather of fsdp"),
            process(1, "waiting", "broadcast, sync.py:61", "rank 0, in broadcast of transfer"),
            process(2, "waiting", "all_gather, sync.py:52", "rank 1, in all_gather of fsdp"),
            process(3, "waiting", "all_gather, sync.py:52", "rank 1, in all_gather of fsdp"),
        ],
        graph={
            "nodes": [node(0, guilty=True), node(1, guilty=True), node(2), node(3)],
            "edges": [
                wait("rank:0", "rank:1", "collective", "all_gather #17 of fsdp"),
                wait("rank:1", "rank:0", "collective", "broadcast #5 of transfer"),
                wait("rank:2", "rank:1", "collective", "all_gather #17 of fsdp"),
                wait("rank:3", "rank:1", "collective", "all_gather #17 of fsdp"),
            ],
            "cycle": ["rank:0", "rank:1"],
        },
        stacks=[
            stack(
                [0, 2, 3],
                "waiting in all_gather",
                [
                    "all_gather (torch/distributed/distributed_c10d.py:3801)",
                    "gather_weights (sync.py:52)",
                    "main (train.py:140)",
                ],
            ),
            stack(
                [1],
                "waiting in broadcast",
                [
                    "broadcast (torch/distributed/distributed_c10d.py:3151)",
                    "push_weights (sync.py:61)",
                    "main (train.py:140)",
                ],
            ),
        ],
    )


def ring() -> dict[str, Any]:
    """Every rank of 64 waits to receive from the next: the longest cycle."""
    world = 64
    return make(
        world,
        {
            "state": "stuck",
            "class": "p2p-unmatched",
            "culprits": list(range(world)),
            "certainty": "likely",
            "phase": "train",
            "summary": "All 64 ranks wait in recv (pipeline.py:20) for the next one: nobody sends.",
            "fixes": [
                {
                    "text": "Let even ranks send first and odd ranks receive first, or use "
                    "batch_isend_irecv.",
                    "knob": None,
                    "spelling": None,
                }
            ],
        },
        ranks=[
            process(rank, "waiting", "recv, pipeline.py:20", f"rank {(rank + 1) % world}, in recv")
            for rank in range(world)
        ],
        graph={
            "nodes": [node(rank, guilty=True) for rank in range(world)],
            "edges": [
                wait(f"rank:{rank}", f"rank:{(rank + 1) % world}", "p2p", "recv")
                for rank in range(world)
            ],
            "cycle": [f"rank:{rank}" for rank in range(world)],
        },
    )


def slow_rollout() -> dict[str, Any]:
    """Long, and it moves: no alarm."""
    return make(
        8,
        {
            "state": "slow",
            "class": "user-code-busy",
            "culprits": [2],
            "victims": [0, 1, 3, 4, 5, 6, 7],
            "certainty": "likely",
            "phase": "rollout",
            "summary": "The job is slow, not stuck: rank 2 still generates (rollout.py:77), "
            "the other 7 ranks have waited 26 s for it; about 40 s more.",
            "evidence": [
                {"source": "proc", "rank": 2, "text": "used 1.19 s of CPU in 1.2 s"},
                {
                    "source": "flight recorder",
                    "rank": None,
                    "text": "the longest wait so far in this run was 31 s",
                },
            ],
            "fixes": [
                {
                    "text": "Bound the longest completion, or let the engine batch more.",
                    "knob": "max_completion_length",
                    "spelling": "--max_completion_length 2048",
                }
            ],
        },
        ranks=[
            process(
                rank,
                "running" if rank == 2 else "waiting",
                "generate, rollout.py:77" if rank == 2 else REDUCE,
                "" if rank == 2 else "rank 2, in all_reduce",
            )
            for rank in range(8)
        ],
    )


def healthy() -> dict[str, Any]:
    """Everything moves."""
    return make(
        2,
        {
            "state": "healthy",
            "class": "",
            "certainty": "proven",
            "summary": "The job is healthy: both ranks made progress between two samples.",
        },
        ranks=[
            process(0, "running", "train_step, train.py:80"),
            process(1, "running", "train_step, train.py:80"),
        ],
        cost={"seconds": 1.9, "max_pause_ms": 0.0},
    )


def nothing() -> dict[str, Any]:
    """The least that is a verdict."""
    return {"schema": 1}
