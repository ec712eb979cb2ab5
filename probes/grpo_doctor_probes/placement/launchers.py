"""What launchers report of a job's hosts, as a `Placement`. Pure.

Slurm's short form for many hosts is `gpu[001-003,7],login1` (hostlist(3) of slurm).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from grpo_doctor_probes.evidence import Job, Placement
from grpo_doctor_probes.procs.printable import printable

_LONGEST = 100_000
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)
MOST_HOSTS = 10_000
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,252}\Z", re.ASCII)
_WORLD_INFO = "--world_info="  # of deepspeed.launcher.launch: base64 of {"host": [its slots]}
_NODE_RANK = re.compile(r"--node[_-]rank[= ](\d{1,6})")


def expanded(text: str, at_most: int) -> tuple[str, ...]:
    """The hosts in order; empty where the list is not understood or has more than `at_most`."""
    every = (host for part in _split(text[:_LONGEST]) for host in _expanded_part(part))
    try:
        hosts = tuple(islice(every, at_most + 1))
    except (ValueError, RecursionError):
        return ()
    return hosts if len(hosts) <= at_most else ()


def _split(text: str) -> Iterator[str]:
    """Split at commas outside of brackets."""
    depth, start = 0, 0
    for at, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:at]
            start = at + 1
        if depth not in (0, 1):
            raise ValueError(text)
    if depth:
        raise ValueError(text)
    if text[start:]:
        yield text[start:]


def _expanded_part(part: str) -> Iterator[str]:
    """`rack[1-2]n[01-04]`: the last bracket turns fastest."""
    head, opening, remainder = part.partition("[")
    if not opening:
        yield part
        return
    inner, _, tail = remainder.partition("]")
    for number in _numbers(inner):
        for end in _expanded_part(tail):
            yield f"{head}{number}{end}"


def _numbers(text: str) -> Iterator[str]:
    """`001-003,7`: leading zeros are part of a name."""
    for part in text.split(","):
        match = _RANGE.match(part)
        if match is None:
            raise ValueError(text)
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):  # else it names nobody, as often as a bracket before it counts
            raise ValueError(text)
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


@dataclass(frozen=True, slots=True)
class LauncherFacts:
    """What was read: a rank's environment, launchers' commands, and where that was."""

    environment: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[tuple[str, ...], ...] = ()
    namespace: str = ""
    addresses: tuple[str, ...] = ()


def placement(job: Job, facts: LauncherFacts) -> Placement:
    """Return the most precise that any launcher said."""
    environment = facts.environment
    base = Placement(
        host=job.host,
        run_id=_word(environment, "TORCHELASTIC_RUN_ID"),
        world_size=job.world_size,
        local_ranks=job.local_ranks,
        addresses=facts.addresses,
        node=_number(environment, "GROUP_RANK", "NODE_RANK"),
        nodes=_number(environment, "GROUP_WORLD_SIZE", "NNODES"),
        launcher="torchrun" if "TORCHELASTIC_RUN_ID" in environment else "",
    )
    for ask in (_kubernetes, _mpi, _slurm, _deepspeed):
        base = ask(base, facts)
    return base


def _slurm(base: Placement, facts: LauncherFacts) -> Placement:
    environment = facts.environment
    if "SLURM_JOB_ID" not in environment:
        return base
    hosts = expanded(environment.get("SLURM_JOB_NODELIST", ""), MOST_HOSTS)
    return replace(
        base,
        launcher="slurm",
        job_id=_word(environment, "SLURM_JOB_ID"),
        hosts=_checked(hosts) or base.hosts,
        node=_first(_number(environment, "SLURM_NODEID"), base.node),
        nodes=_first(_number(environment, "SLURM_NNODES", "SLURM_JOB_NUM_NODES"), base.nodes),
    )


def _mpi(base: Placement, facts: LauncherFacts) -> Placement:
    size = _number(facts.environment, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    local = _number(facts.environment, "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
    if size is None or (base.launcher and size == 1):
        return base
    nodes = size // local if local and size % local == 0 else None
    return replace(base, launcher="mpi", nodes=_first(nodes, base.nodes))


def _kubernetes(base: Placement, facts: LauncherFacts) -> Placement:
    if "KUBERNETES_SERVICE_HOST" not in facts.environment:
        return base
    namespace = facts.namespace if _HOST.match(facts.namespace) else ""
    return replace(base, launcher="kubernetes", namespace=namespace)


def _deepspeed(base: Placement, facts: LauncherFacts) -> Placement:
    """Return the launcher on each host is given all hosts with their GPUs."""
    for command in facts.commands:
        text = next((word for word in command if word.startswith(_WORLD_INFO)), "")
        hosts = _world_info(text.removeprefix(_WORLD_INFO)) if text else ()
        if hosts:
            node = _NODE_RANK.search(" ".join(command))
            return replace(
                base,
                launcher=base.launcher if base.launcher == "slurm" else "deepspeed",
                hosts=hosts,
                nodes=len(hosts),
                node=int(node[1]) if node else base.node,
            )
    return base


def _world_info(text: str) -> tuple[str, ...]:
    try:
        world = json.loads(base64.urlsafe_b64decode(text))
    except (ValueError, RecursionError):
        return ()
    return _checked(tuple(map(str, world))[:MOST_HOSTS]) if isinstance(world, dict) else ()


def _checked(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return all or none: they are put into commands."""
    return hosts if all(_HOST.match(host) for host in hosts) else ()


def _word(environment: Mapping[str, str], name: str) -> str:
    return printable(environment.get(name, ""), 128)


def _number(environment: Mapping[str, str], *names: str) -> int | None:
    numbers = (number_of(environment.get(name, "")) for name in names)
    return next((number for number in numbers if number is not None), None)


def number_of(text: str) -> int | None:
    """Return a launcher's number of hosts, ranks or the like; None for any other text."""
    return int(text) if re.fullmatch(r"[0-9]{1,7}", text) else None


def _first(number: int | None, substitute: int | None) -> int | None:
    return substitute if number is None else number
