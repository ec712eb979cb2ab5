"""Ranks that all came to one collective while nothing comes through the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.ras import even_items
from grpo_doctor.hang.model.hosts import parted
from grpo_doctor.hang.model.matching.model import GroupStatus, Matching, Wait
from grpo_doctor.hang.model.view import JobView
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import ranks_text
from grpo_doctor_probes.evidence import Blocked

_SURE, _LIKELY = 2, 1  # how much an end of a connection counts


def propose(case: Case) -> Iterator[Candidate]:
    """Yield the cause of a collective that all ranks reached and some did not finish."""
    view = case.view
    if case.suspects:
        return
    unsent = [
        connection
        for connection in view.evidence.blocked
        if connection.unconfirmed_bytes or connection.retransmits
    ]
    broken = any(connection.retransmits for connection in unsent)
    front = _front(view.matching)
    behind = _behind(view.matching) if front is None and broken else None
    if front is not None:
        operation = front.operation
        everyone = f"all of {ranks_text(front.arrived)} are in {operation} and none has finished it"
    elif behind is not None:
        operation = behind[0].operation
        late = ranks_text(sorted(wait.rank for wait in behind))
        everyone = (
            f"all ranks reached {operation}; {late} did not finish it, and the others wait for "
            "that in later operations"
        )
    else:
        return
    ranks, where = _cut_off(view, unsent)
    connections = (
        Item("fd", view.by_pid[connection.pid].rank, f"{connection.target}: {connection.note}")
        for connection in unsent[:4]
        if connection.pid in view.by_pid
    )
    stand = "reached" if behind else "are in"
    silence = f"all ranks {stand} {operation} and no data gets through the network{where}"
    yield Candidate(
        cause="network-silent",
        culprits=ranks,
        reason="sends data without any response from the network",
        whole="" if len(ranks) == 1 and not where else silence,
        evidence=(Item("flight recorder", None, everyone), *connections, *even_items(view)),
        sink=Sink.COUNTERS,
        liveness="never-wakes" if broken else "outside",
        still_s=view.wait_history.waited_s,
        fixes=(
            Fix(
                "Check the link and firewall between the hosts. Test with NCCL_SOCKET_IFNAME, "
                "NCCL_IB_DISABLE=1 and NCCL_P2P_DISABLE=1 to find the failing transport."
            ),
        ),
        confirm=("ss -tnoi  # unacknowledged bytes and retransmissions between the ranks",),
    )


def _front(matching: Matching) -> GroupStatus | None:
    """The collective that all came to, where no rank is late for another."""
    if any(status.kind in ("missing", "mismatch") for status in matching.statuses):
        return None
    joined = ("all-joined-none-done", "partial")
    return next((status for status in matching.statuses if status.kind in joined), None)


def _behind(matching: Matching) -> tuple[Wait, ...] | None:
    """What ranks wait in that all came to, where all other waits lead to these ranks.

    A broadcast or a reduction ends at different times on its ranks. When the network is cut while
    some are through, those wait in their next operations for the rest, which look late.
    """
    behind = tuple(wait for wait in matching.waits if wait.why == "joined")
    mismatch = any(status.kind == "mismatch" for status in matching.statuses)
    if not behind or mismatch:
        return None
    explained = {wait.rank for wait in behind}
    later = [wait for wait in matching.waits if wait.rank not in explained]
    while led := [wait for wait in later if wait.on and explained.issuperset(wait.on)]:
        explained |= {wait.rank for wait in led}
        later = [wait for wait in later if wait.rank not in explained]
    absent = {rank for status in matching.statuses for rank in status.missing}
    return behind if not later and absent <= explained else None


def _cut_off(view: JobView, unsent: Sequence[Blocked]) -> tuple[tuple[int, ...], str]:
    """Who is cut off, and where the network is, ` between a and b`. Between hosts that were looked
    at no rank is to blame for a link that is down: it would be as many ranks as use it.
    """
    hosts = parted(view.evidence, unsent)
    if len(hosts) == 2:
        return (), f" between {hosts[0]} and {hosts[1]}"
    if hosts:
        cut_off = [rank for rank, proc in view.by_rank.items() if proc.member.host == hosts[0]]
        return tuple(sorted(cut_off)), f" to {hosts[0]}"
    ranks, host = _most_cut_off(view, unsent)
    return ranks, f" to {host}" if host else ""


def _most_cut_off(view: JobView, unsent: Sequence[Blocked]) -> tuple[tuple[int, ...], str]:
    """The ranks with the most connections in trouble: each of these has two ends, and the end that
    is the same in all of them is the broken one. Else the host that they share.
    """
    rows = [row for row in unsent if " -> " in row.target and _rank(view, row.pid) is not None]
    rank_at = {_ends(row)[0]: _rank(view, row.pid) for row in rows}
    at_host: dict[str, set[int | None]] = {}
    for endpoint, rank in rank_at.items():
        at_host.setdefault(_host(endpoint), set()).add(rank)
    troubled: Counter[int | str | None] = Counter()
    for row in {frozenset(_ends(row)): row for row in rows}.values():
        rank, remote = _rank(view, row.pid), _ends(row)[1]
        peer_rank = rank_at.get(remote)
        if peer_rank is None and len(row.peers) == 1:
            peer_rank = _rank(view, row.peers[0])
        remote_ranks = at_host.get(_host(remote), set()) - {rank}
        troubled[rank] += _SURE
        if peer_rank is not None:
            troubled[peer_rank] += _SURE
        elif len(remote_ranks) == 1:
            troubled[remote_ranks.pop()] += _LIKELY  # or another rank at that address
        else:
            troubled[_host(remote)] += _SURE
    highest = max(troubled.values(), default=0)
    ranks = sorted(end for end, n in troubled.items() if n == highest and isinstance(end, int))
    hosts = sorted(end for end, n in troubled.items() if n == highest and isinstance(end, str))
    return tuple(ranks), hosts[0] if len(hosts) == 1 and not ranks else ""


def _rank(view: JobView, pid: int) -> int | None:
    proc = view.by_pid.get(pid)
    return proc.rank if proc is not None else None


def _ends(row: Blocked) -> tuple[str, str]:
    local, _, remote = row.target.partition(" -> ")
    return local, remote


def _host(endpoint: str) -> str:
    return endpoint.rpartition(":")[0]
