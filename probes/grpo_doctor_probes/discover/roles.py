"""The role of every process of a job: by its command, else by the process it works for. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from grpo_doctor_probes.discover.commands import is_ray_actor, kind_of
from grpo_doctor_probes.evidence.job import Role

if TYPE_CHECKING:
    from grpo_doctor_probes.discover.candidates import Candidate
    from grpo_doctor_probes.discover.ranks import Cast
    from grpo_doctor_probes.discover.scan import Process
    from grpo_doctor_probes.discover.tree import Tree

_RANK_NAMES = ("python", "pypy", "pt_main")
_BELOW_SERVER: Mapping[str, Role] = {"server": "engine", "engine": "engine-worker"}


class Surroundings(Protocol):
    """What roles depend on besides the processes themselves."""

    @property
    def tree(self) -> Tree:
        """Of all processes."""

    @property
    def candidates(self) -> Mapping[int, Candidate]:
        """By pid."""

    @property
    def cast(self) -> Cast:
        """Ranks and launchers."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What is known of some processes of the job before roles are given.

    Attributes:
        main: The ranks of the training.
        others: Processes that have a rank in another group: a reference model, an old attempt.
        servers: Processes that ranks are connected to.
        absent: How many ranks should be here and are not; None where nothing tells.
    """

    main: Container[int]
    others: Container[int] = ()
    servers: Container[int] = ()
    absent: int | None = None


def roles_of(
    processes: Mapping[int, Process], around: Surroundings, parts: Parts
) -> dict[int, Role]:
    """The role of each process of a job."""
    roles: dict[int, Role] = {}
    for pid, process in processes.items():
        if (role := _own_role(process, around, parts)) is not None:
            roles[pid] = role
    for pid in sorted(processes, key=lambda pid: (processes[pid].started_ticks, pid)):
        if pid not in roles:
            roles[pid] = _by_parent(processes[pid], roles)
    for pid in _dead_ranks(processes, roles, around.tree, parts.absent):
        roles[pid] = "rank"
    return roles


def _own_role(process: Process, around: Surroundings, parts: Parts) -> Role | None:
    pid, in_ray = process.pid, is_ray_actor(process.arguments)
    if pid in parts.main:
        return "rank"
    if pid in parts.others:
        return "ray" if in_ray else "helper"
    if pid in around.cast.launchers:
        return "launcher"
    if pid in parts.servers:
        return "server"
    known = around.candidates.get(pid)
    kind = kind_of(process.name, process.arguments) if known is None else known.kind
    if kind != "unknown" and kind != "ourselves":  # noqa: PLR1714 - mypy narrows only this
        return kind
    return "ray" if in_ray else None


def _by_parent(process: Process, roles: Mapping[int, Role]) -> Role:
    if process.python and process.large:
        return _BELOW_SERVER.get(roles.get(process.parent, "helper"), "helper")
    return "helper"


def _dead_ranks(
    processes: Mapping[int, Process], roles: Mapping[int, Role], tree: Tree, absent: int | None
) -> list[int]:
    """Zombies of a launcher that were ranks. Nothing is left of them but a name, so those that are
    called like a living rank come first, and no more than are absent."""
    found = []
    for pid, process in processes.items():
        if roles[pid] == "helper" and process.dead and roles.get(process.parent) == "launcher":
            family = {one.name for one in tree.children(process.parent) if not one.dead}
            alike = process.name in family or process.name.startswith(_RANK_NAMES)
            if alike or absent:
                found.append((not alike, process.started_ticks, pid))
    return [pid for _, _, pid in sorted(found)[:absent]]
