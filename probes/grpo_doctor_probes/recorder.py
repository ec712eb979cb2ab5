"""The state of recording in this process: the file, the names, the threads.

`ACTIVE` is the one mutable global of the package: the recorder in use, or None. It is created on
the first use of the public functions when GRPO_DOCTOR_RUN_DIR is set, or by `start`.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading

from grpo_doctor_probes import layout, sidecar
from grpo_doctor_probes.cuda import CudaTimer
from grpo_doctor_probes.rundir import (
    MAX_MB_VARIABLE,
    RANKS,
    RUN_DIR_VARIABLE,
    SPANS_SUFFIX,
    rank_stem,
)
from grpo_doctor_probes.spanfile import DEFAULT_MAX_MB, SpanFile

ACTIVE: Recorder | None = None
_refused: list[str] = []  # why recording could not start here; asked once, said once
_LAST_SLOT = layout.THREAD_SLOTS - 1


class ThreadState:
    """A thread's place in the header: `stack` is its open-span stack as uint64 pairs."""

    __slots__ = ("_free_slots", "depth", "slot", "stack")

    def __init__(self, owner: Recorder, slot: int) -> None:
        self._free_slots = owner.free_slots
        self.slot = slot
        self.depth = 0
        start = layout.THREADS_OFFSET + slot * layout.THREAD_BYTES + layout.THREAD_INFO.size
        end = start + layout.THREAD_DEPTH * 16
        self.stack = memoryview(owner.file.header)[start:end].cast("Q")

    def __del__(self) -> None:
        # A finished thread gives its slot back: pools that start threads per step stay bounded.
        if self.slot != _LAST_SLOT:
            self._free_slots.append(self.slot)


class Recorder:
    """Records this process into `run_dir`. Raises OSError if its file can't be made."""

    def __init__(self, run_dir: str, rank: int, max_bytes: int) -> None:
        self.run_dir = run_dir
        self.rank = rank
        self.max_bytes = max_bytes
        self.name_ids: dict[object, int] = {}
        self._names_lock = threading.Lock()
        self.file = SpanFile(_new_path(run_dir, rank), rank, max_bytes)
        self.local = threading.local()
        self.free_slots = list(range(_LAST_SLOT - 1, -1, -1))
        self.cuda: CudaTimer | None = None
        self._sidecar = self.file.path.removesuffix(SPANS_SUFFIX) + ".json"
        sidecar.write_rank(self._sidecar, rank)

    def thread(self) -> ThreadState:
        """This thread's state, made on its first span."""
        state: ThreadState | None = getattr(self.local, "state", None)
        if state is None:
            # Past 63 live threads the rest share the last slot; their open spans are not shown.
            slot = self.free_slots.pop() if self.free_slots else _LAST_SLOT
            state = self.local.state = ThreadState(self, slot)
            name = threading.current_thread().name.encode("utf-8", "replace")[:56]
            offset = layout.THREADS_OFFSET + slot * layout.THREAD_BYTES
            layout.THREAD_INFO.pack_into(self.file.header, offset, threading.get_native_id(), name)
        return state

    def name_id(self, key: object) -> int:
        """The id of a name, or of a (name, arguments) pair; 0 when the table is full."""
        with self._names_lock:
            known = self.name_ids.get(key)
            if known is not None:
                return known
            if self.file.add_name(_encode_name(key)):
                identity = self.file.state[layout.STATE_NAMES]
                self.name_ids[key] = identity
                return identity
            self.file.state[layout.STATE_NAME_OVERFLOW] += 1
            return 0

    def write(  # noqa: PLR0913 - one argument per field of a record
        self, kind: int, name_id: int, start_ns: int, end_ns: int, value: float, depth: int = 0
    ) -> None:
        """Appends one record; drops and counts it when there is no room."""
        slot = self.thread().slot
        segment = self.file.segment
        offset = next(segment.claim)
        while offset >= layout.SEGMENT_BYTES:
            segment = self.file.exchange(segment)
            if not segment.kept:
                return
            offset = next(segment.claim)
        layout.RECORD.pack_into(
            segment.memory, offset, start_ns, end_ns, value, name_id, slot, depth, kind
        )

    def close(self) -> None:
        """Marks an orderly end in the file and notes the clocks once more."""
        if self.cuda is not None:
            self.cuda.drain()
        self.file.close()
        sidecar.write_rank(self._sidecar, self.rank)


def start(run_dir: str | None = None, rank: int | None = None) -> bool:
    """Starts recording into `run_dir` (default: GRPO_DOCTOR_RUN_DIR) as `rank` (default: RANK).

    Returns whether recording is on. Never raises: a folder that can't be written to is said once
    on stderr and the program goes on without a recording.
    """
    global ACTIVE  # noqa: PLW0603 - the process has one recorder
    if ACTIVE is not None:
        return True
    _refused.clear()
    run_dir = run_dir or os.environ.get(RUN_DIR_VARIABLE)
    if not run_dir:
        return False
    try:
        number = int(os.environ.get("RANK", "0")) if rank is None else rank
        megabytes = float(os.environ.get(MAX_MB_VARIABLE, DEFAULT_MAX_MB))
        ACTIVE = Recorder(run_dir, number, int(megabytes * 1024 * 1024))
    except (OSError, ValueError) as problem:
        sys.stderr.write(f"grpo-doctor: not recording this process: {problem}\n")
        _refused.append(str(problem))
        return False
    atexit.register(stop)
    return True


def start_if_asked() -> Recorder | None:
    """The recorder that GRPO_DOCTOR_RUN_DIR asks for; None, at the cost of one look, without it."""
    if _refused or RUN_DIR_VARIABLE not in os.environ:
        return None
    start()
    return ACTIVE


def stop() -> None:
    """Ends the recording of this process in order; spans still open stay open in the file."""
    global ACTIVE
    recorder, ACTIVE = ACTIVE, None
    _refused.append("stopped")
    if recorder is not None:
        try:
            recorder.close()
        except (OSError, ValueError) as problem:
            sys.stderr.write(f"grpo-doctor: could not close the recording: {problem}\n")


def note_error() -> None:
    """Counts an internal error where the report will find it; the host sees nothing."""
    if ACTIVE is not None:
        ACTIVE.file.state[layout.STATE_ERRORS] += 1


def _after_fork_in_child() -> None:
    # The parent's file is the parent's. The child begins its own at its first span, so that a
    # dataloader worker that records nothing makes no file.
    global ACTIVE  # noqa: PLW0603
    if ACTIVE is not None:
        os.environ.setdefault(RUN_DIR_VARIABLE, ACTIVE.run_dir)
        ACTIVE = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _new_path(run_dir: str, rank: int) -> str:
    folder = f"{run_dir}/{RANKS}"
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - no pathlib in the job
    stem = f"{folder}/{rank_stem(rank)}"
    first = stem + SPANS_SUFFIX
    # A forked child, a restarted rank, a second run: each its own file beside the first.
    return f"{stem}.{os.getpid()}{SPANS_SUFFIX}" if os.access(first, os.F_OK) else first


def _encode_name(key: object) -> bytes:
    if isinstance(key, tuple):
        name, args = key
        import json  # noqa: PLC0415 - 9 ms that most programs never need

        text = f"{name}{layout.ARGS_SEPARATOR}{json.dumps(dict(args), default=str)}"
    else:
        text = str(key)
    encoded = text.encode("utf-8", "replace")[: layout.MAX_NAME_BYTES]
    return encoded.decode("utf-8", "ignore").encode()
