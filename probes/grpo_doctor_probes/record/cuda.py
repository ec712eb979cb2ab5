"""GPU durations of spans: CUDA events recorded at both ends and read later, never waited for.

A host timer ends when a kernel is queued, not when it is done. Events cost about 5 us a pair and
no synchronization: `resolve` only asks `query()`.

Only the thread that does the steps has any: in a new thread, as those that a reward function
starts, the current device is 0 whatever the rank's is, and an event there would open a context on
it (pytorch-pfn-extras#726).

While any thread captures a CUDA graph in the usual, global mode, a `cudaEventQuery` of any other
thread fails and the capture with it (pytorch#105182), and no stream shows captures in other
threads. So CUDA is asked in relaxed capture mode only, as torch's own watchdog does; a runtime that
can't do that is asked nothing.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from _thread import get_ident
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from grpo_doctor_probes.record import layout

if TYPE_CHECKING:
    from grpo_doctor_probes.record.threads import Level, Records

_MAX_PENDING = 4096
_RESOLVE_PER_SPAN = 4
# Only steps, phases and their direct sub-spans get events.
_MAX_DEPTH = 3
_KIND = layout.CUDA_SPAN << layout.KIND_SHIFT
MAPS = "/proc/self/maps"
_RELAXED = 2  # cudaStreamCaptureModeRelaxed, and HIP's
_EXCHANGE = {
    "libcudart.so": "cudaThreadExchangeStreamCaptureMode",
    "libamdhip64.so": "hipThreadExchangeStreamCaptureMode",
}
_RUNTIME = re.compile(r"\S+ r\S+ 0+ \S+ \d+ +(/.*/(libcudart\.so|libamdhip64\.so)\S*)")
_NOT_KIND = (1 << layout.KIND_SHIFT) - 1


class CaptureMode:
    """`with` it, this thread is in relaxed mode. Not to be nested; one per thread."""

    def __init__(self, exchange: Any, ctypes: Any) -> None:
        """Of the runtime's function; `ctypes` is that module."""
        self._exchange = exchange
        self._mode = ctypes.c_int(_RELAXED)
        self._at = ctypes.byref(self._mode)

    def __enter__(self) -> None:
        """Raise OSError where the runtime refuses, so that nothing is asked."""
        self._mode.value = _RELAXED
        code = self._exchange(self._at)  # puts the old mode in its place
        if code:
            raise OSError(f"the capture mode can't be set: CUDA error {code}")

    def __exit__(self, *error: Any) -> None:
        """Back to the mode that it had."""
        self._exchange(self._at)


def capture_mode() -> CaptureMode | None:
    """That of the runtime which this process has loaded; None where it has none, or links it in.

    Loads nothing. Never raises.
    """
    ctypes = sys.modules.get("ctypes")
    if ctypes is None:  # then there is no torch either
        return None
    try:
        with open(MAPS, encoding="utf-8", errors="surrogateescape") as maps:  # noqa: PTH123
            runtime = next((match for line in maps if (match := _RUNTIME.match(line))), None)
        if runtime is None:
            return None
        library = ctypes.CDLL(runtime[1], mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        exchange = getattr(library, _EXCHANGE[runtime[2]])
        exchange.restype = ctypes.c_int
        return CaptureMode(exchange, ctypes)
    except (OSError, AttributeError, ValueError):
        return None


class _Mark(NamedTuple):
    """A recorded event and the device that it belongs to."""

    event: Any
    device: int


class _Pair(NamedTuple):
    start: _Mark
    end: _Mark
    word: int
    start_ns: int
    end_ns: int


class CudaTimer:
    """Pairs of events waiting to be read. One per recorder, made once CUDA is seen in use, by the
    thread that does the steps.

    After an error of CUDA's it does nothing any more: the context is lost with the first one.
    """

    def __init__(self, owner: Records, cuda: Any, relaxed: CaptureMode) -> None:
        self._owner = owner
        self._cuda = cuda
        self._relaxed = relaxed
        self._thread = get_ident()
        self._pending: deque[_Pair] = deque()
        self._free: dict[int, list[Any]] = {}
        self._reading = threading.Lock()
        self._broken = False

    def begin(self, level: Level) -> None:
        """Record an event for a span that begins, in `level.cuda_start`."""
        ours = level.depth < _MAX_DEPTH and get_ident() == self._thread
        level.cuda_start = self._mark() if ours else None

    def finish(self, start: _Mark, word: int, start_ns: int, end_ns: int) -> None:
        """Record the closing event, then read a few pairs that have completed."""
        end = self._mark()
        if end is None:
            self._recycle(start)
            return
        if len(self._pending) >= _MAX_PENDING:
            self._drop(self._pending.popleft())
        self._pending.append(_Pair(start, end, word, start_ns, end_ns))
        self._resolve(_RESOLVE_PER_SPAN)

    def drain(self) -> None:
        """Write what has completed by now; what has not is counted as dropped."""
        if get_ident() == self._thread:
            self._resolve(len(self._pending))
        while self._pending:
            self._drop(self._pending.popleft())

    def _mark(self) -> _Mark | None:
        """Return an event on the current stream; None during CUDA graph capture."""
        if self._broken:
            return None
        try:
            if self._cuda.is_current_stream_capturing():
                return None
            device = self._cuda.current_device()
            free = self._free.setdefault(device, [])
            with self._relaxed:
                event = free.pop() if free else self._cuda.Event(enable_timing=True)
                event.record()
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            self._broken = True
            self._owner.note_error()
            return None
        return _Mark(event, device)

    def _resolve(self, at_most: int) -> None:
        """Write up to `at_most` completed pairs, oldest first; stop at one still running."""
        if self._broken or not self._reading.acquire(blocking=False):
            return
        try:
            if self._pending and not self._cuda.is_current_stream_capturing():
                with self._relaxed:
                    self._read(at_most)
        except IndexError:  # dropped by another thread meanwhile
            pass
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            self._broken = True
            self._owner.note_error()
        finally:
            self._reading.release()

    def _read(self, at_most: int) -> None:
        for _ in range(min(at_most, len(self._pending))):
            pair = self._pending[0]
            if not (pair.start.event.query() and pair.end.event.query()):
                return
            self._pending.popleft()
            self._write(pair)

    def _write(self, pair: _Pair) -> None:
        if pair.start.device == pair.end.device:
            milliseconds = float(pair.start.event.elapsed_time(pair.end.event))
            self._owner.append(
                pair.word & _NOT_KIND | _KIND, pair.start_ns, pair.end_ns, milliseconds
            )
        self._recycle(pair.start)
        self._recycle(pair.end)

    def _recycle(self, mark: _Mark) -> None:
        self._free.setdefault(mark.device, []).append(mark.event)

    def _drop(self, pair: _Pair) -> None:
        self._owner.file.state[layout.STATE_DROPPED] += 1
        self._recycle(pair.start)
        self._recycle(pair.end)


def timer_of(owner: Records, cuda: Any) -> CudaTimer | None:
    """A timer for the calling thread; None where it may not have one, or CUDA may not be asked."""
    relaxed = capture_mode()
    if relaxed is None or not _has_the_ranks_device(cuda):
        return None
    return CudaTimer(owner, cuda, relaxed)


def _has_the_ranks_device(cuda: Any) -> bool:
    """Return whether the current device of this thread is surely the rank's.

    Programs set it in their main thread. In another one it is 0 unless somebody set it there too:
    then it is right if that is the local rank, or if the process sees one device only.
    """
    if get_ident() == threading.main_thread().ident:
        return True
    if len(os.environ.get("CUDA_VISIBLE_DEVICES", ",").split(",")) == 1:
        return True
    return str(cuda.current_device()) == os.environ.get("LOCAL_RANK")
