"""Asks rollout engines how they are: /health and /metrics of vLLM and SGLang servers, and vLLM's
/is_paused.

Only ports that a server is known to answer HTTP on are asked: a request to the port of a store or
of a collective library would disturb the job.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from grpo_doctor_probes.discover.commands import kind_of
from grpo_doctor_probes.discover.permission import has_our_network
from grpo_doctor_probes.evidence import EngineLook, Job, Member
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.enginepages import get, parse_metrics, parse_paused, reachable
from grpo_doctor_probes.procs.tcp import open_sockets, tcp_table

_ROLES = frozenset({"server", "engine"})
_PORT = re.compile(r"--(?:vllm_server_)?port[= ](\d{1,5})\b")
_USUAL_PORTS = (8000, 30000)  # vLLM's and SGLang's own defaults
_AT_MOST_S = 1.0


def engines(job: Job, proc: Path = Path("/proc")) -> tuple[EngineLook, ...]:
    """Ask every server of the job, all at once, each page for at most a second.

    `values` has the numbers of `/metrics` summed over labels, and 1.0 or 0.0 for `healthy`, as
    `/health` answered, and `paused`, where `/is_paused` did.
    """
    fronts = {member.parent for member in job.members if member.role == "engine"}
    addresses = [
        address
        for member in job.members
        if member.role in _ROLES
        for address in _addresses(member, member.pid in fronts, proc)
    ]
    if not addresses:
        return ()
    with ThreadPoolExecutor(min(8, len(addresses)), thread_name_prefix="engines") as pool:
        return tuple(pool.map(_ask, *zip(*addresses)))


def _addresses(member: Member, is_front: bool, proc: Path) -> list[tuple[int, str, int]]:
    """The ports to ask: the one of its command, a usual one, or where a known server has clients.

    A worker of Ray is never taken for a known server: its other ports speak another protocol.
    """
    if not has_our_network(proc, member.pid):
        return []
    table = tcp_table(proc, member.pid)
    own = [socket for inode in open_sockets(proc, member.pid) if (socket := table.of(inode))]
    listening = {
        port: host for host, port in (socket.local for socket in own if socket.state == "LISTEN")
    }
    match = _PORT.search(member.command)
    likely = [port for port in ((int(match[1]),) if match else _USUAL_PORTS) if port in listening]
    # Whose command says that it serves an engine, listens for HTTP alone.
    is_server = is_front or kind_of(member.name, tuple(member.command.split())) == "server"
    if not likely and is_server and not member.name.startswith("ray::"):
        likely = sorted(
            {socket.local_port for socket in own if socket.state == "ESTABLISHED"} & set(listening)
        )
    return [(member.pid, reachable(listening[port]), port) for port in likely]


def _ask(pid: int, host: str, port: int) -> EngineLook:
    at_ns = time.monotonic_ns()
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    ask = partial(get, host, port, timeout_s=_AT_MOST_S)
    try:
        status, text = within(_AT_MOST_S, partial(ask, "/health"))
    except (OSError, ValueError) as error:
        problem = f"{url}/health gave no answer: {error}"
        return EngineLook(pid, at_ns, url, problem=problem)
    values = {"healthy": float(status == http.client.OK)}
    try:
        status, text = within(_AT_MOST_S, partial(ask, "/metrics"))
        if status == http.client.OK:
            values |= parse_metrics(text)
    except (OSError, ValueError) as error:
        problem = f"{url} /metrics gave no answer: {error}"
        return EngineLook(pid, at_ns, url, values, problem)
    if "vllm:" in text:
        with contextlib.suppress(OSError, ValueError):  # its core is asked, which may not answer
            values |= parse_paused(*within(_AT_MOST_S, partial(ask, "/is_paused")))
    return EngineLook(pid, at_ns, url, values)
