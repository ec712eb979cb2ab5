"""Connections from host to host: the process at the other end, where its own host saw it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from grpo_doctor.hang.multihost.processes import space_of
from grpo_doctor_probes.evidence import Blocked, Evidence

_ARROW = " -> "
_LOOPBACK = ("127.", "[::1]")


def across_hosts(evidence: Evidence) -> Evidence:
    """The evidence with peers on other hosts: by the two ends of a connection, else by who serves
    the port on the host that has the address.
    """
    ends = {one.target: one.pid for one in evidence.blocked if _ARROW in one.target}
    homes = _homes(evidence)
    servers = dict(_servers(evidence))
    return replace(
        evidence, blocked=tuple(_met(one, ends, homes, servers) for one in evidence.blocked)
    )


def _met(
    row: Blocked,
    ends: dict[str, int],
    homes: dict[str, int],
    servers: dict[tuple[int, str], int],
) -> Blocked:
    local, arrow, remote = row.target.partition(_ARROW)
    if not arrow or row.peers or remote.startswith(_LOOPBACK):
        return row
    host, _, port = remote.rpartition(":")
    peer = ends.get(f"{remote}{_ARROW}{local}")
    if peer is None and host in homes:
        peer = servers.get((homes[host], port))
    if peer is None or space_of(peer) == space_of(row.pid):
        return row
    return replace(row, peers=(peer,), peers_known=True)


def _homes(evidence: Evidence) -> dict[str, int]:
    """Addresses, and the number of the host that has each."""
    numbers = {member.host: space_of(member.pid) for member in evidence.job.members}
    found = {
        address: numbers[place.host]
        for place in evidence.job.placements
        if place.host in numbers
        for address in place.addresses
    }
    for row in evidence.blocked:
        local, arrow, _ = row.target.partition(_ARROW)
        if arrow and not local.startswith(_LOOPBACK):
            found.setdefault(local.rpartition(":")[0], space_of(row.pid))
    return found


def _servers(evidence: Evidence) -> Iterator[tuple[tuple[int, str], int]]:
    """Who answers on a port of a host: seen in its own wait, or asked for its numbers there."""
    for row in evidence.blocked:
        if row.kind == "socket-accept":
            local = row.target.partition(_ARROW)[0]
            yield (space_of(row.pid), local.rpartition(":")[2].split(" ")[0]), row.pid
    for look in evidence.engines[-1:]:
        for engine in look:
            port = _port(engine.url)
            if port:
                yield (space_of(engine.pid), port), engine.pid


def _port(url: str) -> str:
    try:
        return str(urlsplit(url).port or "")
    except ValueError:
        return ""
