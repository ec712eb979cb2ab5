"""Sentences and items that several causes use."""

from __future__ import annotations

from grpo_doctor.hang.model.process.call_stack import Place
from grpo_doctor.hang.model.process.progress import BUSY_SHARE
from grpo_doctor.hang.model.scene import Actor
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import bytes_text, seconds_text
from grpo_doctor_probes.evidence import Frame

_BLOCKED = {
    "reward": "reward-blocked",
    "sync": "weight-sync-blocked",
    "dataload": "dataload-blocked",
}


def blocked_class(actor: Actor) -> str:
    """The class of a rank that waits for something, by the phase it is in."""
    return _BLOCKED.get(actor.phase or "", "user-code-blocked")


def busy_class(actor: Actor) -> str:
    """The class of a rank that uses a core, by the phase it is in."""
    return "reward-busy" if actor.phase == "reward" else "user-code-busy"


def working_class(actor: Actor, worker: Actor) -> str:
    """The class of a rank that waits for a process which gets on: on a core, or with a device.

    A loader's worker that computes keeps its rank's batch back all the same.
    """
    busy = worker.motion.cpu_share >= BUSY_SHARE and (actor is worker or actor.phase != "dataload")
    return busy_class(actor) if busy else blocked_class(actor)


def in_phase(actor: Actor) -> str:
    """` in reward (rewards.py:31, check)`; "" without a stack."""
    where = place_text(actor.deed if actor.deed.user is not None else actor.place)
    if actor.phase:
        return f" in {actor.phase}{f' ({where})' if where else ''}"
    return f" at {where}" if where else ""


def place_text(place: Place) -> str:
    """The user's own line, else the innermost: `rewards.py:31, check`."""
    return at(place.user or (place.frames[0] if place.frames else None))


def at(frame: Frame | None) -> str:
    """`rewards.py:31, check`."""
    if frame is None:
        return ""
    return f"{frame.file.rpartition('/')[2]}:{frame.line}, {frame.function}"


SHORTEST_S = 0.2  # a tick of the kernel's CPU time is 0.01 s: over less no rate means anything


def stack_item(actor: Actor, frames: int = 4) -> Item:
    """Where its main thread stands, innermost first."""
    lines = [at(frame) for frame in actor.place.frames[:frames]]
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


def named(actor: Actor) -> str:
    """`pid 4711 (python sandbox.py)`."""
    program, _, arguments = (actor.member.command or actor.member.name).partition(" ")
    name = f"{program.rpartition('/')[2]} {arguments}".strip()
    return f"pid {actor.pid} ({name[:60].rstrip()})" if name else f"pid {actor.pid}"


def culprit(actor: Actor) -> tuple[int, ...]:
    """Its rank, as a candidate's culprits."""
    return (actor.rank,) if actor.rank is not None else ()


_HELD = {"gone": "is dead", "stopped": "is stopped", "frozen": "is frozen"}


def doing(actor: Actor) -> str:
    """What a process is at, after its name: `computes (98 % of a core) at sums.py:3, add`."""
    if actor.ended_meanwhile:
        return "ended while we looked"
    if actor.held:
        return _HELD[actor.motion.kind]
    where = place_text(actor.deed) if actor.deed.frames else ""
    where = f" at {where}" if where else ""
    if actor.motion.progresses:
        return f"uses {actor.motion.cpu_share:.0%} of a core{where}"
    hold = actor.hold or next(iter(actor.blocked), None)
    if hold is None:
        return f"does not move{where}"
    target = f" {hold.target}" if hold.target else ""
    return f"does not move{where} ({hold.kind.replace('-', ' ')}{target})"


def process_item(actor: Actor) -> Item:
    """What a process is at, as evidence."""
    return Item("proc", actor.rank, f"{named(actor)} {doing(actor)}")


def motion_item(actor: Actor) -> Item:
    """What it did between the looks, in numbers."""
    one = actor.motion
    if one.seconds < SHORTEST_S:
        return still_item(actor)
    return Item(
        "proc",
        actor.rank,
        f"pid {actor.pid} {one.kind}: {one.cpu_share:.0%} of a core, woke {one.wakes} times, "
        f"{bytes_text(one.io_bytes)} read and written in {seconds_text(one.seconds)}",
    )
