"""Ranks that all came to one collective while nothing comes through the network."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from grpo_doctor.hang.causes.candidate import MATTER, Candidate
from grpo_doctor.hang.scene import Scene
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import ranks_text
from grpo_doctor_probes.evidence import Blocked

_UNCONFIRMED = re.compile(r"not confirmed by the other end|sent again")
_SENT_AGAIN = re.compile(r"sent again")  # bytes on their way are unconfirmed as well


def silence(scene: Scene) -> Iterator[Candidate]:
    """Everyone came to the same collective and nobody is through."""
    joined = [s for s in scene.matching.standings if s.kind in ("all-joined-none-done", "partial")]
    if not joined or any(s.kind in ("missing", "mismatch") for s in scene.matching.standings):
        return
    front = joined[0]
    unsent = [one for one in scene.evidence.blocked if _UNCONFIRMED.search(one.note)]
    ranks = _most_cut_off(scene, unsent)
    items = [
        Item(
            "flight recorder",
            None,
            f"all of {ranks_text(front.arrived)} are in {front.operation} and nobody is through",
        )
    ]
    items += [
        Item("fd", scene.by_pid[one.pid].rank, f"{one.target}: {one.note}")
        for one in unsent[:4]
        if one.pid in scene.by_pid
    ]
    yield Candidate(
        cause="network-silent",
        culprits=ranks,
        reason="sends and gets no answer from the network",
        whole=""
        if len(ranks) == 1
        else f"all ranks are in {front.operation} and nothing comes through the network",
        evidence=tuple(items),
        hard=any(_SENT_AGAIN.search(one.note) for one in unsent),
        precise=MATTER,
        strength=0.8 if unsent else 0.5,
        still_s=scene.patience.waited_s,
        fixes=(
            Fix(
                "Check the link and firewall between the hosts. NCCL_SOCKET_IFNAME, "
                "NCCL_IB_DISABLE=1 and NCCL_P2P_DISABLE=1 tell which transport it is."
            ),
        ),
        confirm=("ss -tnoi  # unacknowledged bytes and retransmissions between the ranks",),
    )


def _most_cut_off(scene: Scene, unsent: Sequence[Blocked]) -> tuple[int, ...]:
    """The ranks with the most connections in trouble: each of these has two ends, and the end that
    is the same in all of them is the broken one.
    """
    own: dict[str, int] = {}
    at_host: dict[str, set[int]] = {}
    far: list[tuple[int, str]] = []
    for one in unsent:
        actor = scene.by_pid.get(one.pid)
        local, arrow, remote = one.target.partition(" -> ")
        if arrow and actor is not None and actor.rank is not None:
            own[local] = actor.rank
            at_host.setdefault(_host(local), set()).add(actor.rank)
            far.append((actor.rank, remote))
    connections: set[frozenset[int]] = set()
    for rank, remote in far:
        others = {own[remote]} if remote in own else at_host.get(_host(remote), set()) - {rank}
        connections.add(frozenset({rank, *others} if len(others) == 1 else {rank}))
    ends = Counter(rank for pair in connections for rank in pair)
    most = max(ends.values(), default=0)
    return tuple(sorted(rank for rank, count in ends.items() if count == most))


def _host(endpoint: str) -> str:
    return endpoint.rpartition(":")[0]
