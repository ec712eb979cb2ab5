"""The bench's faults: what each breaks, what a right answer is, and how they are declared.

A fault is one function, registered with `@fault(...)`. It runs in the rank that is to blame, inside
a phase of the training loop, and is given a `Scene`. What only another process can do (stop a rank,
freeze its disk) is `outside`, which the bench calls once the rank has said `scene.arrived()`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.faults.events import tell

FAMILIES = (
    "control",
    "collectives",
    "user_code",
    "threads",
    "dataload",
    "storage",
    "engine",
    "slow",
    "network",
    "initialisation",
    "trainer",
    "acceptance",
    "unforeseen_ranks",
    "unforeseen_torch",
    "unforeseen_ends",
    "unforeseen_host",
    "unforeseen_helpers",
    "unforeseen_threads",
    "unforeseen_waiting",
    "unforeseen_engines",
    "unforeseen_files",
    "unforeseen_data",
    "unforeseen_beside",
    "unforeseen_chains",
    "unforeseen_locks",
    "unforeseen_torchrun",
    "unforeseen_calm",
    "unforeseen_odd",
    "held_out_ranks",
    "held_out_rewards",
    "held_out_host",
    "held_out_servers",
    "held_out_chains",
    "held_out_groups",
    "held_out_calm",
    "held_out_patience",
)
# A living server outside the job may still answer: who waits for it is slow, until the odds say no.
MAY_ANSWER = ("stuck", "slow")
PHASES = ("rollout", "reward", "compute_logprobs", "update", "sync_weights")
Launch = Literal["fork", "torchrun", "spawn", "trainer", "recorded"]
Facts = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """What a fault's function knows in a rank. `facts` is what `needs` prepared."""

    rank: int
    world_size: int
    culprit: int
    folder: Path
    facts: Facts
    trainer: Any = None

    @property
    def guilty(self) -> bool:
        return self.rank == self.culprit

    @property
    def partner(self) -> int:
        """Another rank, the same on every rank."""
        return (self.culprit + 1) % self.world_size

    def arrived(self) -> None:
        """The rank is where the fault wants it; the bench may act from outside."""
        tell(self.folder, "arrived", self.rank)

    def takes_effect(self) -> None:
        """From the next call on this rank is at fault."""
        tell(self.folder, "effect", self.rank)


@dataclass
class Outside:
    """What a fault's outside part may do. `undo` is called at the end, whatever happened."""

    pids: dict[int, int]
    culprit: int
    folder: Path
    facts: Facts
    undo: ExitStack

    @property
    def pid(self) -> int:
        return self.pids[self.culprit]


Inside = Callable[[Scene], "bool | None"]
FromOutside = Callable[[Outside], None]
Needs = Callable[[], AbstractContextManager[Facts]]


@dataclass(frozen=True)
class Truth:
    """A right answer. Every rank named must be `guilty`, and at least one of them must be named.

    `guilty` maps (culprit, world size) to the ranks that may be named: more than one where a fault
    has two sides, as a receive that nobody sends.
    """

    classes: tuple[str, ...]
    states: tuple[str, ...] = ("stuck",)
    guilty: Callable[[int, int], frozenset[int]] = lambda culprit, _world: frozenset({culprit})


@dataclass(frozen=True)
class Fault:
    """A fault of the bench.

    Attributes:
        inside: runs in the culprit; True leaves out the rest of the phase.
        phase: where; None: drawn.
        everyone: `inside` runs in every rank.
        outside: the bench's part, once the culprit has arrived.
        needs: rights and things to set up before the job; raises `Unavailable`.
        modules: packages that nothing else of ours needs; the case is skipped without them.
        claimed_world_size: what WORLD_SIZE says, where that is not the number of ranks.
        reaped: the launcher collects the exit codes of its children.
        starts_culprit: False: that rank is never started.
        before_init: `inside` runs before the rank joins.
        fixed_culprit: instead of one that is drawn.
        age_s: how long the fault lasts before the attach; None: 6 to 10 s, drawn.
        no_arguments: `attach` has to find the job itself.
        busy: keeps the cores busy, so that nothing may run beside it.
        extra: more facts for the job.
    """

    name: str
    family: str
    truth: Truth
    inside: Inside | None = None
    phase: str | None = None
    everyone: bool = False
    outside: FromOutside | None = None
    needs: Needs | None = None
    modules: tuple[str, ...] = ()
    launch: Launch = "fork"
    world_size: int = 4
    claimed_world_size: int | None = None
    reaped: bool = True
    starts_culprit: bool = True
    before_init: bool = False
    fixed_culprit: int | None = None
    age_s: float | None = None
    no_arguments: bool = False
    busy: bool = False
    extra: Facts = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Whether no other case may run beside it in the same process name space."""
        return self.whole_host or self.no_arguments or self.launch != "fork"

    @property
    def whole_host(self) -> bool:
        """Whether nothing may run beside it at all."""
        return self.busy or self.world_size > 8 or self.family == "network"


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    *classes: str,
    states: tuple[str, ...] = ("stuck",),
    guilty: Callable[[int, int], frozenset[int]] | None = None,
    **options: Any,
) -> Callable[[Inside], Inside]:
    """Registers the function below as the inside part of a fault."""

    def register(inside: Inside) -> Inside:
        add(name, *classes, states=states, guilty=guilty, inside=inside, **options)
        return inside

    return register


def add(
    name: str,
    *classes: str,
    states: tuple[str, ...] = ("stuck",),
    guilty: Callable[[int, int], frozenset[int]] | None = None,
    **options: Any,
) -> None:
    """Registers a fault without a part of its own in the rank."""
    truth = Truth(classes, states) if guilty is None else Truth(classes, states, guilty)
    assert name not in FAULTS, name
    FAULTS[name] = Fault(name=name, family=_loading[-1], truth=truth, **options)


_loading: list[str] = [""]


def load() -> dict[str, Fault]:
    """All faults, by name, in the order of their families."""
    if not FAULTS:
        for family in FAMILIES:
            _loading.append(family)
            importlib.import_module(f"tests.faults.families.{family}")
    return FAULTS
