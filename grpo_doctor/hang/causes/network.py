"""Ranks that all came to one collective while nothing comes through the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from grpo_doctor.hang.causes.candidate import Candidate, Sink
from grpo_doctor.hang.causes.ras import even_item
from grpo_doctor.hang.model.hosts import parted
from grpo_doctor.hang.model.scene import Scene
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import ranks_text
from grpo_doctor_probes.evidence import Blocked

_SURE, _LIKELY = 2, 1  # how much an end of a connection counts


def silence(scene: Scene) -> Iterator[Candidate]:
    """Everyone came to the same collective and nobody is through."""
    joined = [s for s in scene.matching.standings if s.kind in ("all-joined-none-done", "partial")]
    if not joined or any(s.kind in ("missing", "mismatch") for s in scene.matching.standings):
        return
    front = joined[0]
    unsent = [one for one in scene.evidence.blocked if one.unconfirmed_bytes or one.retransmits]
    ranks, where = _cut_off(scene, unsent)
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
    even = even_item(scene)
    items += [even] if even is not None else []
    yield Candidate(
        cause="network-silent",
        culprits=ranks,
        reason="sends and gets no answer from the network",
        whole=""
        if len(ranks) == 1 and not where
        else f"all ranks are in {front.operation} and nothing comes through the network{where}",
        evidence=tuple(items),
        sink=Sink.COUNTERS,
        liveness="never-wakes" if any(one.retransmits for one in unsent) else "outside",
        still_s=scene.patience.waited_s,
        fixes=(
            Fix(
                "Check the link and firewall between the hosts. NCCL_SOCKET_IFNAME, "
                "NCCL_IB_DISABLE=1 and NCCL_P2P_DISABLE=1 tell which transport it is."
            ),
        ),
        confirm=("ss -tnoi  # unacknowledged bytes and retransmissions between the ranks",),
    )


def _cut_off(scene: Scene, unsent: Sequence[Blocked]) -> tuple[tuple[int, ...], str]:
    """Who is cut off, and where the network is, ` between a and b`. Between hosts that were looked
    at no rank is to blame for a link that is down: it would be as many ranks as use it.
    """
    hosts = parted(scene.evidence, unsent)
    if len(hosts) == 2:
        return (), f" between {hosts[0]} and {hosts[1]}"
    if hosts:
        there = [rank for rank, one in scene.by_rank.items() if one.member.host == hosts[0]]
        return tuple(sorted(there)), f" to {hosts[0]}"
    ranks, host = _most_cut_off(scene, unsent)
    return ranks, f" to {host}" if host else ""


def _most_cut_off(scene: Scene, unsent: Sequence[Blocked]) -> tuple[tuple[int, ...], str]:
    """The ranks with the most connections in trouble: each of these has two ends, and the end that
    is the same in all of them is the broken one. Else the host that they share.
    """
    near = [one for one in unsent if " -> " in one.target and _rank_of(scene, one.pid) is not None]
    own = {_ends(one)[0]: _rank_of(scene, one.pid) for one in near}
    at_host: dict[str, set[int]] = {}
    for endpoint, rank in own.items():
        at_host.setdefault(_host(endpoint), set()).add(rank or 0)
    troubled: Counter[int | str] = Counter()
    for ends in {frozenset(_ends(one)): one for one in near}.values():
        rank, remote = _rank_of(scene, ends.pid), _ends(ends)[1]
        far = own.get(remote)
        if far is None and len(ends.peers) == 1:
            far = _rank_of(scene, ends.peers[0])
        known = at_host.get(_host(remote), set()) - {rank}
        troubled[rank or 0] += _SURE
        if far is not None:
            troubled[far] += _SURE
        elif len(known) == 1:
            troubled[next(iter(known))] += _LIKELY  # or another rank at that address
        else:
            troubled[_host(remote)] += _SURE
    most = max(troubled.values(), default=0)
    ranks = sorted(end for end, n in troubled.items() if n == most and isinstance(end, int))
    hosts = sorted(end for end, n in troubled.items() if n == most and isinstance(end, str))
    return tuple(ranks), hosts[0] if len(hosts) == 1 and not ranks else ""


def _rank_of(scene: Scene, pid: int) -> int | None:
    actor = scene.by_pid.get(pid)
    return actor.rank if actor is not None else None


def _ends(one: Blocked) -> tuple[str, str]:
    local, _, remote = one.target.partition(" -> ")
    return local, remote


def _host(endpoint: str) -> str:
    return endpoint.rpartition(":")[0]
