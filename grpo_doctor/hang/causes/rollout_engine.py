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
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.verdict import Fix, Item

_HEALTH = "curl -m 5 http://HOST:PORT/health"


def propose(case: Case) -> Iterator[Candidate]:
    """For each rank that waits for a rollout engine: what that does."""
    for proc in case.hosts:
        if proc.cannot_run or proc.activity.kind == "working":
            continue
        engine = engine_of(case.view, case.graph, proc)
        if engine is not None and (engine.is_dead or not engine.again):
            yield _judged(case.view, proc, engine)
        elif awaits_server(proc) and case.view.wait_history.longest_gap_s is None:
            yield _not_up_yet(proc)
        elif refused := refusals(case.view, proc):
            yield _unreachable(case.view, proc, refused)


def _judged(view: JobView, proc: Process, engine: RolloutEngine) -> Candidate:
    if engine.is_dead:
        return _dead(view, proc, engine)
    if engine.cannot_run:
        return _halted(proc, engine, engine.cannot_run[0])
    sender = _waits_for_trainer(proc, engine)
    if sender is not None:
        return _deadlocked(proc, engine, sender)
    return output(view, proc, engine)


def _dead(view: JobView, proc: Process, engine: RolloutEngine) -> Candidate:
    core = next((part for part in engine.dead if part is not engine.parts[0]), None)
    node = core or (engine.dead or engine.parts)[0]
    says = "is dead" if engine.dead else "is running, but its core is dead"
    items = tuple(Item("proc", part.rank, f"{title(part)} has ended") for part in engine.dead)
    candidate = stalled(proc, engine, node, says, *items)
    oom = oom_items(view, node) if engine.dead else ()
    if oom:
        reason = f"{candidate.reason}, killed because memory ran out"
        return replace(out_of_memory(candidate.culprits, (*items, *oom), reason), node=node.node)
    return replace(
        candidate,
        cause="rollout-engine-dead",
        sink=Sink.ENGINE,
        liveness="dead",
        still_s=view.wait_history.waited_s if engine.again else candidate.still_s,
        fixes=(
            Fix("Restart the engine and find the first error in its own log."),
            Fix("If it ran out of memory, lower its memory share.", "vllm.gpu_memory_utilization"),
        ),
        confirm=(f"{_HEALTH}  # responds; then request one token",),
    )


def _halted(proc: Process, engine: RolloutEngine, node: Process) -> Candidate:
    """A process of it may not run."""
    item = Item("proc", node.rank, f"{title(node)} is {node.activity.kind}, the others wait for it")
    if node.activity.kind == "frozen":
        thaw = Fix("Thaw the control group; a paused container does this.")
        candidate = stalled(proc, engine, node, "is frozen by its control group", item)
        return replace(candidate, fixes=(thaw,), confirm=())
    candidate = stalled(proc, engine, node, "is stopped (SIGSTOP)", item)
    stopped = replace(candidate, liveness="never-wakes", fixes=())
    return stopped.continued(node.pid, "tokens must flow immediately")


def _waits_for_trainer(proc: Process, engine: RolloutEngine) -> Process | None:
    """Return a process of the engine that waits for this rank in a weight transfer or a collective.

    The rank does not join: all of its threads wait for the engine's answer.
    """
    if any(place_of(thread).communicates for thread in proc.python_threads):
        return None
    for part in reversed(engine.parts):
        takes = part.place.communicates or "weight-sync" in part.place.purposes
        if takes and not part.activity.progresses:
            return part
    return None


def _deadlocked(proc: Process, engine: RolloutEngine, sender: Process) -> Candidate:
    says = f"waits for the trainer, at {place_text(sender.place)}"
    return replace(
        stalled(proc, engine, sender, says, stack_item(sender)),
        cause="weight-sync-blocked",
        phase=proc.phase or "sync",
        fixes=(
            Fix(
                "Join the group, or start the transfer, before waiting for the engine's "
                "response: send that request from a thread, or wait for it after the "
                "collective."
            ),
            Fix("Check that both sides use the same address and world size."),
        ),
    )


def _not_up_yet(proc: Process) -> Candidate:
    """Return the cause of a job without progress so far whose server may still load a model."""
    return Candidate(
        cause="",
        reason=f"waits{in_phase(proc)} for its server to start",
        evidence=(stack_item(proc),),
        sink=Sink.HELPER,
        liveness="progressing",
        confirm=(f"{_HEALTH}  # and read the server's own log",),
    ).of(proc)


def _unreachable(view: JobView, proc: Process, refused: tuple[Item, ...]) -> Candidate:
    """Return the cause of refused connections. Early in a job, the server may still start."""
    began = view.wait_history.longest_gap_s is None
    candidate = Candidate(
        cause="rollout-engine-dead",
        reason=f"keeps retrying a rollout engine whose address refuses connections{in_phase(proc)}",
        evidence=(*refused, stack_item(proc)),
        sink=Sink.HOLDER,
        liveness="computing" if began else "unseen",
        phase="rollout",
        fixes=(
            Fix("Start the engine's server, at the address that the trainer uses."),
            Fix("If it exited, find the first error at the end of its own log."),
        ),
        confirm=(f"{_HEALTH}  # from the rank's host",),
    )
    return replace(candidate.of(proc), still_s=view.wait_history.waited_s)
