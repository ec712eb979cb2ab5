"""Which ranks the recordings point at, and how strongly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from grpo_doctor.hang.matching.knots import of_cycles
from grpo_doctor.hang.matching.model import Camp, Shift, Standing
from grpo_doctor.hang.matching.roots import of_waits
from grpo_doctor.hang.matching.ruling import Blame, Reason
from grpo_doctor.hang.matching.scene import Scene
from grpo_doctor.hang.matching.words import ranks_text

SURE = 0.9
EITHER = 0.5  # as likely as the other side


def blame(scene: Scene) -> tuple[Blame, ...]:
    """One blame per rank, heaviest first.

    What a rank did wrong weighs more than where it is missing: ranks that wait behind a mismatch, a
    shift or a ring are its victims, and are not looked at again.
    """
    found = [*of_shifts(scene.shifts, scene), *of_mismatches(scene)]
    found += of_cycles(scene, {one.rank for one in found})
    found += of_waits(scene, found)
    heaviest: dict[int, Blame] = {}
    for one in sorted(found, key=_order):
        heaviest.setdefault(one.rank, one)
    return tuple(sorted(heaviest.values(), key=_order))


def _order(one: Blame) -> tuple[float, int, str]:
    return -one.weight, one.rank, one.group


def of_shifts(shifts: Iterable[Shift], scene: Scene) -> Iterator[Blame]:
    """A rank that is some collectives ahead of, or behind, its count."""
    for shift in shifts:
        did = "issued" if shift.kind == "extra" else "left out"
        extra = " that the others did not" if shift.kind == "extra" else " that the others issued"
        also = f" and {shift.count - 1} more" if shift.count > 1 else ""
        where = f" at {shift.site}" if shift.site else ""
        text = (
            f"Rank {shift.rank} {did} {shift.operation}{where}{also}{extra}, as number "
            f"{shift.first} of the {scene.title(shift.group)}; everything after it is shifted."
        )
        yield Blame(shift.rank, SURE, shift.kind, text, shift.group, shift.first)


def of_mismatches(scene: Scene) -> Iterator[Blame]:
    """Ranks that called something else than most."""
    shifted = {shift.group for shift in scene.shifts}
    for one in scene.standings:
        if one.kind == "mismatch" and one.group.key not in shifted:
            yield from _of_camps(one, scene)


def _of_camps(one: Standing, scene: Scene) -> Iterator[Blame]:
    right = one.camps[0]
    largest = len(right.ranks)
    came = sum(len(camp.ranks) for camp in one.camps)
    for camp in one.camps:
        tied = one.even and len(camp.ranks) == largest
        if camp is right and not tied:
            continue
        other = right if camp is not right else one.camps[1]
        weight = EITHER if tied else 0.55 + 0.4 * largest / came
        for rank in camp.ranks:
            text = _differs(rank, camp, other, one, scene)
            yield Blame(rank, weight, _difference(camp, other), text, one.group.key, one.front)


def _difference(camp: Camp, other: Camp) -> Reason:
    if camp.signature.op != other.signature.op:
        return "other-op"
    same_sizes = camp.signature.sizes == other.signature.sizes
    same_types = camp.signature.dtypes == other.signature.dtypes
    return "other-type" if same_sizes and not same_types else "other-size"


def _differs(rank: int, camp: Camp, other: Camp, one: Standing, scene: Scene) -> str:
    mine, theirs = camp.signature, other.signature
    where = f" at {mine.site}" if mine.site else ""
    others = f" at {theirs.site}" if theirs.site else ""
    text = (
        f"Rank {rank} called {mine.text()}{where} as number {one.front} of the "
        f"{scene.title(one.group.key)}, where {ranks_text(other.ranks)} called "
        f"{theirs.text()}{others}"
    )
    if one.expected == theirs.text() != mine.text():
        return f"{text}, as in earlier rounds."
    return f"{text}."
