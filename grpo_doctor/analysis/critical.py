"""The critical path of a step: at each moment, the rank that everybody waits for.

Followed backwards from the end of the step's slowest rank: what that rank did since the last
collective at which it had waited, then what the rank that came last there did before, and so on
to the step's begin. Whatever is not on this path can be faster without the step being shorter.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from grpo_doctor.analysis.accounting import engine_waits
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor.trace.intervals import Intervals, Rows, holding, innermost
from grpo_doctor.trace.model import Kind

if TYPE_CHECKING:
    from grpo_doctor.analysis import Analysis

RANK, ENGINE = "rank", "engine"
WORK, TRANSFER, IDLE = "work", "transfer", "idle"
_OPEN = (Kind.SPAN, Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT)


class Segment(NamedTuple):
    """A stretch of the path: on which lane, of which rank (None: the engine's), doing what."""

    lane: str
    rank: int | None
    phase: str
    name: str
    kind: str
    start_ns: int
    end_ns: int


class Stretch(NamedTuple):
    """A stretch of one rank, by column."""

    column: int
    start_ns: int
    end_ns: int


def critical_path(analysis: Analysis, row: int) -> list[Segment]:
    """The path of one step, by its row, ascending and without holes; [] where no rank ended it.

    It begins with the first rank that began the step and ends with the last that ended it.
    """
    steps = analysis.steps
    columns = np.flatnonzero(steps.closed[row])
    if not len(columns):
        return []
    begin_ns = int(steps.start_ns[row, columns].min())
    ends = steps.end_ns[row, columns]
    last = int(columns[ends.argmax()])
    end_ns = int(ends.max())
    lane_of = cache(lambda column: _Lane.of(analysis, column, begin_ns, end_ns))
    segments: list[Segment] = []
    for stretch in hops(analysis, last, begin_ns, end_ns):
        segments += lane_of(stretch.column).segments(stretch)
    return joined(segments)


def joined(path: list[Segment]) -> list[Segment]:
    """Return the same path with neighbors joined that differ only in time."""
    segments: list[Segment] = []
    for segment in path:
        if segments and segments[-1][:5] == segment[:5]:
            segments[-1] = segments[-1]._replace(end_ns=segment.end_ns)
        else:
            segments.append(segment)
    return segments


def hops(analysis: Analysis, last: int, begin_ns: int, end_ns: int) -> list[Stretch]:
    """The ranks on the path in a window, ascending: from the rank `last`, which ends it, back."""
    waits = analysis.waits
    claims, came_ns = waits.claims, waits.arrivals.last_ns[waits.claims.collective]
    # Who left before the last one came (a broadcast's early receiver) did not wait for that one.
    chosen = (claims.end_ns > begin_ns) & (claims.end_ns <= end_ns) & (claims.end_ns == came_ns)
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((claims.end_ns[rows], claims.waiter[rows]))]
    waiter = claims.waiter[rows]
    path: list[Stretch] = []
    column, now_ns = last, end_ns
    for _ in range(len(rows) + 1):  # each wait is passed once at most
        first, beyond = np.searchsorted(waiter, [column, column + 1])
        mine = claims.end_ns[rows[first:beyond]]
        wait = int(np.searchsorted(mine, now_ns, side="right")) - 1
        # A wait that ends at this very moment in a step of no length would lead in circles.
        while wait >= 0 and path and mine[wait] == now_ns:
            wait -= 1
        if wait < 0:
            break
        claim = rows[first + wait]
        _extend(path, Stretch(column, int(claims.end_ns[claim]), now_ns))
        column, now_ns = int(claims.culprit[claim]), int(claims.end_ns[claim])
    _extend(path, Stretch(column, begin_ns, now_ns))
    return path[::-1]


def _extend(path: list[Stretch], stretch: Stretch) -> None:
    if stretch.end_ns > stretch.start_ns:
        path.append(stretch)


class _Lane(NamedTuple):
    """What one rank did within a window."""

    rank: int
    names: tuple[str, ...]
    pieces: Intervals  # by innermost span
    name: Rows
    track: Intervals
    phase: Rows
    transfers: Intervals
    engine: Intervals

    @classmethod
    def of(cls, analysis: Analysis, column: int, begin_ns: int, end_ns: int) -> _Lane:
        trace, main, track = analysis.trace, analysis.mains[column], analysis.tracks[column]
        spans = trace.spans
        rows = main.rows[np.isin(spans.kind[main.rows], _OPEN)]
        rows = rows[(spans.start_ns[rows] < end_ns) & (spans.end_ns[rows] > begin_ns)]
        pieces, owner = innermost(spans.start_ns[rows], spans.end_ns[rows])
        return cls(
            rank=analysis.ranks[column],
            names=trace.names,
            pieces=pieces,
            name=spans.name[rows][owner].astype(np.intp),
            track=track.pieces,
            phase=track.phase,
            transfers=analysis.waits.transfers[column],
            engine=engine_waits(trace, main),
        )

    def segments(self, stretch: Stretch) -> list[Segment]:
        """Return one stretch, cut where the rank began something else."""
        tracks = (self.pieces, self.track, self.transfers, self.engine)
        cuts = np.concatenate(
            [moments for track in tracks for moments in (track.start_ns, track.end_ns)]
        )
        inside = cuts[(cuts > stretch.start_ns) & (cuts < stretch.end_ns)]
        edges = np.unique(np.r_[stretch.start_ns, inside, stretch.end_ns])
        starts = edges[:-1]
        span_at, phase_at = holding(self.pieces, starts), holding(self.track, starts)
        transfer, engine = holding(self.transfers, starts) >= 0, holding(self.engine, starts) >= 0
        pieces: list[Segment] = []
        for row, (start_ns, end_ns) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist())):
            phase = PHASES[self.phase[phase_at[row]]] if phase_at[row] >= 0 else UNATTRIBUTED
            name = self.names[self.name[span_at[row]]] if span_at[row] >= 0 else phase
            if engine[row] and not transfer[row]:
                pieces.append(Segment(ENGINE, None, phase, name, WORK, start_ns, end_ns))
                continue
            kind = TRANSFER if transfer[row] else WORK if span_at[row] >= 0 else IDLE
            pieces.append(Segment(RANK, self.rank, phase, name, kind, start_ns, end_ns))
        return pieces
