"""GPU durations of spans: CUDA events recorded at both ends and read later, never waited for.

A host timer ends when a kernel is queued, not when it is done. Events cost about 5 us a pair and
no synchronization: `resolve` only asks `query()`.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from grpo_doctor_probes import layout

if TYPE_CHECKING:
    from grpo_doctor_probes.recorder import Recorder

_MAX_PENDING = 4096
_RESOLVE_PER_SPAN = 4


class _Pending(NamedTuple):
    start: Any
    end: Any
    name_id: int
    start_ns: int
    end_ns: int
    depth: int


def cuda_in_use() -> bool:
    """Whether the host program has imported torch and initialised CUDA. Never imports it."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return bool(cuda is not None and cuda.is_available() and cuda.is_initialized())


class CudaTimer:
    """Pairs of events waiting to be read. One per recorder, made once CUDA is seen in use."""

    def __init__(self, owner: Recorder) -> None:
        self._owner = owner
        self._cuda: Any = sys.modules["torch"].cuda
        self._pending: deque[_Pending] = deque()
        self._free: list[Any] = []

    def mark(self) -> Any | None:
        """Records an event on the current stream; None during CUDA graph capture."""
        if self._cuda.is_current_stream_capturing():
            return None
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def finish(self, start: Any, name_id: int, start_ns: int, end_ns: int, depth: int) -> None:
        """Records the closing event, then reads a few pairs that have completed."""
        end = self.mark()
        if end is None:
            self._free.append(start)
            return
        if len(self._pending) >= _MAX_PENDING:
            self._owner.file.state[layout.STATE_DROPPED] += 1
            self._pending.popleft()
        self._pending.append(_Pending(start, end, name_id, start_ns, end_ns, depth))
        self.resolve(_RESOLVE_PER_SPAN)

    def resolve(self, at_most: int) -> None:
        """Writes up to `at_most` completed pairs, oldest first; stops at one still running."""
        for _ in range(min(at_most, len(self._pending))):
            if not self._pending[0].end.query():
                return
            pair = self._pending.popleft()
            milliseconds = float(pair.start.elapsed_time(pair.end))
            self._owner.write(
                layout.CUDA_SPAN, pair.name_id, pair.start_ns, pair.end_ns, milliseconds, pair.depth
            )
            self._free += (pair.start, pair.end)

    def drain(self) -> None:
        """Writes what has completed by now; what has not is counted as dropped."""
        self.resolve(len(self._pending))
        self._owner.file.state[layout.STATE_DROPPED] += len(self._pending)
        self._pending.clear()
