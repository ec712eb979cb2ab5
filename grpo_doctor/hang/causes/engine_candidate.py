"""What candidates share that say of a rank that it waits for its rollout engine."""

from __future__ import annotations

from grpo_doctor.hang.causes.candidate import Candidate, Sink
from grpo_doctor.hang.causes.wording import in_phase, named, stack_item
from grpo_doctor.hang.model.rollout_engine import RolloutEngine
from grpo_doctor.hang.model.scene import Actor
from grpo_doctor.hang.verdict import Fix, Item

PATIENT = Fix("Give the client's requests a timeout, so that the trainer fails and says why.")


def stalled(actor: Actor, engine: RolloutEngine, node: Actor, says: str, *items: Item) -> Candidate:
    """The engine cannot get on, because of its process `node`, of which `says` tells."""
    metrics = (Item("metrics", actor.rank, engine.counted.text()),) if engine.counted else ()
    return Candidate(
        cause="rollout-engine-stalled",
        culprits=(actor.rank,) if actor.rank is not None else (),
        reason=f"waits{in_phase(actor)} for its rollout engine: {named(node)} {says}",
        evidence=(*items, *metrics, *engine.told, stack_item(actor)),
        sink=Sink.ENGINE,
        liveness="never-wakes",
        phase=actor.phase or "rollout",
        node=node.node,
        still_s=actor.motion.still_s,
        fixes=(PATIENT,),
        confirm=(f"py-spy dump --pid {node.pid}",),
    )


def shares(engine: RolloutEngine) -> tuple[Item, ...]:
    """How much of a core its processes used between the looks."""
    return tuple(
        Item("proc", one.rank, f"{named(one)} used {one.motion.cpu_share:.0%} of a core")
        for one in engine.parts[:3]
    )


def stacks(engine: RolloutEngine) -> tuple[Item, ...]:
    """Where those stand that compute."""
    return tuple(stack_item(one) for one in engine.parts[1:3] if one.place.frames)
