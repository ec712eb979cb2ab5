"""What processes are at: in words, and as items of evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from grpo_doctor.hang.model.process.call_stack import Place
from grpo_doctor.hang.model.process.progress import BUSY_SHARE
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import bytes_text, seconds_text
from grpo_doctor_probes.evidence import Blocked, Frame

_RECORDER = "/grpo_doctor_probes/"  # spans around the job's own functions
SHORTEST_S = 0.2  # a tick of the kernel's CPU time is 0.01 s: over less no rate means anything
_BLOCKED = {
    "reward": "reward-blocked",
    "sync": "weight-sync-blocked",
    "dataload": "dataload-blocked",
}
_HELD = {"gone": "is dead", "stopped": "is stopped", "frozen": "is frozen"}
KernelSleep = Literal["memory", "vfork", "gpu", ""]
_KERNEL_FUNCTIONS: dict[KernelSleep, tuple[str, ...]] = {
    "memory": (
        *("mem_cgroup", "try_charge", "reclaim_throttle", "throttle_direct", "shrink_"),
        *("do_swap_page", "__alloc_pages", "balance_pgdat"),
    ),
    "vfork": ("kernel_clone", "do_fork", "_do_fork", "wait_for_vfork"),
    "gpu": ("nv_", "_nv", "nvidia", "uvm_", "os_acquire_", "rm_"),
}


def blocked_class(actor: Actor) -> str:
    """The class of a rank that waits for something, by the phase it is in."""
    return _BLOCKED.get(actor.phase or "", "user-code-blocked")


def busy_class(actor: Actor) -> str:
    """The class of a rank that uses a core, by the phase it is in."""
    return "reward-busy" if actor.phase == "reward" else "user-code-busy"


def working_class(actor: Actor, worker: Actor) -> str:
    """Return the class of a rank that waits for a process that makes progress.

    A loader's worker that computes still blocks its rank's batch.
    """
    busy = worker.motion.cpu_share >= BUSY_SHARE and (actor is worker or actor.phase != "dataload")
    return busy_class(actor) if busy else blocked_class(actor)


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


def in_phase(actor: Actor) -> str:
    """` in reward (rewards.py:31, check)`; "" without a stack."""
    where = place_text(actor.deed if actor.deed.user is not None else actor.place)
    if actor.phase:
        return f" in {actor.phase}{f' ({where})' if where else ''}"
    return f" at {where}" if where else ""


def title(actor: Actor) -> str:
    """`pid 4711 (python sandbox.py)`."""
    program, _, arguments = (actor.member.command or actor.member.name).partition(" ")
    name = f"{program.rpartition('/')[2]} {arguments}".strip()
    return f"pid {actor.pid} ({name[:60].rstrip()})" if name else f"pid {actor.pid}"


def doing(actor: Actor) -> str:
    """What a process is at, after its name: `uses 98% of a core at sums.py:3, add`."""
    if actor.ended_meanwhile:
        return "exited during the inspection"
    if actor.held:
        return _HELD[actor.motion.kind]
    where = place_text(actor.deed) if actor.deed.frames else ""
    where = f" at {where}" if where else ""
    if actor.motion.progresses:
        return f"uses {actor.motion.cpu_share:.0%} of a core{where}"
    hold = actor.hold or next(iter(actor.blocked), None)
    if hold is None:
        return f"makes no progress{where}"
    target = f" {hold.target}" if hold.target else ""
    return f"makes no progress{where} ({hold.kind.replace('-', ' ')}{target})"


def process_item(actor: Actor) -> Item:
    """What a process is at, as evidence."""
    return Item("proc", actor.rank, f"{title(actor)} {doing(actor)}")


def stack_item(actor: Actor, frames: int = 4) -> Item:
    """Where its main thread stands, innermost first, without what this tool put around it."""
    own = [frame for frame in actor.place.frames if _RECORDER not in frame.file]
    lines = [frame_text(frame) for frame in own[:frames]]
    return Item("stack", actor.rank, " < ".join(lines) if lines else "no Python stack")


def still_item(actor: Actor) -> Item:
    """That its main thread did not run between the looks."""
    look = actor.main
    state = f"state {look.state}" if look is not None else "no threads"
    wchan = f", in {look.wchan}" if look is not None and look.wchan else ""
    still = actor.motion.still_s
    ago = f", last ran {seconds_text(still)} ago" if still is not None else ""
    seconds = actor.motion.seconds
    share = f", {actor.motion.cpu_share:.0%} of a core in {seconds_text(seconds)}"
    rate = share if seconds >= SHORTEST_S else ""
    return Item("proc", actor.rank, f"pid {actor.pid}: {state}{wchan}{rate}{ago}")


def motion_item(actor: Actor) -> Item:
    """What it did between the looks, in numbers."""
    motion = actor.motion
    if motion.seconds < SHORTEST_S:
        return still_item(actor)
    return Item(
        "proc",
        actor.rank,
        f"pid {actor.pid} {motion.kind}: {motion.cpu_share:.0%} of a core, woke {motion.wakes} "
        f"times, {bytes_text(motion.io_bytes)} read and written in {seconds_text(motion.seconds)}",
    )


def standstill(actor: Actor) -> tuple[Item, Item]:
    """That it stands, and where."""
    return still_item(actor), stack_item(actor)


def kernel_sleep(actor: Actor) -> KernelSleep:
    """What the thread that decides sleeps for, by the kernel function in /proc/PID/wchan; "" where
    that is none of these.
    """
    doer = actor.doer
    if doer is None or doer.state not in ("D", "S") or not doer.wchan:
        return ""
    kinds = (kind for kind, names in _KERNEL_FUNCTIONS.items() if doer.wchan.startswith(names))
    return next(kinds, "")


def is_blocked_in(actor: Actor, *kinds: str) -> bool:
    """Whether the call that it is blocked in is of one of these kinds, as `pipe-read`."""
    return actor.hold is not None and actor.hold.kind in kinds


def peers_seen(scene: Scene, hold: Blocked) -> list[Actor]:
    """The processes of the job at the other end of a blocked call."""
    return [scene.by_pid[pid] for pid in hold.peers if pid in scene.by_pid]


def others_wait(scene: Scene, rank: int | None) -> bool:
    """Whether all the other ranks wait for another rank."""
    peers = [actor for peer_rank, actor in scene.by_rank.items() if peer_rank != rank]
    return bool(peers) and all(actor.waits for actor in peers)


def asleep_for(kind: KernelSleep, actors: Iterable[Actor]) -> Iterator[Actor]:
    """Those of them that are in such a sleep."""
    for actor in actors:
        if not actor.held and actor.motion.kind != "working" and kernel_sleep(actor) == kind:
            yield actor


def kernel_item(actor: Actor) -> Item:
    """The kernel function in which the thread that decides sleeps."""
    state, wchan = (actor.doer.state, actor.doer.wchan) if actor.doer is not None else ("?", "")
    return Item("proc", actor.rank, f"state {state} in {wchan or 'the kernel'}")
