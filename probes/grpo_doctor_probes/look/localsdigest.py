"""Whether Python ran between two moments though it stands at the same line: its variables tell.

A training loop is nearly always met at its one line that waits for the GPU. Of a loop that gets on
some variable has another value each time; of one that hangs none has. Nothing but a digest of them
is kept.
"""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from grpo_doctor_probes.evidence import Locals
from grpo_doctor_probes.look import pyspy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_AT_ONCE = 4
_ONE_AT_MOST_S = 3.0


def locals_digests(pids: Sequence[int], *, at_most_s: float) -> tuple[Locals, ...]:
    """Of the main thread of each of these processes, in this order. Stops none of them."""
    deadline = time.monotonic() + at_most_s
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="py-spy") as pool:
        return tuple(pool.map(lambda pid: _digest(pid, deadline), pids))


def _digest(pid: int, deadline: float) -> Locals:
    at_ns = time.monotonic_ns()
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        return Locals(pid, at_ns, problem="no time was left to read its variables")
    try:
        threads = pyspy.dump(
            pid, "--nonblocking", "--locals", at_most_s=min(left_s, _ONE_AT_MOST_S)
        )
    except pyspy.PySpyError as error:
        return Locals(pid, at_ns, problem=str(error))
    main = next((one for one in threads if one.get("os_thread_id") == pid), None)
    if main is None or not main.get("frames"):
        return Locals(pid, at_ns, problem="its main thread has no Python frames")
    return Locals(pid, at_ns, digest_of(main["frames"]))


def digest_of(frames: Sequence[dict[str, Any]]) -> str:
    """Of places and variables, so that whoever has moved on has another one too."""
    hashed = hashlib.sha256()
    for frame in frames:
        where = f"{frame.get('name')}\0{frame.get('filename')}\0{frame.get('line')}\n"
        hashed.update(where.encode("utf-8", "replace"))
        for variable in frame.get("locals") or ():
            text = f"{variable.get('name')}\0{variable.get('addr')}\0{variable.get('repr')}\n"
            hashed.update(text.encode("utf-8", "replace"))
    return hashed.hexdigest()[:16]
