"""The state of recording in this process: the file, the names, the threads.

`ACTIVE` is the one mutable global of the package: the recorder in use, or None. It is created on
the first use of the public functions when GRPO_DOCTOR_RUN_DIR is set, or by `start`.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from _thread import allocate_lock, get_native_id  # `threading` costs 7 ms
from time import monotonic_ns

from grpo_doctor_probes.record import layout, sidecar
from grpo_doctor_probes.record.rundir import (
    MAX_MB_VARIABLE,
    RANKS,
    RUN_DIR_VARIABLE,
    SPANS_SUFFIX,
    rank_stem,
)
from grpo_doctor_probes.record.spanfile import (
    DEFAULT_MAX_MB,
    SpanFile,
    create_span_file,
    encoded_name,
)
from grpo_doctor_probes.record.threads import Level, Tenancy, ThreadState, current_thread_name

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from grpo_doctor_probes.record.cuda import CudaTimer

ACTIVE: Recorder | None = None
STEP_KEY = object()  # stands for the name of steps where a span's name is looked up
_LAST_SLOT = layout.THREAD_SLOTS - 1
# Argument values that differ from step to step would fill the table that all names share.
_MAX_VARIANTS = 64
_PATIENCE_S = 1.0
# One look at the length of a file in a millisecond costs 0.1%; in between nothing is looked at.
_CHECK_EVERY_NS = 1_000_000
SECONDS = "gc/seconds"
LONGEST = "gc/longest_s"
# The young generation alone takes 10 us a time: so little is not worth two records.
WORTH_WRITING_NS = 100_000
_NS_PER_S = 1e9
_CUDA_TRIES = 8  # steps whose thread or runtime is not fit for GPU times; then there are none


class _Start:
    """Whether and how recording starts in this process."""

    refused: str | None = None  # why it could not start; asked once, said once
    # Run directory and rank of a recording parent, or those that the process began with.
    inherited: tuple[str, int] | None = None
    lock = allocate_lock()


class Pauses:
    """How long Python's garbage collector stopped this process, summed up per step.

    A collection holds the GIL: whichever thread started it, all of them stand still. What
    `gc.callbacks` calls may run in the middle of any other code, the recorder's own included, so it
    only adds up two numbers. Measures from construction to `close`.
    """

    __slots__ = ("_begun_ns", "_longest_ns", "_total_ns")

    def __init__(self) -> None:
        self._begun_ns = self._total_ns = self._longest_ns = 0
        gc.callbacks.append(self._heard)

    def forget(self) -> None:
        """Leave out what was collected up to now: it belongs to no step."""
        self._total_ns = self._longest_ns = 0

    def take(self) -> tuple[float, float] | None:
        """Seconds in collections since the last answer, and in the longest; None while they are
        not worth a record."""
        total, longest = self._total_ns, self._longest_ns
        if total < WORTH_WRITING_NS:
            return None
        self._total_ns = self._longest_ns = 0
        return total / _NS_PER_S, longest / _NS_PER_S

    def close(self) -> None:
        """Hear no more."""
        if self._heard in gc.callbacks:
            gc.callbacks.remove(self._heard)

    def _heard(self, moment: str, _facts: Mapping[str, int]) -> None:
        if moment == "start":
            self._begun_ns = monotonic_ns()
        elif self._begun_ns:  # else it began before this was listening
            length = monotonic_ns() - self._begun_ns
            self._begun_ns = 0
            self._total_ns += length
            self._longest_ns = max(self._longest_ns, length)


class Recorder:
    """Records this process into `run_dir`. Raises OSError if its file can't be made."""

    def __init__(self, run_dir: str, rank: int, max_bytes: int) -> None:
        from threading import local  # noqa: PLC0415

        self.run_dir = run_dir
        self.rank = rank
        self.max_bytes = max_bytes
        self.trajectories: Any = None  # their file, with the first; False: it can't be made
        self.name_ids: dict[object, int] = {}
        self._variants: dict[str, int] = {}
        stem = f"{run_dir}/{RANKS}/{rank_stem(rank, sidecar.ROLE.of_this_process())}"
        path, descriptor = create_span_file(stem)
        try:
            self.file = SpanFile(descriptor, rank, max_bytes)
        except BaseException:
            os.close(descriptor)
            os.unlink(path)  # noqa: PTH108 - pathlib costs 8 ms of import in the job
            raise
        self.segment = self.file.segment
        self.check_at_ns = 0
        self.local = local()
        self.free_slots = list(range(_LAST_SLOT - 1, -1, -1))
        self.cuda: CudaTimer | None = None
        self._cuda_tries = 0
        self.stem = path.removesuffix(SPANS_SUFFIX)
        self._rank_file = sidecar.RankFile(self.stem + ".json", rank)
        self._rank_file.write()
        self.pauses = Pauses()

    def is_lost(self, now_ns: int) -> bool:
        """Return whether somebody made the file shorter, which ends the recording and not the job.

        Asked before each store into the file, where `check_at_ns` has come.
        """
        if self.file.is_whole():
            self.check_at_ns = now_ns + _CHECK_EVERY_NS
            return False
        self.check_at_ns = 0
        global ACTIVE  # noqa: PLW0603
        if ACTIVE is self:
            ACTIVE = None
            _Start.refused = "its file was made shorter by another program"
            _say(f"recording of this process ended: {_Start.refused}")
        return True

    def thread(self) -> ThreadState:
        """This thread's state, made on its first span."""
        state: ThreadState | None = getattr(self.local, "state", None)
        if state is None:
            try:
                slot = self.free_slots.pop()
            except IndexError:  # past 63 threads the rest share a slot; their stacks are not shown
                slot = _LAST_SLOT
            state = self.local.state = ThreadState(self, slot)
            self.local.tenancy = Tenancy(state, self.free_slots)
            offset = layout.THREADS_OFFSET + slot * layout.THREAD_BYTES
            layout.THREAD_INFO.pack_into(
                self.file.header, offset, get_native_id(), current_thread_name()
            )
        return state

    def level_for(self, key: object) -> tuple[Level, int]:
        """The level for a span that begins in this thread, and the last word of its record."""
        level = self.thread().enter()
        word = level.words.get(key)
        if word is None:
            kind, name = (layout.STEP, "step") if key is STEP_KEY else (layout.SPAN, key)
            word = level.word(kind, self.name_id(name))
            if name in self.name_ids:  # else the table is full, and keys have no end
                level.words[key] = word
        return level, word

    def name_id(self, key: object) -> int:
        """Return the id of a name, or of a (name, arguments) pair.

        A pair for which there is no room has the id of its name, a name without room the id 0.
        """
        identity = self.name_ids.get(key)
        if identity is not None:
            return identity
        if self.is_lost(monotonic_ns()):
            return 0
        substitute, variants = 0, 0
        if isinstance(key, tuple):
            substitute = self.name_id(key[0])
            variants = self._variants[key[0]] = self._variants.get(key[0], 0) + 1
        identity = self.file.add_name(encoded_name(key)) if variants <= _MAX_VARIANTS else 0
        if not identity:
            self.file.state[layout.STATE_NAME_OVERFLOW] += 1
            return substitute
        # Two threads may add a name at once: the file then has it twice, which costs a few bytes.
        return self.name_ids.setdefault(key, identity)

    def write(self, kind: int, name_id: int, start_ns: int, end_ns: int, value: float) -> None:
        """Append one record of this thread that is not a span; see `append`."""
        if monotonic_ns() > self.check_at_ns and self.is_lost(monotonic_ns()):
            return
        self.append(self.thread().level.word(kind, name_id), start_ns, end_ns, value)

    def append(self, word: int, start_ns: int, end_ns: int, value: float = 0.0) -> None:
        """Append one record; drop and count it when there is no room."""
        if end_ns > self.check_at_ns and self.is_lost(monotonic_ns()):
            return
        rows, starts, ends, values, words = self.segment
        while (row := next(rows, None)) is None:
            rows, starts, ends, values, words = self.segment = self.file.exchange(rows)
            if not words:
                return
        starts[row] = start_ns
        ends[row] = end_ns
        values[row] = value
        words[row] = word  # last: this makes it a record

    def watch_cuda(self) -> None:
        """Times spans on the GPU too once the host program has initialised CUDA. Never imports."""
        if self.cuda is not None or self._cuda_tries >= _CUDA_TRIES:
            return
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        # `is_available` would ask the driver, which spoils CUDA for children forked later.
        is_initialized = getattr(cuda, "is_initialized", None)
        if is_initialized is not None and is_initialized():
            from grpo_doctor_probes.record.cuda import timer_of  # noqa: PLC0415 - most programs: never

            self.cuda = timer_of(self, cuda)
            self._cuda_tries += 1

    def write_pauses(self, now_ns: int) -> None:
        """Write how long the garbage collector stopped this process since the last call."""
        lengths = self.pauses.take()
        for name, seconds in zip((SECONDS, LONGEST), lengths or ()):
            self.write(layout.COUNTER, self.name_id(name), now_ns, now_ns, seconds)

    def note_error(self) -> None:
        """Count an internal error where the report will find it."""
        if not self.is_lost(monotonic_ns()):
            self.file.state[layout.STATE_ERRORS] += 1

    def close(self) -> None:
        """Mark an orderly end in the file and note the clocks once more. Raises OSError."""
        self.pauses.close()
        if self.cuda is not None:
            self.cuda.drain()
        self.file.close()
        if self.trajectories:
            self.trajectories.file.close()
        self._rank_file.write()


def start(run_dir: str | None = None, rank: int | None = None) -> bool:
    """Start recording into `run_dir` (default: GRPO_DOCTOR_RUN_DIR) as `rank` (default: RANK).

    Returns whether recording is on. Never raises: a folder that can't be written to is reported
    once
        on stderr and the program continues without a recording.
    """
    if ACTIVE is None and _Start.lock.acquire(timeout=_PATIENCE_S):
        try:
            _start(run_dir, rank)
        finally:
            _Start.lock.release()
    return ACTIVE is not None


def _start(run_dir: str | None, rank: int | None) -> None:
    global ACTIVE  # noqa: PLW0603 - the process has one recorder
    if ACTIVE is not None:  # by another thread, while this one waited
        return
    inherited_dir, inherited_rank = _Start.inherited or (None, None)
    run_dir = run_dir or os.environ.get(RUN_DIR_VARIABLE) or inherited_dir
    if not run_dir:
        return
    _Start.refused = None
    try:
        if rank is None:
            rank = int(os.environ.get("RANK") or inherited_rank or 0)
        megabytes = float(os.environ.get(MAX_MB_VARIABLE) or DEFAULT_MAX_MB)
        # Absolute, because some programs (Hydra's) change their working directory.
        ACTIVE = Recorder(os.path.abspath(run_dir), rank, int(megabytes * 1024 * 1024))  # noqa: PTH100
    except Exception as problem:  # noqa: BLE001 - a guest never raises into its host
        _Start.refused = str(problem) or type(problem).__name__
        _say(f"not recording this process: {_Start.refused}")
        return
    atexit.register(stop)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:  # its children end without the functions of `atexit`
        multiprocessing.Finalize(None, stop, exitpriority=-100)


def start_if_asked() -> Recorder | None:
    """Return the recorder of GRPO_DOCTOR_RUN_DIR; None, for one check, without it."""
    if _Start.refused is None and (_Start.inherited or os.environ.get(RUN_DIR_VARIABLE)):
        start()
    return ACTIVE


def remember(run_dir: str, rank: int) -> None:
    """Where to record and as which rank, should the job have emptied its environment by then."""
    if _Start.inherited is None:
        _Start.inherited = (run_dir, rank)


def stop() -> None:
    """End the recording of this process in order; spans still open stay open in the file."""
    global ACTIVE
    recorder, ACTIVE = ACTIVE, None
    _Start.refused = "stopped"
    if recorder is not None:
        try:
            recorder.close()
        except Exception as problem:  # noqa: BLE001 - a guest never raises into its host
            _say(f"could not close the recording: {problem}")


def note_error() -> None:
    """Count an internal error where the report will find it; the host sees nothing."""
    if ACTIVE is not None:
        ACTIVE.note_error()


def quietly(function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
    """Call a function of ours on objects of the job's; what it raises is counted, not raised."""
    try:
        function(*args, **kwargs)
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        note_error()


def _after_fork_in_child() -> None:
    # The parent's file is the parent's. The child begins its own at its first span, so that a
    # dataloader worker that records nothing makes no file.
    global ACTIVE  # noqa: PLW0603
    _Start.lock = allocate_lock()
    if ACTIVE is not None:
        _Start.inherited = (ACTIVE.run_dir, ACTIVE.rank)
        ACTIVE = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _say(message: str) -> None:
    try:
        sys.stderr.write(f"grpo-doctor: {message}\n")
    except Exception:  # noqa: BLE001 - stderr is closed, or None in a daemon
        return
