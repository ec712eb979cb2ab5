"""What a cause proposes: a label for the node that the others wait for in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Final, Literal, NamedTuple

from grpo_doctor.hang.model.nodes import Node, RankNode, number_of
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor.hang.verdict import Certainty, Fix, Item

Liveness = Literal[
    "dead",
    "never-wakes",  # it may not run, or nothing that is left can wake it
    "computing",  # on a core or a device, or another process computes for it
    "outside",  # a process that is not of the job may respond
    "progressing",  # progress was seen: late, and never stuck
    "unseen",
]
CANNOT_MOVE: frozenset[Liveness] = frozenset({"dead", "never-wakes"})


class Sink(IntEnum):
    """The kind of end that a chain of waits has, the weakest explanation first."""

    NOTHING = auto()
    LINE = auto()
    COUNTERS = auto()
    ANSWER = auto()
    WORKER = auto()
    HELPER = auto()
    HOLDER = auto()
    ENGINE = auto()
    ORDER = auto()
    RING = auto()
    ENDED = auto()
    PROCESS = auto()
    KILLED = auto()


class Precedence(NamedTuple):
    """A row of the table: which end of a wait this is, and why it beats the next row."""

    sink: Sink
    end: str
    why: str


# The only order between causes of the same ranks, strongest first; docs/hang.md shows it.
PRECEDENCE: Final = (
    Precedence(
        Sink.KILLED,
        "a process that the kernel killed for memory, or that never started",
        "it says how the process ended",
    ),
    Precedence(
        Sink.PROCESS,
        "a process that is stopped, or died while others needed it",
        "it is the first to stop; at the end of a job, ranks exit one after the other",
    ),
    Precedence(
        Sink.ENDED, "a process that has exited", "a rank that has exited makes no more calls"
    ),
    Precedence(
        Sink.RING,
        "calls that wait for each other in a cycle, or a send or receive without a partner",
        "the cycle contains the call that does not match",
    ),
    Precedence(
        Sink.ORDER,
        "calls of ranks that do not match",
        "an engine may wait for the same transfer of weights",
    ),
    Precedence(
        Sink.ENGINE, "a rollout engine", "its own locks and connections are inside the engine"
    ),
    Precedence(
        Sink.HOLDER,
        "a lock, a device or the interpreter, with a known holder",
        "a known holder shows who has to act",
    ),
    Precedence(
        Sink.HELPER,
        "a child, a dataloader worker, a file, a lock or a core",
        "it makes no progress; a busy process does",
    ),
    Precedence(
        Sink.WORKER,
        "a process of the rank that is busy",
        "it is seen; the other end of a connection may not be",
    ),
    Precedence(
        Sink.ANSWER,
        "a response, a pipe or a terminal",
        "a blocked call is seen; counters are compared",
    ),
    Precedence(
        Sink.COUNTERS,
        "counts of bytes or launches, or stacks compared with each other",
        "it involves several ranks, a line only one",
    ),
    Precedence(Sink.LINE, "a line of code alone", "a line of code shows where to look"),
    Precedence(Sink.NOTHING, "nothing shows what the rank waits for", ""),
)


@dataclass(frozen=True, slots=True)
class Case:
    """What a cause looks at. `suspects` are ranks that the others may be waiting for."""

    view: JobView
    graph: Graph
    suspects: tuple[Process, ...]

    @property
    def hosts(self) -> tuple[Process, ...]:
        """Suspects that do not wait for their GPU: their host side shows what they do."""
        return tuple(proc for proc in self.suspects if not proc.spins)

    @property
    def idle(self) -> tuple[Process, ...]:
        """Those of `hosts` that may run and made no progress."""
        return tuple(
            proc for proc in self.hosts if not (proc.cannot_run or proc.activity.progresses)
        )

    def waits_for_work(self, proc: Process) -> bool:
        """Return whether its chain of waits, as in a pipeline, ends at a rank that may be busy."""
        ends: set[Node] = {suspect.node for suspect in self.suspects}
        ends |= {RankNode(rank) for rank in self.view.elsewhere}
        return not ends.isdisjoint(self.graph.reach.get(proc.node, ()))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible root cause.

    `reason` follows the rank's name: "is stopped (SIGSTOP) in reward". `liveness` says what could
    still move the node: where nothing can, the evidence alone proves a hang, else time decides.
    `node` is where the cause sits in the graph, the rank's own node if None. `whole` is the
    sentence to say instead of one per rank.
    """

    cause: str
    reason: str
    evidence: tuple[Item, ...]
    sink: Sink
    liveness: Liveness = "unseen"
    culprits: tuple[int, ...] = ()
    node: Node | None = None
    phase: str | None = None
    whole: str = ""
    still_s: float | None = None
    fixes: tuple[Fix, ...] = ()
    confirm: tuple[str, ...] = ()
    either: bool = False  # the culprits are alternatives, not accomplices
    can_go_on: str = ""  # where this case says more than its class

    def of(self, proc: Process) -> Candidate:
        """Return a copy for this process: its rank, its phase and its idle time filled in."""
        return replace(
            self,
            culprits=ranks_of(proc),
            phase=proc.phase or self.phase,
            still_s=proc.activity.still_s,
        )

    def continued(
        self,
        proc: Process,
        sign: str = "the rank must resume immediately",
        pid: int | None = None,
    ) -> Candidate:
        """Return a copy for a stopped process: how to resume it, and a `sign` of success.

        Args:
            proc: the process, or one of its host.
            sign: what shows that it worked.
            pid: the process where that is another one.
        """
        number = number_of(proc.pid if pid is None else pid)
        where = f" ({proc.on_host.strip()})" if proc.on_host else ""
        go_on = Fix(f"Resume it: kill -CONT {number}{where}. Then find out what stopped it.")
        return replace(
            self,
            fixes=(go_on, *self.fixes),
            confirm=(proc.shell(f"kill -CONT {number}  # {sign}"),),
        )

    @property
    def cannot_move(self) -> bool:
        """Return whether nothing that is left can end the wait."""
        return self.liveness in CANNOT_MOVE

    @property
    def certain(self) -> bool:
        """Return whether the state of a process proves it, however short a time was looked."""
        return self.cannot_move and self.sink >= Sink.PROCESS

    @property
    def certainty(self) -> Certainty:
        """How certain the cause is, by the end of its waits and what could still end them."""
        # A rank whose process was not seen: what it does is inferred.
        inferred = self.sink in (Sink.PROCESS, Sink.KILLED) and self.liveness == "unseen"
        if self.sink in (Sink.NOTHING, Sink.COUNTERS) or inferred or self.either:
            return "possible"
        return "proven" if self.cannot_move and self.sink is not Sink.ENDED else "likely"

    @property
    def is_a_guess(self) -> bool:
        """Return whether nothing shows what the rank waits for, and no statement says so itself."""
        return self.sink is Sink.NOTHING and not self.cannot_move and not self.whole


def ranks_of(proc: Process) -> tuple[int, ...]:
    """Return its rank as the culprit; none for a process of no rank."""
    return (proc.rank,) if proc.rank is not None else ()


Cause = Callable[[Case], Iterable[Candidate]]
