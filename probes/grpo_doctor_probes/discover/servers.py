"""Servers of a job that no command gives away: its ranks are connected to them on this host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from grpo_doctor_probes.discover.sockets import Sockets
from grpo_doctor_probes.discover.tree import Tree

_FEWEST_CLIENTS = 2


def find_servers(
    ranks: Iterable[int], core: set[int], tree: Tree, left_out: frozenset[int], sockets: Sockets
) -> dict[int, set[int]]:
    """Processes that are none of `core` and listen where ranks are connected: pid to its clients.

    All other processes' descriptors are read only when some rank has such a connection. Servers of
    another user are left alone: they serve the host, not the job.
    """
    ranks = [pid for pid in ranks if sockets.has_unknown_servers(pid)]
    if not ranks:
        return {}
    users = {tree.processes[pid].uid for pid in ranks}
    sockets.add(
        pid
        for pid, process in sorted(tree.processes.items())
        if not process.kernel and not process.dead and process.uid in users and pid not in left_out
    )
    found: dict[int, set[int]] = {}
    for rank in ranks:
        for connection in sockets.connections(rank):
            server = connection.server
            if server not in core and tree.nearest(server, core) is None:
                found.setdefault(server, set()).add(rank)
    return found


def meeting_point(ranks: Mapping[int, object], members: frozenset[int], sockets: Sockets) -> str:
    """`127.0.0.1:port` of the store where ranks meet, or empty: seen from its connections.

    The store is the only listener with which its owner, a rank or the launcher, talks itself.
    """
    clients: Counter[tuple[int, int]] = Counter()
    own: set[tuple[int, int]] = set()
    for pid in ranks:
        seen = {
            (one.server, one.port)
            for one in sockets.connections(pid)
            if one.loopback and one.server in members
        }
        clients.update(seen)
        own |= {key for key in seen if key[0] == pid or key[0] not in ranks}
    stores = [(-count, port) for (server, port), count in clients.items() if (server, port) in own]
    if not stores or -min(stores)[0] < _FEWEST_CLIENTS:
        return ""
    return f"127.0.0.1:{min(stores)[1]}"
