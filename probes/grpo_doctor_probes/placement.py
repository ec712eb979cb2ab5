"""On which of the job's hosts we are, and which others there are, by what its launcher said.

Slurm's short form for many hosts is `gpu[001-003,7],login1` (hostlist(3) of slurm).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise, product
from pathlib import Path

from grpo_doctor_probes.evidence import Job, Placement
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.procs.procfs import read, variables

_LONGEST = 100_000
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)
_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")  # up to a comma outside of brackets
_BRACKET = re.compile(r"\[([^\]]*)\]")
MOST_HOSTS = 10_000
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,252}\Z", re.ASCII)
_WORLD_INFO = "--world_info="  # of deepspeed.launcher.launch: base64 of {"host": [its slots]}
_NODE_RANK = re.compile(r"--node[_-]rank[= ](\d{1,6})")
_NAMESPACE = "root/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_MOST_READ = 4  # of ranks, and of launchers: all of a host are told the same
_PATIENCE_S = 0.5  # the lock of a process's memory may be held by a thread that hangs


def placement_of(job: Job, proc: Path = Path("/proc")) -> Placement:
    """What the job's processes on this host know of its other hosts; empty where unreadable."""
    ranks = [proc / str(member.pid) for member in job.ranks()][:_MOST_READ]
    launchers = [proc / str(member.pid) for member in job.members if member.role == "launcher"]
    launchers = launchers[:_MOST_READ]
    contents = (_bounded(folder / "environ") for folder in chain(ranks, launchers))
    environment = variables(next(filter(None, contents), b""))
    base = Placement(
        host=job.host,
        run_id=_word(environment, "TORCHELASTIC_RUN_ID"),
        world_size=job.world_size,
        local_ranks=job.local_ranks,
        addresses=_addresses(ranks[0]) if ranks else (),
        node=_number(environment, "GROUP_RANK", "NODE_RANK"),
        nodes=_number(environment, "GROUP_WORLD_SIZE", "NNODES"),
        launcher="torchrun" if "TORCHELASTIC_RUN_ID" in environment else "",
    )
    if "KUBERNETES_SERVICE_HOST" in environment:
        namespace = printable(_bounded(ranks[0] / _NAMESPACE)) if ranks else ""
        namespace = namespace if _HOST.match(namespace) else ""
        base = replace(base, launcher="kubernetes", namespace=namespace)
    base = _slurm(_mpi(base, environment), environment)
    commands = (_bounded(folder / "cmdline").decode("utf-8", "replace") for folder in launchers)
    return _deepspeed(base, (command.rstrip("\0").split("\0") for command in commands))


def _addresses(folder: Path) -> tuple[str, ...]:
    """The IPv4 addresses of its network namespace that others can reach: /proc/PID/net/fib_trie
    has each local address on the line before `/32 host LOCAL`.
    """
    text = _bounded(folder / "net" / "fib_trie").decode("ascii", "replace")
    pairs = pairwise(text.split("\n"))
    local = (before.strip() for before, line in pairs if "/32 host LOCAL" in line)
    addresses = dict.fromkeys(line.removeprefix("|-- ") for line in local)
    return tuple(address for address in addresses if not address.startswith("127."))


def _bounded(path: Path) -> bytes:
    try:
        return within(_PATIENCE_S, lambda: read(path))
    except (OSError, TimeoutError):
        return b""


def expanded(text: str, at_most: int) -> tuple[str, ...]:
    """The hosts in order; empty where the list is not understood or has more than `at_most`."""
    text = text[:_LONGEST]
    parts = _PART.findall(text)
    if ",".join(parts) != text:
        return ()
    every = ("".join(pieces) for part in parts for pieces in product(*_pieces(part, at_most)))
    try:
        hosts = tuple(islice(every, at_most + 1))
    except ValueError:
        return ()
    return hosts if len(hosts) <= at_most else ()


def _pieces(part: str, at_most: int) -> Iterator[Sequence[str]]:
    """Yield what each piece of `rack[1-2]n[001-003,7]` may be: leading zeros are part of a name."""
    for at, piece in enumerate(_BRACKET.split(part)):
        numbers: list[str] = []
        for match in map(_RANGE.match, piece.split(",") if at % 2 else ()):
            first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
            if not 0 <= int(last) - int(first) < at_most - len(numbers):
                raise ValueError(piece)
            numbers += (str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
        yield numbers if at % 2 else [piece]


def _slurm(base: Placement, environment: Mapping[str, str]) -> Placement:
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


def _mpi(base: Placement, environment: Mapping[str, str]) -> Placement:
    size = _number(environment, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    local = _number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
    if size is None or (base.launcher and size == 1):
        return base
    nodes = size // local if local and size % local == 0 else None
    return replace(base, launcher="mpi", nodes=_first(nodes, base.nodes))


def _deepspeed(base: Placement, commands: Iterable[Sequence[str]]) -> Placement:
    """DeepSpeed gives its launcher on each host all hosts with their GPUs."""
    for command in commands:
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
