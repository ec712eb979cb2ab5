"""NCCL's own view of its processes and communicators, from the RAS port that 2.24 and newer open.

Every NCCL process of a user on a host listens on the same port (SO_REUSEPORT), and the kernel picks
one per connection. A trainer and a vLLM engine are two meshes that know nothing of each other, so
we ask again, from new ports, until every process of the job was named or nothing new is heard.
A stopped process still gets connections, and answers none: that costs one try's time.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from grpo_doctor_probes.discover.container import has_our_network
from grpo_doctor_probes.evidence import Job, RasAnswer
from grpo_doctor_probes.flight.places import environment

ADDRESS_VARIABLE = "NCCL_RAS_ADDR"
_DEFAULT_HOST, _DEFAULT_PORT = "localhost", 28028
_MAX_ANSWER_BYTES = 16 << 20
_TRY_S = 1.0
_NOTHING_NEW = 6  # answers in a row: with 2 meshes of equal size, 1 in 64 misses one
_LISTEN = "0A"
_WITH_NCCL = ("rank", "engine", "engine-worker")
_PIDS = re.compile(r'"pid"\s*:\s*(\d+)')
_MISSING_COMMA = re.compile(r"\}(\s*)\{")  # NCCL 2.28.9, between missing ranks


class RasError(Exception):
    """The server did not speak as expected; the message says how."""


def ras(job: Job, at_most_s: float, proc: Path = Path("/proc")) -> tuple[RasAnswer, ...]:
    """One answer per mesh of NCCL processes on this host; () where none listens.

    Never raises OSError: what does not answer is a `problem`.
    """
    deadline = time.monotonic() + at_most_s
    answers: list[RasAnswer] = []
    for host, port, pids in _listening(job, proc):
        answers += _ask_until_known(host, port, pids, deadline)
    return tuple(answers)


def _listening(job: Job, proc: Path) -> Iterator[tuple[str, int, set[int]]]:
    """The addresses at which somebody listens, with the processes of the job that use each."""
    wanted: dict[tuple[str, int], set[int]] = {}
    for member in job.members:
        if member.role in _WITH_NCCL and has_our_network(proc, member.pid):
            address = environment(member, proc).get(ADDRESS_VARIABLE, "")
            wanted.setdefault(parse_address(address), set()).add(member.pid)
    for (host, port), pids in wanted.items():
        if any(port in _ports(proc / str(pid) / "net") for pid in pids):
            yield host, port, pids


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of NCCL_RAS_ADDR: `host:port`, `[v6]:port`, or parts of it."""
    host, _, port = text.rpartition(":")
    number = int(port) if port.isdecimal() else _DEFAULT_PORT
    return host.strip("[]") or _DEFAULT_HOST, number


def _ports(folder: Path) -> set[int]:
    """Ports in state LISTEN in the network of a process."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (folder / name).read_text().split("\n")[1:]
        except OSError:
            continue
        rows = (line.split() for line in lines)
        found |= {int(row[1].rpartition(":")[2], 16) for row in rows if row and row[3] == _LISTEN}
    return found


def _ask_until_known(host: str, port: int, pids: set[int], deadline: float) -> list[RasAnswer]:
    """Asks one address again and again for meshes not yet heard of."""
    address = f"{host}:{port}"
    meshes: dict[frozenset[int], RasAnswer] = {}
    problem = ""
    nothing_new = 0
    while nothing_new < _NOTHING_NEW and time.monotonic() < deadline:
        if pids and meshes and pids <= frozenset().union(*meshes):
            break
        nothing_new += 1
        try:
            text = ask(host, port, deadline)
        except (OSError, RasError) as error:
            problem = f"no answer: {error}" if str(error) else "no answer"
            continue
        named = frozenset(int(pid) for pid in _PIDS.findall(text))
        if named not in meshes:
            nothing_new = 0
        meshes[named] = RasAnswer(address, time.monotonic_ns(), text)
    if problem:
        problem += "; one of the processes at this port may be stopped"
        return [*meshes.values(), RasAnswer(address, time.monotonic_ns(), problem=problem)]
    return list(meshes.values())


def ask(host: str, port: int, deadline: float) -> str:
    """The status of one mesh, as JSON.

    Raises:
        OSError: no connection, or silence for a second.
        RasError: what came was no status in JSON.
    """
    first = min(deadline, time.monotonic() + _TRY_S)
    with socket.create_connection((host, port), timeout=_left(first)) as connection:
        connection.sendall(b"CLIENT PROTOCOL 2\n")
        if not (hello := _receive(connection, first, b"\n")).startswith(b"SERVER PROTOCOL"):
            raise RasError(f"not NCCL's RAS: {hello[:40]!r}")
        connection.sendall(b"SET FORMAT json\n")
        if not _receive(connection, first, b"\n").startswith(b"OK"):
            raise RasError("this NCCL answers in text only; 2.28 and newer have JSON")
        connection.sendall(b"VERBOSE STATUS\n")
        # Collecting from all hosts of the mesh takes its time.
        data = _receive(connection, deadline, b"")
    return repaired(data.decode("utf-8", "replace"))


def _receive(connection: socket.socket, deadline: float, end: bytes) -> bytes:
    """What is sent up to `end`, or up to its close where that is empty, however slowly it comes."""
    data = b""
    while len(data) < _MAX_ANSWER_BYTES and not (end and data.endswith(end)):
        connection.settimeout(_left(deadline))
        part = connection.recv(1 << 16)
        if not part:
            break
        data += part
    return data


def _left(deadline: float) -> float:
    """Seconds until `deadline`. Raises TimeoutError when there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def repaired(text: str) -> str:
    """`text` if it is JSON, or with the commas that 2.28.9 forgets. Raises RasError otherwise."""
    for candidate in (text, _MISSING_COMMA.sub(r"},\1{", text)):
        try:
            json.loads(candidate)
        except ValueError:
            continue
        return candidate
    raise RasError(f"{len(text)} bytes that are not JSON")
