"""Rollout engines that are dead, may not run, or wait in turn for the rank that waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.description import in_phase, place_text, stack_item, title
from grpo_doctor.hang.causes.engine_output import output, stalled
from grpo_doctor.hang.causes.memory import oom_items, out_of_memory
from grpo_doctor.hang.model.process.call_stack import place_of
from grpo_doctor.hang.model.rollout_engine import RolloutEngine, awaits_server, engine_of, refusals
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item

_HEALTH = "curl -m 5 http://HOST:PORT/health"


def propose(case: Case) -> Iterator[Candidate]:
    """For each rank that waits for a rollout engine: what that does."""
    for actor in case.hosts:
        if actor.held or actor.motion.kind == "working":
            continue
        engine = engine_of(case.scene, case.graph, actor)
        if engine is not None and (engine.is_dead or not engine.again):
            yield _judged(case.scene, actor, engine)
        elif awaits_server(actor) and case.scene.patience.longest_gap_s is None:
            yield _not_up_yet(actor)
        elif refused := refusals(case.scene, actor):
            yield _unreachable(case.scene, actor, refused)


def _judged(scene: Scene, actor: Actor, engine: RolloutEngine) -> Candidate:
    if engine.is_dead:
        return _dead(scene, actor, engine)
    if engine.held:
        return _halted(actor, engine, engine.held[0])
    sender = _waits_for_trainer(actor, engine)
    if sender is not None:
        return _deadlocked(actor, engine, sender)
    return output(scene, actor, engine)


def _dead(scene: Scene, actor: Actor, engine: RolloutEngine) -> Candidate:
    core = next((part for part in engine.dead if part is not engine.parts[0]), None)
    node = core or (engine.dead or engine.parts)[0]
    says = "is dead" if engine.dead else "is running, but its core is dead"
    items = tuple(Item("proc", part.rank, f"{title(part)} has ended") for part in engine.dead)
    candidate = stalled(actor, engine, node, says, *items)
    oom = oom_items(scene, node) if engine.dead else ()
    if oom:
        reason = f"{candidate.reason}, killed because memory ran out"
        return replace(out_of_memory(candidate.culprits, (*items, *oom), reason), node=node.node)
    return replace(
        candidate,
        cause="rollout-engine-dead",
        sink=Sink.ENGINE,
        liveness="dead",
        still_s=scene.patience.waited_s if engine.again else candidate.still_s,
        fixes=(
            Fix("Restart the engine and find the first error in its own log."),
            Fix("If it ran out of memory, lower its memory share.", "vllm.gpu_memory_utilization"),
        ),
        confirm=(f"{_HEALTH}  # responds; then request one token",),
    )


def _halted(actor: Actor, engine: RolloutEngine, node: Actor) -> Candidate:
    """A process of it may not run."""
    item = Item("proc", node.rank, f"{title(node)} is {node.motion.kind}, the others wait for it")
    if node.motion.kind == "frozen":
        thaw = Fix("Thaw the control group; a paused container does this.")
        candidate = stalled(actor, engine, node, "is frozen by its control group", item)
        return replace(candidate, fixes=(thaw,), confirm=())
    candidate = stalled(actor, engine, node, "is stopped (SIGSTOP)", item)
    stopped = replace(candidate, liveness="never-wakes", fixes=())
    return stopped.continued(node.pid, "tokens must flow immediately")


def _waits_for_trainer(actor: Actor, engine: RolloutEngine) -> Actor | None:
    """Return a process of the engine that waits for this rank in a weight transfer or a collective.

    The rank does not join: all of its threads wait for the engine's answer.
    """
    if any(place_of(thread).communicates for thread in actor.python_threads):
        return None
    for part in reversed(engine.parts):
        takes = part.place.communicates or "weight-sync" in part.place.purposes
        if takes and not part.motion.progresses:
            return part
    return None


def _deadlocked(actor: Actor, engine: RolloutEngine, sender: Actor) -> Candidate:
    says = f"waits for the trainer, at {place_text(sender.place)}"
    return replace(
        stalled(actor, engine, sender, says, stack_item(sender)),
        cause="weight-sync-blocked",
        phase=actor.phase or "sync",
        fixes=(
            Fix(
                "Join the group, or start the transfer, before waiting for the engine's "
                "response: send that request from a thread, or wait for it after the "
                "collective."
            ),
            Fix("Check that both sides use the same address and world size."),
        ),
    )


def _not_up_yet(actor: Actor) -> Candidate:
    """Return the cause of a job without progress so far whose server may still load a model."""
    return Candidate(
        cause="",
        reason=f"waits{in_phase(actor)} for its server to start",
        evidence=(stack_item(actor),),
        sink=Sink.HELPER,
        liveness="progressing",
        confirm=(f"{_HEALTH}  # and read the server's own log",),
    ).of(actor)


def _unreachable(scene: Scene, actor: Actor, refused: tuple[Item, ...]) -> Candidate:
    """Return the cause of refused connections. Early in a job, the server may still start."""
    began = scene.patience.longest_gap_s is None
    candidate = Candidate(
        cause="rollout-engine-dead",
        reason="keeps retrying a rollout engine whose address refuses connections"
        f"{in_phase(actor)}",
        evidence=(*refused, stack_item(actor)),
        sink=Sink.HOLDER,
        liveness="computing" if began else "unseen",
        phase="rollout",
        fixes=(
            Fix("Start the engine's server, at the address that the trainer uses."),
            Fix("If it exited, find the first error at the end of its own log."),
        ),
        confirm=(f"{_HEALTH}  # from the rank's host",),
    )
    return replace(candidate.of(actor), still_s=scene.patience.waited_s)
