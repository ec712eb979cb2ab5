"""Members of a collective by what they called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from grpo_doctor.hang.model.matching.meetings import Meeting
from grpo_doctor.hang.model.matching.model import Camp
from grpo_doctor.hang.model.matching.scene import Scene
from grpo_doctor.hang.model.matching.signatures import balanced, is_root
from grpo_doctor.hang.model.matching.tracks import Track


def sides(scene: Scene, meeting: Meeting) -> tuple[tuple[Camp, ...], bool]:
    """Who called what in an operation, the side taken as right first, and whether which side is
    right is open.
    """
    if meeting.ends is not None:
        return (), False
    if meeting not in scene.camps:
        camps, even = _camps_of(scene, meeting.group, meeting.number)
        scene.camps[meeting] = _by_step(scene, meeting, camps) if even else (camps, even)
    return scene.camps[meeting]


def _by_step(
    scene: Scene, meeting: Meeting, camps: tuple[Camp, ...]
) -> tuple[tuple[Camp, ...], bool]:
    """Return the camps, those in step as one, which is right; unchanged if steps show nothing."""
    ranks = {rank for camp in camps for rank in camp.ranks}
    right = {rank for rank in ranks if not scene.is_off(rank, meeting.group)}
    if not right or right == ranks:
        return camps, True
    wrong = [camp for camp in camps if right.isdisjoint(camp.ranks)]
    first = next(camp for camp in camps if not right.isdisjoint(camp.ranks))
    in_step = ranks.difference(*(camp.ranks for camp in wrong))
    return (Camp(first.signature, tuple(sorted(in_step))), *wrong), not wrong


def _camps_of(scene: Scene, group: str, front: int) -> tuple[tuple[Camp, ...], bool]:
    """Those who came, by what they called: the one taken as right first, and whether that choice
    is arbitrary. More ranks are right; of equally many, those who do what groups of the same kind
    do there, or what earlier rounds did.
    """
    gathered, past, signatures = scene.gathered[group], scene.pasts[group], scene.signatures
    tracks, sibling = gathered.tracks, scene.families.usual(group, front)
    by_key: dict[int, list[int]] = defaultdict(list)
    for rank, call in past.calls.get(front, {}).items():
        by_key[signatures.key(call)].append(rank)
    before = past.expected(front)
    expected = before if before is None else signatures.key(before)
    if sibling in by_key:
        expected = sibling
    order = sorted(by_key, key=lambda k: (-len(by_key[k]), k != expected, min(by_key[k])))
    calls = {rank: tracks[rank].calls[front] for ranks in by_key.values() for rank in ranks}
    camps = [
        Camp(signatures.signature(calls[min(by_key[key])]), tuple(sorted(by_key[key])))
        for key in order
    ]
    roots = [rank for rank, parts in sorted(calls.items()) if is_root(parts[0])]
    if len(camps) == 1 and len(roots) > 1:
        return _rivals(roots, front, tracks, camps[0])
    everyone = len(calls) == len(gathered.group.members)
    if len(camps) == 1 and everyone and not balanced(list(calls.values())):
        return tuple(Camp(camps[0].signature, (rank,)) for rank in sorted(calls)), True
    tied = len(order) > 1 and len(by_key[order[0]]) == len(by_key[order[1]])
    return tuple(camps), tied and order[0] != expected


def _rivals(
    roots: Sequence[int], front: int, tracks: Mapping[int, Track], camp: Camp
) -> tuple[tuple[Camp, ...], bool]:
    """Members that each take themselves for the one root. Who was it in earlier rounds is right."""
    before = {
        rank
        for rank in roots
        for number, parts in tracks[rank].calls.items()
        if number < front and parts[0].op == camp.signature.op and is_root(parts[0])
    }
    order = sorted(roots, key=lambda rank: (rank not in before, rank))
    word = "to" if camp.signature.op == "gather" else "from"
    return tuple(
        Camp(replace(camp.signature, op=f"{camp.signature.op} {word} rank {rank}"), (rank,))
        for rank in order
    ), len(before) != 1
