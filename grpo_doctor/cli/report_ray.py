"""`report RUN --ray`: every node of a cluster reads the files of the run that it has.

Twice a task per node: first each lists what is there, then each reads its share, so that a file on
a shared disk is read once. A task starts `grpo-doctor report RUN --part` with what it is to read as
JSON on its standard input, and nothing is written on any node.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

import grpo_doctor
from grpo_doctor.cli.console import inform, say
from grpo_doctor.cli.hosts import problem_of
from grpo_doctor.cli.output import write_binary
from grpo_doctor.cli.ray_hosts import Node, Nodes, connected
from grpo_doctor.document.facts import hang_entries
from grpo_doctor.errors import TraceError
from grpo_doctor.trace.merge import merged
from grpo_doctor.trace.model import Trace
from grpo_doctor.trace.parts import (
    MAIN,
    Folder,
    Part,
    Wanted,
    folders,
    packed,
    read_part,
    shares,
    unpacked,
)
from grpo_doctor_reports.schema.report import HangEntry


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says: first the run directories on it, then what it read of them."""

    version: str = grpo_doctor.__version__
    folders: tuple[Folder, ...] = ()
    parts: bytes = b""
    hangs: tuple[HangEntry, ...] = ()


def answer(run: Path) -> int:
    """Write to standard output what is on this host, or what standard input asks for."""
    asked = sys.stdin.buffer.read()
    if not asked:
        here = tuple(folders(run)) if run.is_dir() else ()
        write_binary(msgspec.msgpack.encode(Answer(folders=here)))
        return 0
    wanted = msgspec.json.decode(asked, type=list[Wanted])
    parts = [read_part(run, each.place, each.files, facts=each.facts) for each in wanted]
    has_hangs = any(each.place == MAIN and each.facts for each in wanted)
    hangs = tuple(hang_entries(run)) if has_hangs else ()
    write_binary(msgspec.msgpack.encode(Answer(parts=packed(parts), hangs=hangs)))
    return 0


def gathered(run: Path, address: str, remote: str | None) -> tuple[Trace, list[HangEntry]]:
    """Read a run on all nodes of the Ray cluster at `address`.

    Raises:
        UsageError: no Ray here, or no such cluster.
        TraceError: no node could read anything of the run; the message says why.
    """
    nodes = connected(address)
    lacking = [_lacking(absent) for absent in nodes.absent]
    inform(f"reading {run} on {len(nodes.alive)} nodes of the Ray cluster ...")
    try:
        parts, hangs = _read(nodes, run.absolute(), remote, lacking)
    finally:
        nodes.ray.shutdown()
    if not parts:
        where = f"none of the {len(nodes.alive)} nodes of the Ray cluster has {run.absolute()}."
        reasons = "".join(f" {line}." for line in lacking)
        raise TraceError(f"{where}{reasons} Give the run directory by its path on the nodes.")
    for line in lacking:
        say(line)
    trace = merged(str(run), parts)
    loss = replace(trace.loss, notes=(*lacking, *trace.loss.notes))
    return replace(trace, loss=loss), hangs


def _read(
    nodes: Nodes, run: Path, remote: str | None, lacking: list[str]
) -> tuple[list[Part], list[HangEntry]]:
    command = ["report", str(run), "--part"]
    started = nodes.started(command, remote)
    hosts = [node.name for node in started]
    wanted, notes = shares(hosts, [_answer(node, lacking).folders for node in started])
    lacking += notes
    requests = [msgspec.json.encode(each) if each else None for each in wanted]
    parts: list[Part] = []
    hangs: list[HangEntry] = []
    for node in nodes.started(command, remote, requests):
        share = _answer(node, lacking)
        parts += unpacked(share.parts) if share.parts else []
        hangs += share.hangs
    return parts, hangs


def _answer(node: Node, lacking: list[str]) -> Answer:
    """What the program on a node wrote, if it is of this version; else nothing, and why."""
    said, here = node.look(), grpo_doctor.__version__
    problem = problem_of(node.name, said)
    if said.code == 0:
        problem = f"{node.name} has another version of grpo-doctor than {here}"
        with contextlib.suppress(msgspec.DecodeError):
            found = msgspec.msgpack.decode(said.output, type=Answer)
            if found.version == here:
                return found
            problem = f"{node.name} has grpo-doctor {found.version}, not {here}"
    lacking.append(_lacking(problem))
    return Answer()


def _lacking(problem: str) -> str:
    return f"{problem}; what only this node has is missing"
