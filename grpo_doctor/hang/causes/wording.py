"""Sentences and items that several causes use."""

from __future__ import annotations

from grpo_doctor.hang.scene import Actor
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import seconds_text
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


def in_phase(actor: Actor) -> str:
    """` in reward (rewards.py:31, check)`; "" without a stack."""
    where = at(actor.place.user or (actor.place.frames[0] if actor.place.frames else None))
    if actor.phase:
        return f" in {actor.phase}{f' ({where})' if where else ''}"
    return f" at {where}" if where else ""


def at(frame: Frame | None) -> str:
    """`rewards.py:31, check`."""
    if frame is None:
        return ""
    return f"{frame.file.rpartition('/')[2]}:{frame.line}, {frame.function}"


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
    return Item(
        "proc",
        actor.rank,
        f"pid {actor.pid}: {state}{wchan}, {actor.motion.cpu_share:.0%} of a core "
        f"in {seconds_text(actor.motion.seconds)}{ago}",
    )


def named(actor: Actor) -> str:
    """`pid 4711 (python sandbox.py)`."""
    name = actor.member.command or actor.member.name
    return f"pid {actor.pid} ({name[:60]})" if name else f"pid {actor.pid}"
