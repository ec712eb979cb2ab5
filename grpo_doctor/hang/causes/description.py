"""What processes are at: in words, and as items of evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from grpo_doctor.hang.model.process.progress import (
    BUSY_SHARE,
    HALTED,
    TICKS_PER_SECOND,
)
from grpo_doctor.hang.model.process.stacks import Place, is_library
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import awaited_text, bytes_text, call_text, seconds_text
from grpo_doctor_probes.evidence import Await, Blocked, Frame

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
    hold = proc.hold or next(iter(proc.blocked), None)
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
    blocking_thread = proc.blocking_thread
    if (
        blocking_thread is None
        or blocking_thread.state not in ("D", "S")
        or not blocking_thread.wchan
    ):
        return ""
    kinds = (
        kind for kind, names in _KERNEL_FUNCTIONS.items() if blocking_thread.wchan.startswith(names)
    )
    return next(kinds, "")


def is_blocked_in(proc: Process, *kinds: str) -> bool:
    """Return whether the call that it is blocked in is of one of these kinds, as `pipe-read`."""
    return proc.hold is not None and proc.hold.kind in kinds


def peers_seen(view: JobView, hold: Blocked) -> list[Process]:
    """The processes of the job at the other end of a blocked call."""
    return [view.by_pid[pid] for pid in hold.peers if pid in view.by_pid]


def others_wait(view: JobView, rank: int | None) -> bool:
    """Return whether all the other ranks wait for another rank."""
    peers = [proc for peer_rank, proc in view.by_rank.items() if peer_rank != rank]
    return bool(peers) and all(proc.waits for proc in peers)


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
    state, wchan = (
        (proc.blocking_thread.state, proc.blocking_thread.wchan)
        if proc.blocking_thread is not None
        else ("?", "")
    )
    return Item("proc", proc.rank, f"state {state} in {wchan or 'the kernel'}")
