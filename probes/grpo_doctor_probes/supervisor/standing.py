"""Where each rank stands: in which phase, since when, and whether it waits for other ranks.

Built from headers that are looked at twice a second, so a length is known to half a second; what
is shorter than that is never long enough to be suspicious.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_probes import layout
from grpo_doctor_probes.live import Header, OpenSpan
from grpo_doctor_probes.supervisor.lengths import Lengths

BETWEEN_PHASES = "between phases"
OUTSIDE_OF_PHASES = "outside of phases"
_COLLECTIVES = (layout.COLLECTIVE, layout.COLLECTIVE_WAIT)


@dataclass(frozen=True, slots=True)
class Standing:
    """A rank at one moment.

    Attributes:
        place: under which name its length is learned: a phase, `reward, in all_gather`, or one of
            the two names for what is in no phase.
        since_ns: CLOCK_MONOTONIC when it got there.
        first: none of that name has ended in this rank.
        waits: it is in a collective, that is, it may be waiting for another rank.
        begun_ns: CLOCK_MONOTONIC when its latest span began, which may have ended; 0 without any.
        seen_ns: CLOCK_MONOTONIC from when on it was looked at without a break: what was before is
            no part of its age.
    """

    rank: int
    pid: int
    place: str
    since_ns: int
    first: bool
    waits: bool = False
    begun_ns: int = 0
    seen_ns: int = 0

    @property
    def mark(self) -> tuple[int, int]:
        """What changes as soon as it moves on."""
        return self.since_ns, self.begun_ns

    def age_s(self, now_ns: int) -> float:
        """For how long it has been there, as far as that was seen."""
        return (now_ns - max(self.since_ns, self.seen_ns)) / 1e9


class Follower:
    """Follows one rank through its headers and teaches `lengths` what it sees."""

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths
        self._open: set[tuple[str, int]] = set()  # (place, since when)
        self._distrusted: set[tuple[str, int]] = set()
        self._named_ns: dict[str, int] = {}
        self._names_read = 0

    def follow(self, header: Header, now_ns: int) -> Standing:
        """Takes in the header of this rank as it was read at `now_ns`."""
        stack = carrying_stack(header)
        self._note_names(header.names, now_ns)
        place = place_of(stack)
        begun_ns = _latest_begin_ns(header)
        opened = {
            (place_of(stack[: level + 1]), span.start_ns)
            for level, span in enumerate(stack)
            if span.kind != layout.STEP
        }
        if place in (BETWEEN_PHASES, OUTSIDE_OF_PHASES):
            # The step's own begin is no help: phases of it have come and gone since.
            since_ns = next((since for name, since in self._open if name == place), now_ns)
            if begun_ns > since_ns:  # it was in a phase between two looks
                since_ns = now_ns
            opened = {(place, since_ns)}
            first = not self._lengths.knows(place)
        else:
            since_ns = stack[-1].start_ns
            # The table had the name before this span began: an earlier one of that name has ended.
            first = self._named_ns.get(_telling(stack).name, now_ns) >= _telling(stack).start_ns
        self._learn_ended(opened, now_ns)
        waits = bool(stack) and stack[-1].kind in _COLLECTIVES
        return Standing(header.rank, header.pid, place, since_ns, first, waits, begun_ns)

    def distrust(self) -> None:
        """What is open now was found to be stuck: how long it takes in the end is no example."""
        self._distrusted = set(self._open)

    def _note_names(self, names: tuple[str, ...], now_ns: int) -> None:
        for text in names[self._names_read :]:
            self._named_ns.setdefault(text.partition(layout.ARGS_SEPARATOR)[0], now_ns)
        self._names_read = len(names)

    def _learn_ended(self, opened: set[tuple[str, int]], now_ns: int) -> None:
        ended, self._open = self._open - opened, opened
        for name, start_ns in ended - self._distrusted:
            self._lengths.learn(name, (now_ns - start_ns) / 1e9)
        self._distrusted &= opened


def carrying_stack(header: Header) -> tuple[OpenSpan, ...]:
    """The open spans, outermost first, of the thread that carries the steps."""
    thread = _carrying_thread(header)
    return tuple(span for span in header.open_spans if span.thread == thread)


def _carrying_thread(header: Header) -> int:
    return next((s.thread for s in header.open_spans if s.kind == layout.STEP), 0)


def _latest_begin_ns(header: Header) -> int:
    thread = _carrying_thread(header)
    return header.begun_ns[thread] if thread < len(header.begun_ns) else 0


def place_of(stack: tuple[OpenSpan, ...]) -> str:
    """What a stack of open spans is called.

    The same collective takes as long as the slowest rank takes for what comes before it, so it is
    told apart by its phase: `reward, in all_gather`.
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
