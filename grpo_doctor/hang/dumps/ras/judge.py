"""Whom the answers of NCCL's RAS point at. Pure.

Counts are of launches, by the processes, not of what the GPUs have done; they are taken at slightly
different moments. So only who has not launched, in the last sample, what the others had launched in
the first, is behind. Where all have launched the same the hang is in the collective itself: that
is not seen here, and no rank is blamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from grpo_doctor.hang.dumps.ras.answers import (
    ERRORS,
    IN_PROGRESS,
    SUCCESS,
    CommRank,
    Communicator,
    Lost,
    Mesh,
    RasProcess,
    RasReport,
)

LEAST_NS = 500_000_000  # between two answers that are compared


class LateRank(msgspec.Struct, frozen=True):
    """A rank that has launched fewer of `operation` than most; or more (`ahead`), and they wait.

    `rank` is None for a process that is no rank of the job as far as is known. `instead`: what it
    has launched more of than most.
    """

    rank: int | None
    process: RasProcess
    operation: str
    launched: int
    others: int
    size: int
    ahead: bool = False
    instead: str = ""


class Failure(msgspec.Struct, frozen=True):
    """A rank that NCCL lost (`dead`, `unresponsive`), or that reported an error (`error`)."""

    rank: int | None
    process: RasProcess
    what: str
    error: int = SUCCESS


class Findings(msgspec.Struct, frozen=True):
    """`even`: every communicator was heard twice, and all its ranks have launched the same."""

    laggards: tuple[LateRank, ...] = ()
    failures: tuple[Failure, ...] = ()
    even: bool = False


def judge_ras(report: RasReport) -> Findings:
    """Return all that two rounds of answers show; one round shows failures alone."""
    pairs = tuple(_pairs(report.meshes))
    laggards = [lag for before, after in pairs for lag in _laggards(report, before, after)]
    return Findings(
        laggards=_bottom(pairs, laggards),
        failures=tuple(dict.fromkeys(_failures(report))),
        even=bool(pairs) and not laggards and not any(after.lost for _, after in pairs),
    )


def _pairs(meshes: tuple[Mesh, ...]) -> Iterator[tuple[Communicator, Communicator]]:
    """Yield each communicator in its first and its last sample."""
    first: dict[str, tuple[int, Communicator]] = {}
    last: dict[str, tuple[int, Communicator]] = {}
    for mesh in meshes:
        for communicator in mesh.communicators:
            first.setdefault(communicator.key, (mesh.at_ns, communicator))
            last[communicator.key] = (mesh.at_ns, communicator)
    for key, (at_ns, communicator) in sorted(last.items()):
        if at_ns - first[key][0] >= LEAST_NS:
            yield first[key][1], communicator


def _laggards(report: RasReport, before: Communicator, after: Communicator) -> Iterator[LateRank]:
    earlier = {seat.number: seat for seat in before.seats}
    for operation in sorted({name for seat in after.seats for name in seat.counts}):
        usual = _usual(after, operation)
        if usual is None or usual != _usual(before, operation):
            continue  # they get on
        for seat in after.seats:
            then = earlier.get(seat.number)
            count = seat.counts.get(operation, usual)
            same = then is not None and then.counts.get(operation, usual) == count
            if count == usual or not same or seat.leaves or seat.init_state != SUCCESS:
                continue
            yield LateRank(
                report.rank(after.key, seat.number, seat.process),
                seat.process,
                operation,
                count,
                usual,
                after.size,
                ahead=count > usual,
                instead=_instead(after, seat, operation) if count < usual else "",
            )


def _usual(communicator: Communicator, operation: str) -> int | None:
    """How many of an operation most ranks have launched; None without a majority.

    Of two ranks, or two halves, it is the larger count: who has launched less is waited for.
    """
    counts = Counter(
        seat.counts[operation] for seat in communicator.seats if operation in seat.counts
    )
    unlisted = communicator.size - len(communicator.seats) - len(communicator.lost)
    if unlisted > 0:
        if communicator.usual is None or operation not in communicator.usual:
            return None
        counts[communicator.usual[operation]] += unlisted
    largest = max(counts.values(), default=0)
    return max((count for count, ranks in counts.items() if ranks == largest), default=None)


def _instead(communicator: Communicator, seat: CommRank, operation: str) -> str:
    """Another operation of which it has launched more than most."""
    more = (
        name
        for name, count in sorted(seat.counts.items())
        if name != operation and (usual := _usual(communicator, name)) is not None and count > usual
    )
    return next(more, "")


def _bottom(
    pairs: tuple[tuple[Communicator, Communicator], ...], laggards: list[LateRank]
) -> tuple[LateRank, ...]:
    """Drop those who are behind because they wait for another such rank in another communicator.

    In a ring of communicators no process is left to blame.
    """
    behind = {lag.process for lag in laggards if not lag.ahead}
    waiting: set[RasProcess] = set()
    for _, after in pairs:
        late = {seat.process for seat in after.seats} & {
            lag.process for lag in laggards if not lag.ahead and _is_in(after, lag)
        }
        if late:
            waiting |= {seat.process for seat in after.seats} & behind - late
    chosen = [lag for lag in laggards if lag.ahead or lag.process not in waiting]
    below = [lag for lag in chosen if not lag.ahead]
    return tuple(dict.fromkeys(below or [] if behind else chosen))


def _is_in(communicator: Communicator, lag: LateRank) -> bool:
    """Return whether it is in this communicator that the rank is behind."""
    for seat in communicator.seats:
        if seat.process == lag.process:
            usual = _usual(communicator, lag.operation)
            return usual is not None and seat.counts.get(lag.operation, usual) < usual
    return False


def _failures(report: RasReport) -> Iterator[Failure]:
    if not report.meshes:
        return
    lost = [_lost(mesh) for mesh in report.meshes]
    for key, missing in lost[-1].items():
        rank = report.rank(key[0], missing.number, missing.process)
        if missing.dead:
            yield Failure(rank, missing.process, "dead")
        elif missing.unresponsive and sum(key in members for members in lost) > 1:
            yield Failure(rank, missing.process, "unresponsive")
    for comm in (item for mesh in report.meshes for item in mesh.communicators):
        for seat in comm.seats:
            rank = report.rank(comm.key, seat.number, seat.process)
            for error in (seat.async_error, seat.init_state):
                if error not in (SUCCESS, IN_PROGRESS):
                    text = ERRORS.get(error, f"error {error}")
                    yield Failure(rank, seat.process, text, error)


def _lost(mesh: Mesh) -> dict[tuple[str, int], Lost]:
    return {
        (communicator.key, lost.number): lost
        for communicator in mesh.communicators
        for lost in communicator.lost
    }
