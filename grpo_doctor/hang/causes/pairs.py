"""Sends and receives without a partner. gloo does not record them, so their stacks must tell."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.groups import Mistake, deadlock
from grpo_doctor.hang.causes.wording import still_item
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting.waits import partner_of


def propose(case: Case) -> Iterator[Candidate]:
    """A rank in send or recv whose partner stands in another call (gloo does not record these)."""
    scene = case.scene
    alone: list[tuple[Actor, Actor | None]] = []
    for actor in scene.by_rank.values():
        if actor.held or actor.place.call != "p2p":
            continue
        peer = scene.by_rank.get(rank) if (rank := partner_of(scene, actor)) is not None else None
        if peer is not None and (
            not peer.waits or (peer.place.call == "p2p" and _answers(scene, peer, actor))
        ):
            continue
        if case.waits_for_work(actor) or (peer is None and (case.suspects or scene.elsewhere)):
            continue  # whoever is elsewhere may be the partner
        alone.append((actor, peer))
    for actor, peer in alone:
        if actor.rank is None:
            continue
        partner = f" with rank {peer.rank}" if peer is not None else ""
        where = f", which is in {peer.place.operation}" if peer is not None else ""
        yield deadlock(
            scene,
            Mistake(
                "p2p-unmatched", (actor.rank,), f"waits in {actor.place.operation}{partner}{where}"
            ),
            [still_item(actor)],
            Sink.UNPAIRED,
        )


def _answers(scene: Scene, peer: Actor, actor: Actor) -> bool:
    """Whether one of the two sends to the other what that receives."""
    return partner_of(scene, peer) == actor.rank and _receives(peer) != _receives(actor)


def _receives(actor: Actor) -> bool:
    return "recv" in actor.place.operation
