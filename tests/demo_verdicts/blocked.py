"""Jobs that one rank holds up."""

from __future__ import annotations

from typing import Any

from tests.demo_verdicts.pieces import (
    FIRST_PID,
    REDUCE,
    WAITER_FRAMES,
    make,
    node,
    process,
    stack,
    wait,
)


def stopped(world: int = 8, culprit: int = 3) -> dict[str, Any]:
    """One rank has got SIGSTOP, the others wait for it."""
    victims = [rank for rank in range(world) if rank != culprit]
    pid = FIRST_PID + culprit
    return make(
        world,
        {
            "state": "stuck",
            "class": "rank-stopped",
            "culprits": [culprit],
            "victims": victims,
            "certainty": "proven",
            "phase": "reward",
            "summary": f"Rank {culprit} is stopped by a signal in reward_fn, rewards.py:31; "
            f"the other {world - 1} ranks wait for it in all_reduce.",
            "evidence": [
                {
                    "source": "proc",
                    "rank": culprit,
                    "text": "its main thread is in state T, do_signal_stop, in both looks",
                },
                {
                    "source": "proc",
                    "rank": None,
                    "text": f"{world - 1} ranks sleep in a futex and did not run for 41 s",
                },
                {
                    "source": "flight recorder",
                    "rank": culprit,
                    "text": "is at collective 41 of group 0; all others wait in 42 "
                    "(all_reduce, 1024 floats)",
                },
                {
                    "source": "stack",
                    "rank": culprit,
                    "text": "stands in reward_fn, rewards.py:31, in both looks",
                },
            ],
            "confirm": [
                f"grep State /proc/{pid}/status  # says T (stopped)",
                f"kill -CONT {pid}  # and the job goes on",
            ],
            "can_go_on": "Yes, as soon as the rank is resumed; nothing is lost.",
            "fixes": [
                {"text": "Resume it:", "knob": None, "spelling": f"kill -CONT {pid}"},
                {
                    "text": "Find out who stopped it: a debugger that was left, Ctrl-Z in "
                    "its terminal, or a batch system that suspends jobs.",
                    "knob": None,
                    "spelling": None,
                },
            ],
        },
        ranks=[process(culprit, "stopped", "reward_fn, rewards.py:31")]
        + [process(rank, "waiting", REDUCE, f"rank {culprit}, in all_reduce") for rank in victims],
        graph={
            "nodes": [node(rank, guilty=rank == culprit) for rank in range(world)],
            "edges": [
                wait(f"rank:{rank}", f"rank:{culprit}", "collective", "all_reduce #42")
                for rank in victims
            ],
            "cycle": [],
        },
        stacks=[
            stack(
                [culprit],
                "in reward_fn",
                ["reward_fn (rewards.py:31)", "score (train.py:70)", "main (train.py:140)"],
            ),
            stack(victims, "waiting in all_reduce", WAITER_FRAMES),
        ],
    )


def reward_server() -> dict[str, Any]:
    """A chain through processes and things: ranks, a rank, a socket, a server that is not ours."""
    document = stopped(8, 5)
    document["verdict"] |= {
        "class": "reward-blocked",
        "certainty": "likely",
        "summary": "Rank 5 waits in score (rewards.py:44) for an answer of 10.0.0.9:8000, "
        "for 41 s; "
        "the other 7 ranks wait for it in all_reduce.",
        "can_go_on": "Yes, when the answer comes, or the call fails and the reward bears that: "
        "fix the unresponsive service before you end the job.",
        "fixes": [
            {
                "text": "Give the request a time limit, and a reward of its own for what "
                "times out.",
                "knob": "reward_timeout",
                "spelling": "--reward_timeout 60",
            }
        ],
        "confirm": ["curl -m 5 http://10.0.0.9:8000/health    does not answer"],
    }
    document["ranks"][0] |= {
        "state": "blocked",
        "where": "score, rewards.py:44",
        "waiting_for": "an answer of 10.0.0.9:8000",
    }
    document["ranks"] += [
        {
            "rank": 5,
            "pid": 4790,
            "role": "reward",
            "state": "blocked",
            "where": "recv_into, socket.py:705",
            "waiting_for": "10.0.0.9:8000",
        }
    ]
    graph = document["graph"]
    graph["nodes"] += [
        {"id": "pid:4790", "label": "reward worker (4790)", "role": "reward", "guilty": False},
        {"id": "socket:10.0.0.9:8000", "label": "10.0.0.9:8000", "role": "socket", "guilty": False},
    ]
    graph["edges"] += [
        wait("rank:5", "pid:4790", "pipe", "pipe"),
        wait("pid:4790", "socket:10.0.0.9:8000", "socket", "HTTP answer"),
    ]
    document["problems"] = [
        {
            "what": "10.0.0.9 is another host, its side of the connection was not seen.",
            "remedy": "Run grpo-doctor attach there as well.",
        }
    ]
    return document


def dead() -> dict[str, Any]:
    """A rank was killed for memory; one is on nobody knows which host."""
    document = stopped(4, 1)
    document["job"] |= {"ranks_seen": [0, 2], "ranks_missing": [1, 3]}
    document["verdict"] |= {
        "state": "dead",
        "class": "oom-killed",
        "culprits": [1],
        "victims": [0, 2],
        "certainty": "proven",
        "phase": None,
        "summary": "Rank 1 is dead: the kernel killed it for memory (31 GiB of its limit of "
        "32 GiB) 38 s ago; ranks 0 and 2 wait for it.",
        "evidence": [
            {
                "source": "kernel",
                "rank": 1,
                "text": "Out of memory: Killed process 4701 (python), 38 s ago",
            },
            {"source": "cgroup", "rank": None, "text": "memory.events: oom_kill 1"},
        ],
        "confirm": ["dmesg | grep -i 'killed process'"],
        "fixes": [
            {
                "text": "Give the job more memory, or let it need less.",
                "knob": "offload_optimizer",
                "spelling": "--deepspeed zero2",
            }
        ],
    }
    document["ranks"] = [
        process(1, "dead", ""),
        process(0, "waiting", REDUCE, "rank 1, in all_reduce"),
        process(2, "waiting", REDUCE, "rank 1, in all_reduce"),
    ]
    document["graph"]["nodes"] = [node(0), node(1, guilty=True), node(2)]
    document["graph"]["edges"] = [
        wait(f"rank:{r}", "rank:1", "collective", "all_reduce #42") for r in (0, 2)
    ]
    document["stacks"] = document["stacks"][1:]
    return document


def unknown() -> dict[str, Any]:
    """Half of the ranks may not be looked at: no guess, one command."""
    return make(
        4,
        {
            "state": "stuck",
            "class": "unknown",
            "victims": [0, 1],
            "certainty": "possible",
            "phase": None,
            "summary": "The job is stuck and this look cannot tell why: ranks 0-1 wait in "
            "all_reduce, ranks 2-3 may not be looked at.",
            "confirm": ["sudo grpo-doctor attach"],
            "evidence": [
                {
                    "source": "proc",
                    "rank": None,
                    "text": "ranks 0-1 made no progress between two samples",
                }
            ],
        },
        ranks=[
            process(0, "waiting", REDUCE, "ranks 2-3"),
            process(1, "waiting", REDUCE, "ranks 2-3"),
            process(2, "unknown", ""),
            process(3, "unknown", ""),
        ],
        graph={
            "nodes": [node(rank) for rank in range(4)],
            "edges": [
                wait(f"rank:{a}", f"rank:{b}", "collective", "all_reduce #42")
                for a in (0, 1)
                for b in (2, 3)
            ],
            "cycle": [],
        },
        problems=[
            {"what": "Ranks 2-3 belong to another user.", "remedy": "Run it again with sudo."}
        ],
    )
