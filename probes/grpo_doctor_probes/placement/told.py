"""From a launcher's words to a `Placement`. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from grpo_doctor_probes.evidence import Job, Placement
from grpo_doctor_probes.placement.nodelists import expanded
from grpo_doctor_probes.printable import printable

MOST_HOSTS = 10_000
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,252}\Z", re.ASCII)
_WORLD_INFO = "--world_info="  # of deepspeed.launcher.launch: base64 of {"host": [its slots]}
_NODE_RANK = re.compile(r"--node[_-]rank[= ](\d{1,6})")


@dataclass(frozen=True, slots=True)
class Told:
    """What was read: a rank's environment, launchers' commands, and where that was."""

    environment: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[tuple[str, ...], ...] = ()
    namespace: str = ""
    addresses: tuple[str, ...] = ()


def placement(job: Job, told: Told) -> Placement:
    """The most precise that any launcher said."""
    environment = told.environment
    known = Placement(
        host=job.host,
        run_id=_word(environment, "TORCHELASTIC_RUN_ID"),
        world_size=job.world_size,
        local_ranks=job.local_ranks,
        addresses=told.addresses,
        node=_number(environment, "GROUP_RANK", "NODE_RANK"),
        nodes=_number(environment, "GROUP_WORLD_SIZE", "NNODES"),
        launcher="torchrun" if "TORCHELASTIC_RUN_ID" in environment else "",
    )
    for ask in (_kubernetes, _mpi, _slurm, _deepspeed):
        known = ask(known, told)
    return known


def _slurm(known: Placement, told: Told) -> Placement:
    environment = told.environment
    if "SLURM_JOB_ID" not in environment:
        return known
    hosts = expanded(environment.get("SLURM_JOB_NODELIST", ""), MOST_HOSTS)
    return replace(
        known,
        launcher="slurm",
        job_id=_word(environment, "SLURM_JOB_ID"),
        hosts=_checked(hosts) or known.hosts,
        node=_first(_number(environment, "SLURM_NODEID"), known.node),
        nodes=_first(_number(environment, "SLURM_NNODES", "SLURM_JOB_NUM_NODES"), known.nodes),
    )


def _mpi(known: Placement, told: Told) -> Placement:
    size = _number(told.environment, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    local = _number(told.environment, "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
    if size is None or (known.launcher and size == 1):
        return known
    nodes = size // local if local and size % local == 0 else None
    return replace(known, launcher="mpi", nodes=_first(nodes, known.nodes))


def _kubernetes(known: Placement, told: Told) -> Placement:
    if "KUBERNETES_SERVICE_HOST" not in told.environment:
        return known
    return replace(known, launcher="kubernetes", namespace=_name(told.namespace))


def _deepspeed(known: Placement, told: Told) -> Placement:
    """The launcher on each host is given all hosts with their GPUs."""
    for command in told.commands:
        text = next((one for one in command if one.startswith(_WORLD_INFO)), "")
        hosts = _world_info(text.removeprefix(_WORLD_INFO)) if text else ()
        if hosts:
            node = _NODE_RANK.search(" ".join(command))
            return replace(
                known,
                launcher=known.launcher if known.launcher == "slurm" else "deepspeed",
                hosts=hosts,
                nodes=len(hosts),
                node=int(node[1]) if node else known.node,
            )
    return known


def _world_info(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(base64.urlsafe_b64decode(text))
    except (ValueError, RecursionError):
        return ()
    return _checked(tuple(map(str, found))[:MOST_HOSTS]) if isinstance(found, dict) else ()


def _checked(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """All or none: they are put into commands."""
    return hosts if all(_HOST.match(host) for host in hosts) else ()


def _name(text: str) -> str:
    return text if _HOST.match(text) else ""


def _word(environment: Mapping[str, str], name: str) -> str:
    return printable(environment.get(name, ""), 128)


def _number(environment: Mapping[str, str], *names: str) -> int | None:
    texts = (environment.get(name, "") for name in names)
    return next((int(text) for text in texts if re.fullmatch(r"[0-9]{1,7}", text)), None)


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one
