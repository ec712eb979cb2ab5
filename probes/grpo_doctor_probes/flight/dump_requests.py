"""Asking a rank that was prepared for it, by NCCL's dump pipe.

`TORCH_NCCL_DEBUG_INFO_PIPE_FILE=STEM` makes rank N open `STEMN.pipe`. A byte in it makes the rank
write its dump file, within a second if it dumps on timeouts, else perhaps only after minutes.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor_probes.evidence import FlightDump, Job, Member
from grpo_doctor_probes.flight.dump_locations import dump_prefixes, environment, seen_from_here
from grpo_doctor_probes.flight.files import read_dump
from grpo_doctor_probes.procs.printable import PATH_LIMIT, printable

PIPE_VARIABLES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE")  # CUDA, XPU
_POLL_S = 0.05


@dataclass
class _Request:
    """A rank whose pipe took our byte: the files it may write, and how they were before."""

    member: Member
    pipe: Path
    before: dict[Path, int]


def ask_pipes(job: Job, at_most_s: float, proc: Path = Path("/proc")) -> tuple[FlightDump, ...]:
    """Return the dumps of ranks that have a pipe; () for a job without. Never raises OSError."""
    deadline = time.monotonic() + at_most_s
    requests: list[_Request] = []
    dumps: list[FlightDump] = []
    for member in job.ranks():
        variables = environment(member, proc)
        stem = next((variables[name] for name in PIPE_VARIABLES if variables.get(name)), "")
        if not stem or member.rank is None:
            continue
        pipe = seen_from_here(member.pid, f"{stem}{member.rank}.pipe", proc)
        files = [Path(f"{prefix}{member.rank}") for prefix in dump_prefixes(member, proc)]
        request = _Request(member, pipe, {file: _written_ns(file) for file in files})
        if problem := _ring(pipe):
            dumps.append(_answer(request, FlightDump("", problem=problem)))
        else:
            requests.append(request)
    while requests:
        answers = [(request, _written(request)) for request in requests]
        dumps += [_answer(request, dump) for request, dump in answers if dump]
        requests = [request for request, dump in answers if not dump]
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S if requests else 0)
    late = FlightDump("", problem="the rank did not write its dump in time")
    return (*dumps, *(_answer(request, late) for request in requests))


def _ring(pipe: Path) -> str:
    """Write a byte into `pipe`, never waiting. Returns why it could not, "" if it did."""
    try:
        file = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return "its dump pipe is not there: no NCCL group was made, or its recorder is off"
    except OSError as error:
        nobody = error.errno == errno.ENXIO
        return f"its dump pipe {'has no reader' if nobody else f'is closed to us: {error}'}"
    try:
        if not stat.S_ISFIFO(os.fstat(file).st_mode):
            return "its dump pipe is not a pipe"
        os.write(file, b"1")
    except OSError as error:
        return f"its dump pipe takes nothing: {error.strerror}"
    finally:
        os.close(file)
    return ""


def _written(request: _Request) -> FlightDump | None:
    """Return the dump that a rank has written since it was asked, if it is complete."""
    for file, before in request.before.items():
        if _written_ns(file) > before:
            dump = read_dump(file)
            if dump.data:
                return dump
    return None


def _answer(request: _Request, dump: FlightDump) -> FlightDump:
    member = request.member
    source = f"pipe:{printable(str(request.pipe), PATH_LIMIT)}"
    return replace(dump, source=source, rank=member.rank, pid=member.pid, backend="nccl")


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
