"""Where each rank is: in which phase, since when, and for how long is usual.

Built from headers of span files that are read twice a second, so a length is known to half a
second; of a rank without spans from three small reads of /proc.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor_probes.procs.live import Header, OpenSpan, read_header
from grpo_doctor_probes.procs.procfs import own_number, read_record, status
from grpo_doctor_probes.procs.procstat import CLOCK_TICKS_PER_S, read_stat
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.record.rundir import RANKS, SPANS_SUFFIX

# Shorter waits are everyday on a busy machine: a checkpoint, a garbage collection, a page fault.
FLOOR_S = 35.0
# torch.compile and CUDA graphs of a 7B model take one to two minutes (vLLM logs its own times).
FIRST_S = 120.0
# Of a phase's p99: rollouts and rewards have long tails, and twice the p99 is still met weekly.
FACTOR = 3.0
# torchrun takes up to a second to end the other ranks when one was killed or failed; a debugger may
# stop one for a moment.
STANDSTILL_S = 10.0
# An inspection that found a job not stuck counts until the rank has been there this many times as
# long.
PATIENCE = 2.0
# Of the backend's timeout: at 100% it kills the ranks, and with them the evidence.
OF_TIMEOUT = 0.8
_REMEMBERED = 256
BETWEEN_PHASES, OUTSIDE_OF_PHASES = "between phases", "outside of phases"
# Places of a rank without spans: its main thread sleeps, or it uses a core and never sleeps, as one
# that waits for its GPU does. And of a rank that was killed or failed, or stopped by a signal.
SILENT, SPINNING, GONE, STOPPED = "silent", "busy without a pause", "gone", "stopped"
# A thread that polls ten times a second stays far below; one that computes is far above.
BUSY_SHARE = 0.02
_QUIET_NS = 3_000_000_000
_COLLECTIVES = (layout.COLLECTIVE, layout.COLLECTIVE_WAIT)


class Headers:
    """Reads `run_dir/ranks/*.spans`."""

    def __init__(self, run_dir: Path, proc: Path = Path("/proc")) -> None:
        self._folder, self._proc = run_dir / RANKS, proc
        # By rank, and the number that a process writes: in a container it has one of its own there,
        # which a process of another container or host may have as well.
        self._pids: dict[tuple[int, int], int] = {}

    def read(self, ranks: Mapping[int, int] | None = None) -> list[Header]:
        """Return one header per rank, in order; a file that can't be read is left out.

        A rank that was restarted writes `00003.<pid>.spans` next to its first file, and so does a
        forked worker; they are distinguished by `ranks`, of the processes that train.
        """
        trains = ranks or {}
        for pid, rank in trains.items():
            if (own := own_number(self._proc / str(pid))) is not None:
                self._pids[rank, own] = pid
        newest: dict[int, Header] = {}
        for path in sorted(self._folder.glob(f"[0-9]*{SPANS_SUFFIX}")):
            if not self._is_wanted(path.name, trains):
                continue
            try:
                header = read_header(path)
            except (OSError, ValueError):
                continue
            header = replace(header, pid=self._pid(header.rank, header.pid))
            earlier = newest.get(header.rank, header)
            newest[header.rank] = max(earlier, header, key=lambda h: h.start_monotonic_ns)
        return [newest[rank] for rank in sorted(newest)]

    def _pid(self, rank: int, written: int) -> int:
        return self._pids.get((rank, written), written)

    def _is_wanted(self, name: str, ranks: Mapping[int, int]) -> bool:
        rank, *numbers = name.removesuffix(SPANS_SUFFIX).split(".")
        if not numbers or not (rank.isdecimal() and numbers[0].isdecimal()):
            return not numbers
        return self._pid(int(rank), int(numbers[0])) in ranks


@dataclass(frozen=True, slots=True)
class Standing:
    """A rank at one moment.

    Attributes:
        place: under which name its length is learned: a phase, `reward, in all_gather`, or one of
            the names for what is in no phase.
        since_ns: CLOCK_MONOTONIC when it got there.
        first: none of that name has ended in this rank.
        waits: it is in a collective, or may be: it may be waiting for another rank.
        begun_ns: CLOCK_MONOTONIC when its latest span began, which may have ended; 0 without any.
    """

    rank: int
    pid: int
    place: str
    since_ns: int
    first: bool = True
    waits: bool = False
    begun_ns: int = 0

    @property
    def mark(self) -> tuple[int, str, int, int]:
        """What changes as soon as it moves. Of a rank that never sleeps it is only its place: an
        inspection makes it sleep."""
        since_ns = 0 if self.place == SPINNING else self.since_ns
        return self.pid, self.place, since_ns, self.begun_ns


class Lengths:
    """What was observed, by place. Lengths are seconds.

    The limit is `max(FLOOR_S, FACTOR x p99)` of the lengths seen at that place. What was never
    seen to end gets FIRST_S instead: a first rollout compiles, a first step loads and allocates. A
    limit that is too low costs one inspection of the job and doubles itself; one that is too high
    costs the wait.

    Args:
        fixed_s: the user's own limit, which then holds for every place and is never learned.
        timeout_s: when the backend gives up on a collective.
    """

    def __init__(self, fixed_s: float | None = None, timeout_s: float = math.inf) -> None:
        self._fixed_s, self._collective_s = fixed_s, OF_TIMEOUT * timeout_s
        self._lengths_s: dict[str, deque[float]] = {}
        self._inspected_s: dict[str, float] = {}

    def learn(self, place: str, length_s: float) -> None:
        """Take in one length. The latest 256 of a place count."""
        self._lengths_s.setdefault(place, deque(maxlen=_REMEMBERED)).append(length_s)

    def knows(self, place: str) -> bool:
        """Return whether one of that name was seen to end."""
        return place in self._lengths_s

    def limit_s(self, standing: Standing) -> float:
        """From which age on it is suspicious."""
        if standing.place in (GONE, STOPPED):
            usual_s = min(STANDSTILL_S, self._fixed_s or math.inf)
        elif self._fixed_s is not None:
            usual_s = self._fixed_s
        elif standing.first:
            usual_s = FIRST_S
        else:
            lengths_s = sorted(self._lengths_s.get(standing.place, (0.0,)))
            p99_s = lengths_s[math.ceil(0.99 * len(lengths_s)) - 1]  # nearest rank
            usual_s = max(FLOOR_S, FACTOR * p99_s)
        inspected_s = self._inspected_s.get(standing.place, 0.0)
        limit_s = max(usual_s, PATIENCE * inspected_s)
        if standing.waits and inspected_s < self._collective_s:
            return min(limit_s, self._collective_s)
        return limit_s

    def tolerate(self, place: str, age_s: float) -> None:
        """It was inspected when that old, and is not known to be stuck: it may get twice as old."""
        self._inspected_s[place] = max(self._inspected_s.get(place, 0.0), age_s)


class Follower:
    """Follows one rank through its headers and teaches `lengths` what it sees."""

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths
        self._open: set[tuple[str, int]] = set()  # (place, since when)
        self._named_ns: dict[str, int] = {}
        self._names_read = 0

    def follow(self, header: Header, now_ns: int, usual_since_ns: int = 0) -> Standing:
        """Take in the header of this rank as it was read at `now_ns`.

        What was before `usual_since_ns` teaches nothing: the job was stuck, or no one looked.
        """
        stack = carrying_stack(header)
        for text in header.names[self._names_read :]:
            self._named_ns.setdefault(text.partition(layout.ARGS_SEPARATOR)[0], now_ns)
        self._names_read = len(header.names)
        place = place_of(stack)
        thread = _carrying_thread(header)
        begun_ns = header.begun_ns[thread] if thread < len(header.begun_ns) else 0
        opened = {
            (place_of(stack[: level + 1]), span.start_ns)
            for level, span in enumerate(stack)
            if span.kind != layout.STEP
        }
        if place in (BETWEEN_PHASES, OUTSIDE_OF_PHASES):
            # The step's own begin is no help: phases of it have come and gone since.
            since_ns = next((since for name, since in self._open if name == place), now_ns)
            if begun_ns > since_ns:  # it was in a phase between two headers
                since_ns = now_ns
            opened = {(place, since_ns)}
            first = not self._lengths.knows(place)
        else:
            since_ns = stack[-1].start_ns
            # The table had the name before this span began: an earlier one of that name has ended.
            first = self._named_ns.get(_telling(stack).name, now_ns) >= _telling(stack).start_ns
        closed, self._open = self._open - opened, opened
        for name, start_ns in closed:
            if start_ns >= usual_since_ns:
                self._lengths.learn(name, (now_ns - start_ns) / 1e9)
        waits = bool(stack) and stack[-1].kind in _COLLECTIVES
        return Standing(header.rank, header.pid, place, since_ns, first, waits, begun_ns)


class MainThread:
    """The main thread of a rank without spans: since when it is silent, or never sleeps."""

    def __init__(self, pid: int, rank: int, now_ns: int, proc: Path = Path("/proc")) -> None:
        self._pid, self._rank = pid, rank
        self._folder = proc / f"{pid}/task/{pid}"
        self._seen_ns, self._ran_ns = now_ns, 0
        self._busy_ns = self._slept_ns = now_ns
        self._sleeps = ""

    def look(self, now_ns: int) -> Standing:
        """Return where it is now. Raises OSError, ValueError, IndexError when it has ended."""
        try:
            ran_ns = int(read_record(self._folder / "schedstat").split()[0])
        except FileNotFoundError:  # a kernel without CONFIG_SCHED_INFO, or the thread has ended
            ran_ns = read_stat(self._folder).cpu_ticks * 1_000_000_000 // CLOCK_TICKS_PER_S
        if ran_ns - self._ran_ns > BUSY_SHARE * (now_ns - self._seen_ns):
            self._busy_ns = now_ns
        self._seen_ns, self._ran_ns = now_ns, ran_ns
        sleeps = status(self._folder).get("voluntary_ctxt_switches", "")
        if sleeps != self._sleeps or not sleeps:  # gVisor does not count: never called busy
            self._sleeps, self._slept_ns = sleeps, now_ns
        runs = now_ns - self._busy_ns <= _QUIET_NS
        place, since_ns = (SPINNING, self._slept_ns) if runs else (SILENT, self._busy_ns)
        return Standing(self._rank, self._pid, place, since_ns, waits=True)


def carrying_stack(header: Header) -> tuple[OpenSpan, ...]:
    """Return the open spans, outermost first, of the thread that carries the steps."""
    thread = _carrying_thread(header)
    return tuple(span for span in header.open_spans if span.thread == thread)


def _carrying_thread(header: Header) -> int:
    return next((s.thread for s in header.open_spans if s.kind == layout.STEP), 0)


def place_of(stack: tuple[OpenSpan, ...]) -> str:
    """Return what a stack of open spans is called.

    The same collective takes as long as the slowest rank takes for what comes before it, so it is
    distinguished by its phase: `reward, in all_gather`.
    """
    if not stack:
        return OUTSIDE_OF_PHASES
    phase = _telling(stack)
    inside = stack[-1]
    if inside.kind in _COLLECTIVES and phase is not inside:
        return f"{phase.name}, in {inside.name}"
    return BETWEEN_PHASES if inside.kind == layout.STEP else inside.name


def _telling(stack: tuple[OpenSpan, ...]) -> OpenSpan:
    phases = [span for span in stack if span.kind not in (*_COLLECTIVES, layout.STEP)]
    return phases[-1] if phases else stack[-1]
