"""Which ranks the recordings point at, and on what grounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from grpo_doctor.hang.model.matching.camps import sides
from grpo_doctor.hang.model.matching.devices import not_begun
from grpo_doctor.hang.model.matching.graph import DIRECTED, Node
from grpo_doctor.hang.model.matching.meetings import Meeting
from grpo_doctor.hang.model.matching.model import (
    STRENGTH,
    Blame,
    Camp,
    Grounds,
    Reason,
    Shift,
    Wait,
)
from grpo_doctor.hang.model.matching.rings import of_ring
from grpo_doctor.hang.model.matching.scene import Scene
from grpo_doctor.hang.model.matching.steps import left_out, novel
from grpo_doctor.hang.model.matching.words import ranks_text

FEW = 0.25  # of a group, or fewer: they may have come by mistake


def blame(scene: Scene) -> tuple[Blame, ...]:
    """One blame per rank, the strongest grounds first.

    Every sink of the waits has its own: a host with nothing left to do, an operation that all have
    joined, or a ring. A rank without a dump is named only where no other rank explains anything.
    """
    blames = list(scene.hung)
    blames += _mistaken(scene)
    mistaken = {(blamed.rank, blamed.group) for blamed in blames if blamed.reason == "extra"}
    explained: set[str] = set()
    for sink in scene.waiting.sinks:
        blames += _of_sink(scene, sink, explained, mistaken)
    if all(blamed.grounds == "unrecorded" for blamed in blames):
        blames += _of_heads(scene)
    if any(blamed.grounds != "unrecorded" for blamed in blames):
        blames = [blamed for blamed in blames if blamed.grounds != "unrecorded"]
    strongest: dict[int, Blame] = {}
    for candidate in sorted(blames, key=_order):
        strongest.setdefault(candidate.rank, candidate)
    return tuple(sorted(strongest.values(), key=_order))


def _order(blamed: Blame) -> tuple[int, int, str, str, int]:
    return (
        STRENGTH.index(blamed.grounds),
        blamed.rank,
        blamed.reason,
        blamed.group,
        blamed.sequence or 0,
    )


def _of_sink(
    scene: Scene,
    sink: frozenset[Node],
    explained: set[str],
    mistaken: Collection[tuple[int, str]],
) -> Iterator[Blame]:
    meetings = sorted(
        (node for node in sink if isinstance(node, Meeting)), key=lambda m: (m.group, m.number)
    )
    hosts = [node for node in sink if isinstance(node, int)]
    behind = [w for w in scene.waits if w.why in DIRECTED and not set(hosts).isdisjoint(w.on)]
    groups = {meeting.group for meeting in meetings} or {wait.group for wait in behind}
    shifted = [shift for shift in scene.shifts if shift.group in groups]
    if shifted:
        yield from _of_shifts((shift for shift in shifted if shift.group not in explained), scene)
        explained |= groups
    elif not meetings and hosts:
        if unexplained := [w for w in behind if (w.rank, w.group) not in mistaken]:
            yield _of_host(scene, hosts[0], unexplained)
    elif meetings and (
        wrong := [differing for meeting in meetings for differing in _of_camps(scene, meeting)]
    ):
        yield from wrong
    elif len(sink) > 1:
        yield from of_ring(scene, sink)
    elif meetings:
        yield from not_begun(scene, meetings[0])


def _of_shifts(shifts: Iterable[Shift], scene: Scene) -> Iterator[Blame]:
    """A rank that is some collectives ahead of, or behind, its count."""
    for shift in shifts:
        did = "issued" if shift.kind == "extra" else "skipped"
        extra = " that the others did not" if shift.kind == "extra" else " that the others issued"
        also = f" and {shift.count - 1} more" if shift.count > 1 else ""
        where = f" at {shift.site}" if shift.site else ""
        text = (
            f"Rank {shift.rank} {did} {shift.operation}{where}{also}{extra}, as number "
            f"{shift.first} of the {scene.title(shift.group)}; everything after it is shifted."
        )
        yield Blame(shift.rank, "shown", shift.kind, text, shift.group, shift.first)


def _of_camps(scene: Scene, meeting: Meeting) -> Iterator[Blame]:
    """Ranks that called something else than most."""
    camps, even = sides(scene, meeting)
    if len(camps) < 2:
        return
    right = camps[0]
    for camp in camps:
        tied = even and len(camp.ranks) == len(right.ranks)
        if camp is right and not tied:
            continue
        other = right if camp is not right else camps[1]
        for rank in camp.ranks:
            text = _differs(rank, camp, other, meeting, scene)
            grounds: Grounds = "either" if tied else "outnumbered"
            reason = _difference(camp, other)
            yield Blame(rank, grounds, reason, text, meeting.group, meeting.number)


def _of_heads(scene: Scene) -> Iterator[Blame]:
    """Where the waits end at ranks of which nothing is known: an operation to which ranks came with
    different calls never ends, whichever other ranks are missing.
    """
    meetings = {
        meeting for unit in scene.waiting.heads for meeting in scene.waiting.meetings.of(unit)
    }
    for meeting in sorted(meetings, key=lambda met: (met.group, met.number)):
        yield from _of_camps(scene, meeting)


def _difference(camp: Camp, other: Camp) -> Reason:
    if camp.signature.op != other.signature.op:
        return "other-op"
    same_sizes = camp.signature.sizes == other.signature.sizes
    same_types = camp.signature.dtypes == other.signature.dtypes
    return "other-type" if same_sizes and not same_types else "other-size"


def _differs(rank: int, camp: Camp, other: Camp, meeting: Meeting, scene: Scene) -> str:
    mine, theirs = camp.signature, other.signature
    own_site = f" at {mine.site}" if mine.site else ""
    their_site = f" at {theirs.site}" if theirs.site else ""
    text = (
        f"Rank {rank} called {mine.text()}{own_site} as number {meeting.number} of the "
        f"{scene.title(meeting.group)}, where {ranks_text(other.ranks)} called "
        f"{theirs.text()}{their_site}"
    )
    before = scene.pasts[meeting.group].expected(meeting.number)
    usual = "" if before is None else scene.signatures.text(scene.signatures.key(before))
    return f"{text}, as in earlier rounds." if usual == theirs.text() != mine.text() else f"{text}."


def _mistaken(scene: Scene) -> Iterator[Blame]:
    """Yield ranks almost alone in a collective: a call under `if rank == 0:` looks like this, and
    so do ranks that are a round ahead after one. Members without a recording are unknown.
    """
    came: dict[tuple[str, int], list[Wait]] = defaultdict(list)
    for wait in scene.waits:
        if wait.why == "missing":
            came[wait.group, wait.sequence].append(wait)
    for (key, sequence), waiting in sorted(came.items()):
        members = scene.gathered[key].group.members
        recorded = scene.heard.intersection(members)
        if len(recorded) < 4 or len(waiting) > FEW * len(recorded):
            continue
        if any(len(wait.on) + len(waiting) < len(members) for wait in waiting):
            continue  # some are already through, or have called it
        before = {
            wait.rank
            for wait in scene.waits
            if (wait.group, wait.why) == (key, "joined") and wait.sequence < sequence
        }
        if all(before.issuperset(wait.on) for wait in waiting):
            continue  # the root of a broadcast, for one, is through it before its receivers are
        usual = scene.pasts[key].expected(sequence)
        for wait in waiting:
            mine = scene.pasts[key].calls.get(sequence, {}).get(wait.rank)
            if mine is None:
                continue
            ahead = usual == mine
            text = (
                f"Rank {wait.rank} called "
                f"{wait.operation}{f' at {wait.site}' if wait.site else ''} of the "
                f"{scene.title(key)}, which {ranks_text(recorded.intersection(wait.on))} did "
                f"not{': it is one ahead' if ahead else ', unlike in earlier rounds'}."
            )
            grounds: Grounds = "unlike-before" if novel(scene, wait) else "either"
            yield Blame(wait.rank, grounds, "extra", text, key, sequence)


def _telling(scene: Scene, rank: int, behind: Sequence[Wait]) -> Sequence[Wait]:
    """The waits that say what the rank did not do. Who has stopped before a collective has not come
    to the sends after it either: those count where it went past them, or nothing else waits.
    """
    transfers = [wait for wait in behind if wait.why == "p2p"]
    if not transfers or len(transfers) == len(behind):
        return behind
    latest = scene.latest(rank)
    passed = [wait for wait in transfers if latest and left_out(scene, rank, *latest, wait)]
    return passed or [wait for wait in behind if wait.why != "p2p"]


def _of_host(scene: Scene, rank: int, behind: Sequence[Wait]) -> Blame:
    behind = _telling(scene, rank, behind)
    # The wait that began first is nearest to where the rank stands: the others came of it.
    first = min(behind, key=lambda w: (w.since_ns or float("inf"), w.group, w.sequence))
    same = sorted({w.rank for w in behind if (w.group, w.why) == (first.group, first.why)})
    waiters = f"{ranks_text(same)} {'wait' if len(same) > 1 else 'waits'}"
    title, number = scene.title(first.group), first.sequence
    if rank not in scene.heard:
        text = f"There is no recording of rank {rank}, and {waiters} for it in {first.operation}."
        return Blame(rank, "unrecorded", "not-recorded", text, first.group, number)
    if first.why == "p2p":
        reason: Reason = "not-sent" if first.operation.startswith("receive") else "not-received"
        verb = "send to" if reason == "not-sent" else "receive from"
        text = f"Rank {rank} did not {verb} rank {first.rank}, which waits for it ({title})."
        return Blame(rank, "awaited", reason, text, first.group, number)
    text = (
        f"Rank {rank} has not reached {first.operation}, number {number} of the {title}, in which "
        f"{waiters} for it."
    )
    return Blame(rank, "awaited", "not-arrived", text, first.group, number)
