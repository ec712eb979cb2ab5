"""Connections between hosts: who is at their other end, and which link or host is parted."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.hosts import parted
from grpo_doctor.hang.multihost.join import joined
from grpo_doctor_probes.evidence import Evidence
from tests.evidence import EvidenceBuilder, frames
from tests.several_hosts import on_hosts


def test_a_connection_between_hosts_leads_to_the_process_at_its_other_end() -> None:
    build = EvidenceBuilder(ranks=8)
    process = build.elsewhere(6, frames("recv_into /usr/lib/python3.11/socket.py:705"))
    process.blocks("socket-receive", "10.0.0.2:41000 -> 10.0.0.1:8000")
    build.child(1, "server", pid=150).blocks("socket-accept", "0.0.0.0:8000")
    node0, node1 = on_hosts(build.build(), 4)
    row = next(
        b for b in joined([node1, _with_address(node0)]).blocked if b.kind == "socket-receive"
    )
    assert row.peers_known
    (peer,) = row.peers
    assert peer % 1000 == 150


def peers_of(target: str) -> tuple[int, ...]:
    """The other ends of a connection of rank 6, beside a server on rank 1's host."""
    build = EvidenceBuilder(ranks=8)
    process = build.elsewhere(6, frames("recv_into /usr/lib/python3.11/socket.py:705"))
    process.blocks("socket-receive", target)
    build.child(1, "server", pid=150).blocks("socket-accept", "0.0.0.0:8000")
    node0, node1 = on_hosts(build.build(), 4)
    rows = joined([node1, _with_address(node0)]).blocked
    return next(row.peers for row in rows if row.kind == "socket-receive")


def test_a_connection_to_elsewhere_or_to_the_own_host_leads_nowhere() -> None:
    client, server = "10.0.0.2:41000", "10.0.0.1:8000"
    assert len(peers_of(f"{client} -> {server}")) == 1
    assert peers_of(f"{client} -> 10.0.9.9:8000") == ()
    assert peers_of(f"{client} -> 10.0.0.1:8001") == ()
    assert peers_of(f"{client} -> 127.0.0.1:8000") == ()
    assert peers_of("/tmp/socket") == ()


def test_a_link_between_two_hosts_and_a_host_that_nobody_reaches_are_told_apart() -> None:
    build = EvidenceBuilder(ranks=6)
    trouble = {"unconfirmed_bytes": 96, "retransmits": 4}
    for sender, receiver in ((0, 4), (1, 5), (3, 4)):
        ends = f"10.0.{sender}.1:50", f"10.0.{receiver}.1:60"
        build.rank(sender).blocks("socket-send", " -> ".join(ends), **trouble)
        build.rank(receiver).blocks("socket-send", " -> ".join(reversed(ends)), **trouble)
    evidence = joined(on_hosts(build.build(), 2))
    rows = [row for row in evidence.blocked if row.retransmits]
    assert parted(evidence, rows) == ("node2",)
    of_two = [row for row in rows if "10.0.3." not in row.target]
    assert parted(evidence, of_two) == ("node0", "node2")
    strange = replace(rows[0], target="10.0.0.1:50 -> 10.0.9.1:60")
    assert parted(evidence, [*rows, strange]) == ()
    of_host, of_link = (
        diagnose(evidence).verdict,
        diagnose(replace(evidence, blocked=tuple(of_two))).verdict,
    )
    assert (of_host.cause, of_host.culprits) == ("network-silent", (4, 5))
    assert of_host.summary.endswith("through the network to node2.")
    assert (of_link.cause, of_link.culprits) == ("network-silent", ())
    assert of_link.summary.endswith("through the network between node0 and node2.")


def _with_address(evidence: Evidence) -> Evidence:
    (placement,) = evidence.job.placements
    placement = replace(placement, addresses=("10.0.0.1",))
    return replace(evidence, job=replace(evidence.job, placements=(placement,)))
