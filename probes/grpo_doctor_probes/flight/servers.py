"""Asking torch's worker server for a dump, where the job runs one (`torch.distributed.debug`)."""

from __future__ import annotations

import http.client
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grpo_doctor_probes.evidence import FlightDump, Job
from grpo_doctor_probes.flight.files import checked
from grpo_doctor_probes.flight.places import environment, seen_from_here
from grpo_doctor_probes.flight.recorders import MAX_DUMP_BYTES
from grpo_doctor_probes.printable import PATH_LIMIT, printable

SOCKET_VARIABLE = "TORCH_WORKER_SERVER_SOCKET"
_HANDLERS = {"fr": "fr_trace_json", "nccl": "dump_nccl_trace_json"}
_AT_ONCE = 32
_CREDENTIALS = struct.Struct("=iII")  # pid, user, group


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket. `listener` is the process that listens, once connected."""

    def __init__(self, path: str, timeout: float) -> None:
        """Of the socket at `path`."""
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self.listener = 0

    def connect(self) -> None:
        """Connects and learns who is at the other end."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        raw = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.listener = _CREDENTIALS.unpack(raw)[0]


def ask_servers(job: Job, at_most_s: float, proc: Path = Path("/proc")) -> tuple[FlightDump, ...]:
    """The dumps of ranks that serve them; () for a job without servers. Never raises OSError."""
    sockets: dict[str, None] = {}
    for member in job.ranks():
        if path := environment(member, proc).get(SOCKET_VARIABLE):
            sockets[str(seen_from_here(member.pid, path, proc))] = None
    if not sockets:
        return ()
    deadline = time.monotonic() + at_most_s
    with ThreadPoolExecutor(min(_AT_ONCE, len(sockets))) as pool:
        answers = pool.map(lambda path: _ask(job, path, deadline), sockets)
        return tuple(dump for dumps in answers for dump in dumps)


def _ask(job: Job, path: str, deadline: float) -> list[FlightDump]:
    """What one server answers: a dump per recorder, or one record with the reason for none."""
    dumps, source = [], f"server:{printable(path, PATH_LIMIT)}"
    for backend, handler in _HANDLERS.items():
        connection = _UnixConnection(path, max(0.05, deadline - time.monotonic()))
        try:
            connection.request("POST", f"/handler/{handler}")
            answer = connection.getresponse()
            data = _body(answer, deadline) if answer.status == http.client.OK else b""
            if data:
                member = job.member(connection.listener)
                rank, pid = (member.rank, member.pid) if member else (None, None)
                taken = time.time_ns()
                dumps.append(FlightDump(source, rank, pid, backend, taken, checked(data)))
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not dumps:
                text = str(error) or type(error).__name__
                return [FlightDump(source, backend=backend, problem=f"no answer: {text}")]
        finally:
            connection.close()
    return dumps or [FlightDump(source, problem="the server has no recorder to ask")]


def _body(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    """All of an answer, however slowly it comes. Raises TimeoutError after `deadline`."""
    data = b""
    while part := answer.read1(1 << 16):
        data += part
        if time.monotonic() > deadline or len(data) > MAX_DUMP_BYTES:
            raise TimeoutError("timed out in the midst of the answer")
    return data
