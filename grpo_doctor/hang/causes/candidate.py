"""What a cause proposes, a label for the node that the others wait for in the end; and what
processes do, in words and as items of evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Literal

from grpo_doctor.hang.model.nodes import Node, number_of
from grpo_doctor.hang.model.process.progress import BUSY_SHARE, HALTED, TICKS_PER_SECOND
from grpo_doctor.hang.model.process.stacks import Place, is_library
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor.hang.verdict import Certainty, Fix, Item
from grpo_doctor.hang.wording import awaited_text, bytes_text, call_text, seconds_text
from grpo_doctor_probes.evidence import Await, Blocked, Frame

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
    """The kind of end that a chain of waits has, the weakest explanation first: the only order
    between causes of the same ranks. `classes.md` says what each is, and why it beats the next.
    """

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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible root cause.

    `reason` follows the rank's name: "is stopped by a signal in reward". `liveness` says what could
    still move the node: where nothing can, the evidence alone proves a hang, else time decides.
    `node` is where the cause sits in the graph, the rank's own node if None. `likewise` are the
    culprits of which `reason` holds but for a number or a name. `whole` is the sentence to say
    instead of one per rank.
    """

    cause: str
    reason: str
    evidence: tuple[Item, ...]
    sink: Sink
    liveness: Liveness = "unseen"
    culprits: tuple[int, ...] = ()
    likewise: tuple[int, ...] = ()
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
        self, proc: Process, sign: str = "the rank must resume immediately", pid: int | None = None
    ) -> Candidate:
        """Return a copy for a stopped process: how to resume it, and a `sign` of success. `pid` is
        the process where `proc` is only one of its host.
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


_RECORDER = "/grpo_doctor_probes/"  # spans around the job's own functions
SHORTEST_S = 0.2  # a tick of the kernel's CPU time is 0.01 s: over less no rate means anything
_BLOCKED = {
    "reward": "reward-blocked",
    "sync": "weight-sync-blocked",
    "dataload": "dataload-blocked",
}
MOST_COROUTINES = 4
RECORDER = "flight recorder"  # as a source of evidence
KernelSleep = Literal["memory", "vfork", "gpu", ""]
_KERNEL_FUNCTIONS: dict[KernelSleep, tuple[str, ...]] = {
    "memory": (
        *("mem_cgroup", "try_charge", "reclaim_throttle", "throttle_direct", "shrink_"),
        *("do_swap_page", "__alloc_pages", "balance_pgdat"),
    ),
    "vfork": ("kernel_clone", "do_fork", "_do_fork", "wait_for_vfork"),
    "gpu": ("nv_", "_nv", "nvidia", "uvm_", "os_acquire_", "rm_"),
}


def blocked_class(proc: Process) -> str:
    """The class of a rank that waits for something, by the phase it is in."""
    return _BLOCKED.get(proc.phase or "", "user-code-blocked")


def busy_class(proc: Process) -> str:
    """The class of a rank that uses a core, by the phase it is in."""
    return "reward-busy" if proc.phase == "reward" else "user-code-busy"


def working_class(proc: Process, worker: Process) -> str:
    """Return the class of a rank that waits for a process that makes progress.

    A loader's worker that computes still blocks its rank's batch.
    """
    busy = worker.activity.cpu_share >= BUSY_SHARE and (proc is worker or proc.phase != "dataload")
    return busy_class(proc) if busy else blocked_class(proc)


def frame_text(frame: Frame | None) -> str:
    """`rewards.py:31, check`; "" for none."""
    if frame is None:
        return ""
    return f"{frame.file.rpartition('/')[2]}:{frame.line}, {frame.function}"


def at_frame(frame: Frame | None) -> str:
    """` at rewards.py:31, check`; "" for none."""
    return f" at {frame_text(frame)}" if frame is not None else ""


def place_text(place: Place) -> str:
    """The user's own line, else the innermost: `rewards.py:31, check`."""
    return frame_text(place.user or (place.frames[0] if place.frames else None))


def in_phase(proc: Process) -> str:
    """` in reward (rewards.py:31, check)`; "" without a stack."""
    where = place_text(proc.blocking_place if proc.blocking_place.user is not None else proc.place)
    if proc.phase:
        return f" in {proc.phase}{f' ({where})' if where else ''}"
    return f" at {where}" if where else ""


def title(proc: Process) -> str:
    """`pid 4711 (python sandbox.py)`."""
    program, _, arguments = (proc.member.command or proc.member.name).partition(" ")
    name = f"{program.rpartition('/')[2]} {arguments}".strip()
    return f"{proc.name} ({name[:60].rstrip()})" if name else proc.name


def doing(proc: Process) -> str:
    """What a process is at, after its name: `uses 98% of a core at sums.py:3, add`."""
    if proc.ended_meanwhile:
        return "exited during the inspection"
    if proc.cannot_run:
        return f"is {HALTED[proc.activity.kind]}"
    where = place_text(proc.blocking_place) if proc.blocking_place.frames else ""
    where = f" at {where}" if where else ""
    if proc.activity.progresses:
        return f"uses {proc.activity.cpu_share:.0%} of a core{where}"
    hold = blocked_call(proc)
    if hold is None:
        return f"makes no progress{where}"
    return f"makes no progress{where} ({call_text(hold.kind, hold.target)})"


def process_item(proc: Process) -> Item:
    """What a process is at, as evidence."""
    return Item("proc", proc.rank, f"{title(proc)} {doing(proc)}")


def stack_item(proc: Process, frames: int = 4) -> Item:
    """Where its main thread stands, innermost first, without what this tool put around it."""
    own = [frame for frame in proc.place.frames if _RECORDER not in frame.file]
    lines = [frame_text(frame) for frame in own[:frames]]
    return Item("stack", proc.rank, " < ".join(lines) if lines else "no Python stack")


def one_of(proc: Process) -> str:
    """`; 7 more of its coroutines wait`; "" where no other one does, or none was read."""
    count = sum(each.count for each in proc.awaits) - 1 if proc.coroutine is not None else 0
    return f"; {count} more of its coroutines wait{'s' if count == 1 else ''}" if count else ""


def coroutine_items(proc: Process) -> tuple[Item, ...]:
    """What its coroutines await, where they were read: innermost first, few of libraries."""
    read = proc.awaits[:MOST_COROUTINES] if proc.coroutine is not None else ()
    return tuple(Item("coroutine", proc.rank, _awaited(each)) for each in read)


def _awaited(coroutine: Await) -> str:
    inner, *outer = coroutine.frames
    shown = [inner, *(frame for frame in outer if not is_library(frame))]
    several = f" ({coroutine.count} coroutines)" if coroutine.count > 1 else ""
    return f"{awaited_text(coroutine.what)}{several}: {' < '.join(map(frame_text, shown[:4]))}"


def still_item(proc: Process) -> Item:
    """That its main thread did not run between the looks."""
    look = proc.main
    state = f"state {look.state}" if look is not None else "no threads"
    wchan = f", in {look.wchan}" if look is not None and look.wchan else ""
    still = proc.activity.still_s
    ago = f", last ran {seconds_text(still)} ago" if still is not None else ""
    seconds = proc.activity.seconds
    share = f", {proc.activity.cpu_share:.0%} of a core in {seconds_text(seconds)}"
    rate = share if seconds >= SHORTEST_S else ""
    return Item("proc", proc.rank, f"{proc.name}: {state}{wchan}{rate}{ago}")


def activity_item(proc: Process) -> Item:
    """What it did between the looks, in numbers."""
    activity = proc.activity
    if activity.seconds < SHORTEST_S:
        return still_item(proc)
    return Item(
        "proc",
        proc.rank,
        f"{proc.name} {activity.kind}: {activity.cpu_share:.0%} of a core, "
        f"woke {activity.wakes} times, {bytes_text(activity.io_bytes)} read and written in "
        f"{seconds_text(activity.seconds)}",
    )


def standstill(proc: Process) -> tuple[Item, Item]:
    """That it stands, and where."""
    return still_item(proc), stack_item(proc)


def kernel_sleep(proc: Process) -> KernelSleep:
    """What the thread that decides sleeps for, by the kernel function in /proc/PID/wchan; "" where
    that is none of these.
    """
    thread = proc.blocking_thread
    if thread is None or thread.state not in ("D", "S"):
        return ""
    kinds = (kind for kind, names in _KERNEL_FUNCTIONS.items() if thread.wchan.startswith(names))
    return next(kinds, "")


def blocked_call(proc: Process) -> Blocked | None:
    """Return the call that its main thread is blocked in, else that of another thread."""
    return proc.hold or next(iter(proc.blocked), None)


def is_blocked_in(proc: Process, *kinds: str) -> bool:
    """Return whether the call that it is blocked in is of one of these kinds, as `pipe-read`."""
    return proc.hold is not None and proc.hold.kind in kinds


def peers_seen(view: JobView, hold: Blocked) -> list[Process]:
    """The processes of the job at the other end of a blocked call."""
    return [view.by_pid[pid] for pid in hold.peers if pid in view.by_pid]


def since_start_s(view: JobView, procs: Sequence[Process]) -> float:
    """Return how long ago the newest of these processes was started."""
    now_s = view.evidence.looks[-1].at_ns / 1e9
    return now_s - max(proc.member.started_ticks / TICKS_PER_SECOND for proc in procs)


def asleep_for(kind: KernelSleep, procs: Iterable[Process]) -> Iterator[Process]:
    """Those of them that are in such a sleep."""
    for proc in procs:
        if not proc.cannot_run and proc.activity.kind != "working" and kernel_sleep(proc) == kind:
            yield proc


def kernel_item(proc: Process) -> Item:
    """The kernel function in which the thread that decides sleeps."""
    thread = proc.blocking_thread
    state, wchan = (thread.state, thread.wchan) if thread is not None else ("?", "")
    return Item("proc", proc.rank, f"state {state} in {wchan or 'the kernel'}")
