"""NCCL's own view of its processes and communicators, from the RAS port that 2.24 and newer open,
in the JSON that 2.28.7 and newer give.

Every NCCL process of a user on a host listens on the same port (SO_REUSEPORT), and the kernel picks
one per connection. A trainer and a vLLM engine are two meshes that know nothing of each other, so
we ask again, from new ports, until every process of the job was named or nothing new is heard.
Another job's mesh may be among them: the reader decides whose answer it is.
A stopped process still gets connections, and answers none: that costs one try's time.

Everything is asked twice: counts of launched collectives are taken while ranks launch more, and
only a difference that stays says something.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from grpo_doctor_probes.discover.permission import has_our_network
from grpo_doctor_probes.evidence import Job, RasAnswer
from grpo_doctor_probes.flight.dump_locations import environment
from grpo_doctor_probes.procs.tcp import tcp_table

ADDRESS_VARIABLE = "NCCL_RAS_ADDR"
_DEFAULT_HOST, _DEFAULT_PORT = "localhost", 28028
_MAX_ANSWER_BYTES = 16 << 20
_TRY_S = 1.0
_GATHERS_S = 1  # NCCL's own limit for one stage of collecting, 5 s by default; whole seconds
_AGAIN_S = 1.0
_NOTHING_NEW = 6  # answers in a row: with 2 meshes of equal size, 1 in 64 misses one
_WITH_NCCL = ("rank", "engine", "engine-worker")
_MOST_MESHES = 16  # on one host; who names other processes each time would fill our memory
_PIDS = re.compile(r'"pid"\s*:\s*(\d{1,10})')
# NCCL 2.28.7 to 2.28.9, in each rank that is missing: `"nvml_dev": 1` and then `"status": {`.
_MISSING_COMMA = re.compile(r'("nvml_dev"\s*:\s*-?\d+)(\s*)("status")')


class RasError(Exception):
    """The server did not speak as expected; the message says how."""


def ras(job: Job, at_most_s: float, proc: Path = Path("/proc")) -> tuple[RasAnswer, ...]:
    """Two answers per mesh of NCCL processes on this host, a second apart; () where none listens.

    Never raises OSError: what does not answer is a `problem`.
    """
    deadline = time.monotonic() + at_most_s
    listening = list(_listening(job, proc))
    first_s = max((at_most_s - _AGAIN_S) / 2, min(at_most_s, _TRY_S))

    def heard(until: float) -> list[RasAnswer]:
        return [answer for each in listening for answer in _ask_until_known(*each, until)]

    answers = heard(time.monotonic() + first_s)
    if any(answer.text for answer in answers) and time.monotonic() + _AGAIN_S < deadline:
        time.sleep(_AGAIN_S)
        answers += [answer for answer in heard(deadline) if answer.text]
    return tuple(answers)


def _listening(job: Job, proc: Path) -> Iterator[tuple[str, int, set[int]]]:
    """The addresses at which somebody listens, with the processes of the job that use each."""
    pids_by_address: dict[tuple[str, int], set[int]] = {}
    for member in job.members:
        if member.role in _WITH_NCCL and has_our_network(proc, member.pid):
            address = environment(member, proc).get(ADDRESS_VARIABLE, "")
            pids_by_address.setdefault(parse_address(address), set()).add(member.pid)
    for (host, port), pids in pids_by_address.items():
        sockets = (socket for pid in pids for socket in tcp_table(proc, pid).all_listeners())
        if any(socket.local_port == port for socket in sockets):
            yield host, port, pids


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of NCCL_RAS_ADDR: `host:port`, `[v6]:port`, or parts of it."""
    host, _, port = text.rpartition(":")
    number = int(port) if port.isdecimal() else _DEFAULT_PORT
    return host.strip("[]") or _DEFAULT_HOST, number


def _ask_until_known(host: str, port: int, pids: set[int], deadline: float) -> list[RasAnswer]:
    """Ask one address again and again for meshes not yet heard of."""
    address = f"{host}:{port}"
    meshes: dict[frozenset[int], RasAnswer] = {}
    problem = ""
    nothing_new = 0
    while nothing_new < _NOTHING_NEW and len(meshes) < _MOST_MESHES and time.monotonic() < deadline:
        if pids and meshes and pids <= frozenset().union(*meshes):
            break
        nothing_new += 1
        try:
            text = ask(host, port, deadline)
        except (OSError, RasError) as error:
            problem = f"no answer: {error}" if str(error) else "no answer"
            continue
        mesh = frozenset(map(int, _PIDS.findall(text)))
        if mesh not in meshes:
            nothing_new = 0
        meshes[mesh] = RasAnswer(address, time.monotonic_ns(), text)
    if problem:
        problem += "; one of the processes at this port may be stopped"
        return [*meshes.values(), RasAnswer(address, time.monotonic_ns(), problem=problem)]
    return list(meshes.values())


def ask(host: str, port: int, deadline: float) -> str:
    """The status of one mesh, as JSON.

    Raises:
        OSError: no connection, or silence for a second.
        RasError: what came was not a status, or NCCL is older and has text alone.
    """
    first = min(deadline, time.monotonic() + _TRY_S)
    with socket.create_connection((host, port), timeout=_seconds_until(first)) as connection:
        connection.sendall(b"CLIENT PROTOCOL 2\n")
        if not (hello := _receive(connection, first, b"\n")).startswith(b"SERVER PROTOCOL"):
            raise RasError(f"not NCCL's RAS: {hello[:40]!r}")
        connection.sendall(b"TIMEOUT %d\n" % _GATHERS_S)
        _receive(connection, first, b"\n")
        connection.sendall(b"SET FORMAT json\n")
        if not _receive(connection, first, b"\n").startswith(b"OK"):
            raise RasError("NCCL before 2.28.7 answers in text alone; read it with: ncclras -v")
        connection.sendall(b"VERBOSE STATUS\n")
        # Collecting from all hosts of the mesh takes its time.
        return repaired(_receive(connection, deadline, b"").decode("utf-8", "replace"))


def _receive(connection: socket.socket, deadline: float, end: bytes) -> bytes:
    """What is sent up to `end`, or up to its close where that is empty, however slowly it comes."""
    data = b""
    while len(data) < _MAX_ANSWER_BYTES and not (end and data.endswith(end)):
        connection.settimeout(_seconds_until(deadline))
        part = connection.recv(1 << 16)
        if not part:
            break
        data += part
    return data


def _seconds_until(deadline: float) -> float:
    """Raise TimeoutError when there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds


def repaired(text: str) -> str:
    """`text` if it is JSON, or with the commas that 2.28.9 leaves out. Raises RasError."""
    for candidate in (text, _MISSING_COMMA.sub(r"\1,\2\3", text)):
        try:
            json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return candidate
    raise RasError(f"{len(text)} bytes that are not JSON")
