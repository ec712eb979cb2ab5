"""Whether a process has a thread that wakes up by itself some day, and may then act. Pure."""

from __future__ import annotations

from grpo_doctor.hang.model.process.native import has_time_limit
from grpo_doctor.hang.model.process.progress import is_heartbeat
from grpo_doctor.hang.model.scene import Actor
from grpo_doctor.hang.model.waiting.servers import only_accepts
from grpo_doctor_probes.evidence import Thread

_EPOLL, _POLL = ("do_epoll_wait", "ep_poll"), "poll_schedule_timeout"
_EPOLL_LIMIT, _POLL_LIMIT = 3, 2  # the arguments that have it
_FOR_EVER = (2**32 - 1, 2**64 - 1, 0)  # -1 as int or long; a null pointer of ppoll


def is_set(actor: Actor) -> bool:
    """Whether one of its Python threads sleeps until a time: neither in a server's loop nor by the
    clock of a library. Without the right to read its arguments a sleep may be one.
    """
    own = [one for one in actor.python_threads if one.frames and not is_heartbeat(one.name)]
    seen = [actor.thread(one.tid) for one in own if not only_accepts(one)]
    return any(one is not None and _is_timed(one) for one in seen)


def _is_timed(thread: Thread) -> bool:
    if "nanosleep" in thread.wchan:
        return True
    if thread.wchan.startswith("futex"):
        return not thread.arguments or has_time_limit(thread)
    if thread.wchan.startswith(_EPOLL):
        return _limit(thread, _EPOLL_LIMIT) not in _FOR_EVER
    if thread.wchan.startswith(_POLL):
        return _limit(thread, _POLL_LIMIT) not in _FOR_EVER
    return False


def _limit(thread: Thread, place: int) -> int:
    """1 where it can't be read: then it may have one."""
    return thread.arguments[place] if len(thread.arguments) > place else 1
