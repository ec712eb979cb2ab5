"""Whether and how a process moved between two samples: what separates stuck, slow, healthy.

A single sample cannot show it: in a healthy loop most ranks are at one line of one collective. The
CUDA driver spins at one line until a kernel ends, one of NCCL that never will included.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Literal

from grpo_doctor.hang.model.process.stacks import is_heartbeat, is_library, place_of
from grpo_doctor_probes.evidence import Frame, Locals, Position, ProcessLook, Stack, Thread

# Where NVIDIA's and AMD's drivers and collective libraries wait. Others of theirs, such as cuBLAS
# and the compiler of PTX (libnvidia-ptxjitcompiler), do work of their own on the host.
_DEVICE_LIBRARY = re.compile(r"^lib(cuda|cudart|nccl|amdhip64|rccl|hsa-runtime64)([-.]|$)")
# Python functions of torch that end in a wait for the device, wherever their C code is.
_WAITS = (
    (
        re.compile(r"/torch/(cuda|xpu|npu|accelerator)/"),
        re.compile(r"^(synchronize|wait_stream|wait|query)$"),
    ),
    (
        # Not what packs objects for a collective: that computes.
        re.compile(r"/torch/distributed/(distributed_c10d|c10d_logger|nn/functional)\.py$"),
        re.compile(r"^(?!_object_to_tensor|_tensor_to_object)"),
    ),
    (re.compile(r"/torch/_functional_collectives\.py$"), re.compile(r".")),
    (re.compile(r"/torch/amp/grad_scaler\.py$"), re.compile(r".")),
    (re.compile(r"/torch/_tensor_str\.py$"), re.compile(r".")),
    (
        re.compile(r"/torch/_tensor\.py$"),
        re.compile(r"^(tolist|item|__format__|__repr__|__array__|__contains__)$"),
    ),
    (re.compile(r"/torch/nn/utils/clip_grad\.py$"), re.compile(r".")),
    (re.compile(r"accelerator"), re.compile(r"^synchronize$")),
)


@dataclass(frozen=True, slots=True)
class SpinSample:
    """A closer sample of threads that use a core. `needs_stacks`: without stacks its state is open,
    as a rank's is; a compiler that works for one has none.
    """

    positions: tuple[Position, ...] = ()
    locals_seen: tuple[Locals, ...] = ()
    needs_stacks: bool = False

    def of(self, tid: int) -> tuple[Position, ...]:
        """Where one thread was."""
        return tuple(position for position in self.positions if position.tid == tid)

    @property
    def ran_python(self) -> bool:
        """Return whether the main thread left its line between two moments, and came back to it."""
        digests = {moment.digest for moment in self.locals_seen if moment.digest}
        return len(digests) > 1


def is_device_library(name: str) -> bool:
    """Return whether code of this file is a driver's or a collective library's."""
    return _DEVICE_LIBRARY.search(name) is not None


def spins_in(positions: Sequence[Position]) -> bool | None:
    """Whether a thread was mostly in such code when it was looked at; None where it was not seen.

    A thread that launches kernels all the time is there as well, so one time of three is too few.
    """
    files = [p.caller or p.library for p in positions if not p.problem]
    readings = [file for file in files if file]
    return 2 * sum(map(is_device_library, readings)) > len(readings) if readings else None


def waits_by_frames(frames: Sequence[Frame]) -> bool:
    """Return whether the innermost Python line is one of torch's that wait for the device."""
    if not frames:
        return False
    inner = frames[0]
    function = inner.function.rpartition(".")[2]
    return any(file.search(inner.file) and name.search(function) for file, name in _WAITS)


Kind = Literal[
    "gone",
    "stopped",
    "frozen",
    "still",  # its threads did not run at all
    "polling",  # wakes up now and then, at the same place, and does next to nothing
    "busy",  # uses a core, at the same place
    "spinning",  # uses a core, at the same place, and only waits for its device
    "working",  # its Python code or its files got on
    "unknown",
]
# Kinds of processes that cannot run, in words.
HALTED: dict[Kind, str] = {"gone": "dead", "stopped": "stopped", "frozen": "frozen"}
TICKS_PER_SECOND = 100.0  # USER_HZ, the unit of /proc/PID/stat on every Linux we run on
BUSY_SHARE = 0.3  # of one core; polling loops of 10 ms were below 0.05
WAKES_OF_A_POLL = 3  # a blocked call that times out and restarts wakes its thread once or twice
IDLE_SHARE = 0.02  # of one core, for a whole process: a tick of /proc is 0.01 s
BYTES_OF_WORK = 256 * 1024  # logging heartbeats and tqdm write a few hundred bytes a second
# System calls that are nothing but a sleep: nanosleep and clock_nanosleep, of x86-64 and ARM.
_SLEEPS = frozenset({35, 230, 101, 115})
_TIME_LIMIT = 3  # the argument of futex that has it
_MOST_OF_A_POLL = 0.1  # of one core; who sleeps in a loop and uses more does work in between
_GPU_THREADS = ("cuda", "pt_nccl_", "NCCL ", "hip", "rccl")
# Threads without Python that poll for others, or wake by a clock, whatever their process does.
_BESIDE = re.compile(r"(pt_)?(gloo|nccl|mpi|ucc|hccl)|cuda|heartbeat", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Activity:
    """What a process did in the `seconds` between the first sample and the last.

    `still_s` is for how long its main thread has not run, None where the kernel does not say.
    `cpu_share` and `delay_share` are of one core: time on it, time runnable without it. `moved` are
    the Python frames' changes, `wakes` the main thread's switches. `whole_share` is the core time
    of all its threads; `native_share` that of the threads of libraries, which run no Python, and
    `native_delay_share` for how much of the time one of them was runnable without a core.
    """

    kind: Kind
    seconds: float = 0.0
    cpu_share: float = 0.0
    delay_share: float = 0.0
    wakes: int = 0
    io_bytes: int = 0
    major_faults: int = 0
    moved: bool = False
    still_s: float | None = None
    whole_share: float = 0.0
    native_share: float = 0.0
    native_delay_share: float = 0.0

    @property
    def only_ticks(self) -> bool:
        """Return whether it woke up from time-outs and nothing else: that is no progress."""
        return self.kind == "polling" and self.whole_share < IDLE_SHARE and not self.io_bytes

    @property
    def progresses(self) -> bool:
        """Return whether it may progress by itself; that it did, which alone is a sign of health,
        is `working`. A host that spins for its device does not.
        """
        return self.kind in ("working", "busy")

    @property
    def is_active(self) -> bool:
        """Return whether it does anything at all between the looks, if only now and then."""
        return self.progresses or (self.kind == "polling" and not self.only_ticks)

    @property
    def library_works(self) -> bool:
        """Return whether a library computes in threads of its own while its Python waits for that:
        a tokenizer, a data frame, the backward pass of a GPU.
        """
        share = self.native_share + self.native_delay_share
        return self.kind in ("still", "polling") and share >= BUSY_SHARE


def activity(
    before: ProcessLook | None,
    after: ProcessLook | None,
    stacks: Sequence[Stack | None],
    *,
    frozen: bool = False,
    at: SpinSample | None = None,
) -> Activity:
    """Compare two samples of one process; None: it was not there. `stacks`: one per sample. `at` is
    what a closer sample of threads that use a core has shown.
    """
    if after is None or after.state in ("Z", "X"):
        return Activity("gone")
    if frozen or (after.state in ("T", "t") and not _goes_on_and_off(before, after)):
        seconds = (after.at_ns - before.at_ns) / 1e9 if before is not None else 0.0
        return Activity("frozen" if frozen else "stopped", seconds, still_s=_still_s(after))
    if before is None or before.state in ("Z", "X") or not after.threads or not before.threads:
        return Activity("unknown", still_s=_still_s(after))
    return _compared(before, after, stacks, at or SpinSample())


def _goes_on_and_off(before: ProcessLook | None, after: ProcessLook) -> bool:
    """Return whether something keeps stopping and continuing it, as `cpulimit` does."""
    if before is None or not before.threads or not after.threads:
        return False
    return wakes_between(before.threads[0], after.threads[0]) >= WAKES_OF_A_POLL


def _compared(
    before: ProcessLook, after: ProcessLook, stacks: Sequence[Stack | None], at: SpinSample
) -> Activity:
    seconds = max((after.at_ns - before.at_ns) / 1e9, 1e-3)
    earlier = {thread.tid: thread for thread in before.threads}
    workers, libraries = _worker_ids(after, stacks), _native_ids(after, stacks)
    alive = [(earlier[thread.tid], thread) for thread in after.threads if thread.tid in earlier]
    working = [(was, now) for was, now in alive if now.tid in workers]
    # NCCL's threads spin for other hosts as long as anything is outstanding: no work of the rank.
    native = [
        (was, now) for was, now in alive if now.tid in libraries and not spins_in(at.of(now.tid))
    ]
    wakes = wakes_between(earlier.get(after.threads[0].tid), after.threads[0])
    io_bytes = after.read_bytes - before.read_bytes + after.written_bytes - before.written_bytes
    draft = Activity(
        kind="unknown",
        seconds=seconds,
        cpu_share=_cpu_s(working) / seconds,
        delay_share=_delay_s(working) / seconds,
        wakes=wakes,
        io_bytes=io_bytes,
        major_faults=after.major_faults - before.major_faults,
        moved=_moved(stacks) and not _sleeps_in_a_loop(before, after, stacks),
        still_s=_still_s(after),
        whole_share=(after.cpu_ticks - before.cpu_ticks) / TICKS_PER_SECOND / seconds,
        native_share=_cpu_s(native) / seconds,
        native_delay_share=_delay_s(native) / seconds,
    )
    kind = _kind(draft, after.threads[0].state)
    if kind == "busy":
        kind = _of_busy(draft, after, stacks, at)
    return replace(draft, kind=kind, moved=draft.moved or (kind == "working" and at.ran_python))


def _cpu_s(threads: Sequence[tuple[Thread, Thread]]) -> float:
    return sum(now.cpu_ticks - was.cpu_ticks for was, now in threads) / TICKS_PER_SECOND


def _delay_s(threads: Sequence[tuple[Thread, Thread]]) -> float:
    """The longest of any: that they all wait for a core at once is no more work."""
    delays = (now.run_delay_ns - was.run_delay_ns for was, now in threads)
    return max(delays, default=0) / 1e9


def _kind(draft: Activity, state: str) -> Kind:
    if draft.moved or draft.io_bytes >= BYTES_OF_WORK:
        return "working"
    if draft.cpu_share + draft.delay_share >= BUSY_SHARE or state == "R":
        return "busy"
    return "polling" if draft.wakes >= WAKES_OF_A_POLL else "still"


def _of_busy(
    draft: Activity, after: ProcessLook, stacks: Sequence[Stack | None], at: SpinSample
) -> Kind:
    """What a main thread does that uses a core at one line: work, or a wait for its device."""
    main_stacks = [frames for frames in map(_main_frames, stacks) if frames]
    if not main_stacks and at.needs_stacks:
        return "unknown"
    spins = spins_in(at.of(after.threads[0].tid))
    if spins is None:
        runs = draft.cpu_share >= BUSY_SHARE  # who is only ready may sleep between the looks
        waits = bool(main_stacks) and all(map(waits_by_frames, main_stacks))
        spins = runs and waits and uses_gpu(after)
    if not spins:
        return "busy"
    return "working" if at.ran_python else "spinning"


def has_time_limit(thread: Thread) -> bool:
    """Return whether a sleep in futex ends by itself, as those of a `with lock:` never do."""
    return len(thread.arguments) > _TIME_LIMIT and thread.arguments[_TIME_LIMIT] != 0


def uses_gpu(look: ProcessLook) -> bool:
    """By the threads that CUDA, torch and NCCL start; gloo sends in the calls of its own ranks."""
    return any(thread.name.startswith(_GPU_THREADS) for thread in look.threads)


def _sleeps_in_a_loop(
    before: ProcessLook, after: ProcessLook, stacks: Sequence[Stack | None]
) -> bool:
    """Return whether it sleeps, checks something and sleeps again, all in one function of its own.

    A thread that asks whether a file is there is in other library code each time, and does not
    move; a rank that is in a collective in one sample and not in the other has completed it.
    """
    if not any(look.threads[0].syscall in _SLEEPS for look in (before, after)):
        return False
    used = after.threads[0].cpu_ticks - before.threads[0].cpu_ticks
    seconds = max((after.at_ns - before.at_ns) / 1e9, 1e-3)
    if used / TICKS_PER_SECOND / seconds > _MOST_OF_A_POLL:
        return False
    main = [stack.threads[0] for stack in stacks if stack is not None and stack.threads]
    if any(place_of(thread).communicates for thread in main):
        return False
    paths = {
        tuple((frame.function, frame.file) for frame in thread.frames if not is_library(frame))
        for thread in main
        if thread.frames
    }
    return len(paths) == 1


def wakes_between(before: Thread | None, after: Thread) -> int:
    """Return how often a thread slept or lost its core between two samples; 0 for a new one."""
    if before is None:
        return 0
    return after.voluntary - before.voluntary + after.involuntary - before.involuntary


def _still_s(look: ProcessLook) -> float | None:
    if not look.threads or not look.threads[0].last_ran_ns:
        return None
    return max(look.at_ns - look.threads[0].last_ran_ns, 0) / 1e9


def _worker_ids(look: ProcessLook, stacks: Sequence[Stack | None]) -> frozenset[int]:
    """The main thread and those that run Python, without the ones that wake by a clock."""
    python = (thread for stack in stacks if stack for thread in stack.threads)
    working = (thread.tid for thread in python if not is_heartbeat(thread.name))
    return frozenset((look.threads[0].tid, *working))


def _native_ids(look: ProcessLook, stacks: Sequence[Stack | None]) -> frozenset[int]:
    """Return the threads that a library started for its own work; none where no stack shows which
    threads run Python.
    """
    python = {thread.tid for stack in stacks if stack for thread in stack.threads}
    native = look.threads[1:] if python else ()
    tids = {thread.tid for thread in native if _BESIDE.match(thread.name) is None}
    return frozenset(tids - python)


def _moved(stacks: Sequence[Stack | None]) -> bool:
    """Return whether the main thread's Python frames differ between samples.

    Innermost frames of a wait (a poll loop in `threading` or `selectors`) may alternate between two
    lines forever, so a change counts only where a caller's line changed as well, or where the
    functions differ by more than one.
    """
    readings = [frames for frames in map(_main_frames, stacks) if frames]
    return any(_got_on(before, after) for before, after in pairwise(readings))


def _main_frames(stack: Stack | None) -> tuple[Frame, ...]:
    return stack.threads[0].frames if stack is not None and stack.threads else ()


def _got_on(before: tuple[Frame, ...], after: tuple[Frame, ...]) -> bool:
    callers = zip(reversed(before), reversed(after), strict=False)
    outer = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], callers))
    return max(len(before), len(after)) - outer > 1
