"""Waits in C++ under a line of the user's own, which a Python stack does not tell apart. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from grpo_doctor.hang.model.process.known_code import Call
from grpo_doctor.hang.model.process.seen import Seen
from grpo_doctor_probes.evidence import Frame, Stack, Thread

# Of torch's own C++: innermost functions of a wait for other ranks.
_WAITS: tuple[tuple[Call, re.Pattern[str]], ...] = (
    ("p2p", re.compile(r"^c10d::\w+::(Send|Recv)Work::wait|^gloo::.*::wait(Send|Recv)")),
    ("collective", re.compile(r"^c10d::(\w+::)*\w*Work\w*::(wait|synchronize)")),
)
_TIME_LIMIT = 3  # the argument of futex that has it
Known = dict[tuple[Frame, ...], Call]


def calls_of(processes: Iterable[Seen]) -> Known:
    """Stacks of Python frames whose main threads were looked into, and the call they are in: who
    stands at the same line of the same callers is in the same one.
    """
    found: Known = {}
    for one in processes:
        if one.native is None or one.stack is None:
            continue
        call = _call(one.native)
        if call and one.stack.threads:
            found[one.stack.threads[0].frames] = call
    return found


def _call(native: Stack) -> Call:
    names = [frame.function for thread in native.threads[:1] for frame in thread.frames]
    return next((call for call, waits in _WAITS if any(map(waits.search, names))), "")


def has_time_limit(thread: Thread) -> bool:
    """Whether a sleep in futex ends by itself, as those of a `with lock:` never do."""
    return len(thread.arguments) > _TIME_LIMIT and thread.arguments[_TIME_LIMIT] != 0
