"""Jobs over several hosts: all of them looked at, and one alone."""

from __future__ import annotations

from typing import Any, Final

from tests.demo_verdicts.blocked import stopped
from tests.demo_verdicts.pieces import FIRST_PID, REDUCE, make, node, process, wait

_PER_HOST: Final = 8
_LOOK: Final = "grpo-doctor attach --slurm 4711"


def many_hosts(world: int = 1024, culprit: int = 513) -> dict[str, Any]:
    """One rank of a whole cluster is stopped."""
    document = stopped(world, culprit)
    names = [f"gpu-{number:03}" for number in range(world // _PER_HOST)]
    guilty, pid = names[culprit // _PER_HOST], FIRST_PID + culprit
    document["job"] |= {
        "host": ", ".join(names) if len(names) < 5 else f"{names[0]} and {len(names) - 1} others",
        "hosts": [
            {"name": name, "ranks": list(range(at * _PER_HOST, (at + 1) * _PER_HOST))}
            for at, name in enumerate(names)
        ],
    }
    document["verdict"] |= {
        "summary": f"Rank {culprit} on {guilty} is stopped by a signal in reward_fn, rewards.py:31"
        f"; the other {world - 1} ranks wait for it in all_reduce.",
        "confirm": [f"kill -CONT {pid}  # on {guilty}: the job must resume immediately"],
        "fixes": [{"text": "Resume it:", "knob": None, "spelling": f"kill -CONT {pid}"}],
    }
    document["ranks"] = [
        row | {"host": names[row["rank"] // _PER_HOST]} for row in document["ranks"]
    ]
    document["problems"] = [
        {
            "what": "can't read the bundle /shared/hang/gpu-127: it is damaged.",
            "remedy": "Its host's ranks are not in this verdict.",
        }
    ]
    return document


def one_host_of_two() -> dict[str, Any]:
    """All ranks of this host wait, and the others are not on it."""
    local, remote = range(_PER_HOST), range(_PER_HOST, 2 * _PER_HOST)
    return make(
        2 * _PER_HOST,
        {
            "state": "stuck",
            "class": "unknown",
            "culprits": list(remote),
            "victims": list(local),
            "certainty": "likely",
            "summary": "The ranks of this host wait in all_reduce for ranks 8-15, which are not "
            "on this host (probably on node2).",
            "evidence": [
                {"source": "proc", "rank": None, "text": "8 of 16 ranks were seen, on node1"},
                {"source": "history", "rank": None, "text": "waiting for 11 min"},
            ],
            "fixes": [
                {
                    "text": 'Inspect all hosts with the one command under "how to confirm".',
                    "knob": None,
                    "spelling": None,
                }
            ],
            "confirm": [_LOOK],
        },
        job={
            "host": "node1",
            "world_size": 2 * _PER_HOST,
            "ranks_seen": list(local),
            "ranks_missing": list(remote),
            "framework": "trl",
        },
        ranks=[process(rank, "waiting", REDUCE, "ranks 8-15, in all_reduce") for rank in local]
        + [process(rank, "missing", "") | {"pid": None} for rank in remote],
        graph={
            "nodes": [node(rank, guilty=rank in remote) for rank in range(2 * _PER_HOST)],
            "edges": [
                wait(f"rank:{rank}", f"rank:{other}", "collective", "all_reduce #42")
                for rank in local
                for other in remote
            ],
            "cycle": [],
        },
    )
