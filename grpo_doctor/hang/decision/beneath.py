"""Work that no Python stack shows: threads of libraries, for which a main thread waits asleep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.wording import busy_class, in_phase
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Item


def told(scene: Scene, root: Candidate) -> Candidate:
    """The same root, or, where nothing proves it and such threads of a culprit use a core, as one
    that may well be at work.
    """
    ranks = [scene.by_rank[rank] for rank in root.culprits if rank in scene.by_rank]
    at_work = [one for one in ranks if one.motion.works_beneath]
    if root.cannot_move or not at_work:
        return root
    found = replace(root, liveness="computing", evidence=(*map(_item, at_work[:3]), *root.evidence))
    return _of_library(found, ranks) if all(map(_waits_within, ranks)) else found


def _waits_within(actor: Actor) -> bool:
    """Whether nothing but such threads can end its wait, as far as that was seen."""
    hold = actor.hold
    return actor.motion.works_beneath and (hold is None or hold.kind == "futex")


def _of_library(root: Candidate, ranks: Sequence[Actor]) -> Candidate:
    first = ranks[0]
    return replace(
        root,
        cause=busy_class(first),
        reason=f"waits{in_phase(first)} for threads of a library, which compute",
        whole="",
        fixes=(),
        confirm=(f"top -H -b -n 1 -p {first.pid}  # its threads, and how much each computes",),
    )


def _item(actor: Actor) -> Item:
    share = f"{actor.motion.native_share:.0%} of a core"
    return Item("proc", actor.rank, f"threads of libraries used {share} while its Python waited")
