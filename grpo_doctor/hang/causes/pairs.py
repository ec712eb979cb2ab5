"""Sends and receives without a partner. gloo does not record them, so their stacks must tell."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import GROUPS, Candidate, Case
from grpo_doctor.hang.causes.groups import deadlock
from grpo_doctor.hang.causes.wording import still_item
from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.waits import peer_of


def propose(case: Case) -> Iterator[Candidate]:
    """A rank in send or recv whose partner stands in another call (gloo does not record these)."""
    scene = case.scene
    alone: list[tuple[Actor, Actor | None]] = []
    for actor in scene.by_rank.values():
        if actor.held or actor.place.call != "p2p":
            continue
        peer = scene.by_rank.get(rank) if (rank := peer_of(scene, actor)) is not None else None
        if peer is not None and (
            not peer.waits or (peer.place.call == "p2p" and _answers(scene, peer, actor))
        ):
            continue
        if _waits_for_work(case, actor) or (peer is None and (case.suspects or scene.elsewhere)):
            continue  # whoever is elsewhere may be the partner
        alone.append((actor, peer))
    for actor, peer in alone:
        if actor.rank is None:
            continue
        partner = f" with rank {peer.rank}" if peer is not None else ""
        where = f", which is in {peer.place.operation}" if peer is not None else ""
        yield deadlock(
            scene,
            "p2p-unmatched",
            (actor.rank,),
            f"waits in {actor.place.operation}{partner}{where}",
            [still_item(actor)],
            precise=GROUPS + 2,
            strength=0.9 if peer is not None else 0.7,
        )


def _waits_for_work(case: Case, actor: Actor) -> bool:
    """Whether its chain of waits, as in a pipeline, ends at a rank that may be at work."""
    ends = {one.node for one in case.suspects} | {f"rank:{one}" for one in case.scene.elsewhere}
    return not ends.isdisjoint(case.graph.reach.get(actor.node, ()))


def _answers(scene: Scene, peer: Actor, actor: Actor) -> bool:
    return peer_of(scene, peer) == actor.rank and peer.place.operation != actor.place.operation
