"""Whether anything but a signal ever wakes a process. Pure."""

from __future__ import annotations

from grpo_doctor.hang.model.process.native import has_time_limit
from grpo_doctor.hang.model.scene import Actor
from grpo_doctor_probes.evidence import Thread

_FOR_SIGNALS = ("sys_pause", "sigsuspend")
_OPERATION, _OF_ONE_PROCESS = 1, 128  # the argument of futex that says whose threads share it


def only_by_signals(actor: Actor) -> bool:
    """Whether each of its threads sleeps until another one of them, or a signal, wakes it, and none
    ran between the looks. Whatever may come from outside, such as bytes, a child's end or a time,
    speaks against it.
    """
    look = actor.look
    if look is None or actor.motion.kind != "still" or not look.threads:
        return False
    since_ns = look.at_ns - int(actor.motion.seconds * 1e9)
    return all(0 < one.last_ran_ns <= since_ns and _for_ever(one) for one in look.threads)


def _for_ever(thread: Thread) -> bool:
    if thread.state != "S":
        return False
    if thread.wchan.endswith(_FOR_SIGNALS):
        return True
    known = thread.wchan.startswith("futex") and len(thread.arguments) > _OPERATION
    own = known and bool(thread.arguments[_OPERATION] & _OF_ONE_PROCESS)
    return own and not has_time_limit(thread)
