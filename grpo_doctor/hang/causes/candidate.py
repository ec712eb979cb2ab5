"""What a cause proposes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item, Undo
from grpo_doctor.hang.waiting.graph import Graph


@dataclass(frozen=True, slots=True)
class Case:
    """What a cause looks at. `suspects` are ranks that the others may be waiting for."""

    scene: Scene
    graph: Graph
    suspects: tuple[Actor, ...]

    def waits_for_work(self, actor: Actor) -> bool:
        """Whether its chain of waits, as in a pipeline, ends at a rank that may be at work."""
        ends = {one.node for one in self.suspects}
        ends |= {f"rank:{one}" for one in self.scene.elsewhere}
        return not ends.isdisjoint(self.graph.reach.get(actor.node, ()))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible root cause.

    `reason` follows the rank's name: "is stopped (SIGSTOP) in reward". `hard`: the evidence alone
    proves that it will not get on; otherwise time decides (`works`: it uses a core, so only a very
    long time does). `precise` orders candidates for the same rank: higher explains more. `node` is
    where the cause sits in the graph, the rank's own node if empty. `whole` is the sentence to say
    instead of one per rank. `dead`: a process has died.
    """

    cause: str
    culprits: tuple[int, ...]
    reason: str
    evidence: tuple[Item, ...]
    hard: bool
    precise: int
    strength: float = 0.9
    works: bool = False
    dead: bool = False
    node: str = ""
    phase: str | None = None
    whole: str = ""
    still_s: float | None = None
    fixes: tuple[Fix, ...] = ()
    confirm: tuple[str, ...] = ()
    undo: tuple[Undo, ...] = ()

    @property
    def certain(self) -> bool:
        """Whether the state of a process proves it, however short a time was looked."""
        return self.hard and self.precise >= FORCED - 1


Cause = Callable[[Case], Iterable[Candidate]]

# `precise`: what a process is (dead, stopped) explains everything that it does; what it does
# precisely explains more than where it does it.
FORCED, GROUPS, MECHANISM, MATTER, PLACE, GUESS = 60, 50, 40, 30, 20, 10
# As forced, but believed only of a job that stands: at its end ranks go one after the other.
ENDED = FORCED - 2
