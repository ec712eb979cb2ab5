"""Rollout engines: dead, unreachable, stopped, or without output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor import knobs
from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.candidate import (
    Candidate,
    Case,
    Liveness,
    Sink,
    in_phase,
    is_blocked_in,
    place_text,
    stack_item,
    title,
)
from grpo_doctor.hang.causes.host import oom_items, out_of_memory
from grpo_doctor.hang.model.process.stacks import place_of
from grpo_doctor.hang.model.rollout_engine import (
    Counted,
    RolloutEngine,
    awaits_server,
    engine_of,
    refusals,
)
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.wakeups import asks_strangers, family
from grpo_doctor.hang.verdict import Fix, Item

_THRASHES = 2  # preemptions between two answers, and not one token
_LONGEST_PAUSE_S = 30.0  # asynchronous trainers pause an engine while they send weights


def stalled(
    proc: Process, engine: RolloutEngine, node: Process, says: str, *items: Item
) -> Candidate:
    """Return the cause of an engine that makes no progress because of its process `node`."""
    metrics = (Item("metrics", proc.rank, engine.counted.text()),) if engine.counted else ()
    return Candidate(
        cause="rollout-engine-stalled",
        reason=f"waits{in_phase(proc)} for its rollout engine: {title(node)} {says}",
        evidence=(*items, *metrics, *engine.last_words, stack_item(proc)),
        sink=Sink.ENGINE,
        liveness="never-wakes",
        phase="rollout",
        node=node.node,
        fixes=advice("patient client"),
        confirm=(node.shell("py-spy dump --pid {pid}"),),
    ).of(proc)


def output(view: JobView, proc: Process, engine: RolloutEngine) -> Candidate:
    """What comes out of the engine that this rank waits for."""
    counts = engine.counted
    if counts is not None and counts.paused and not counts.makes_progress:
        return _told_to_pause(proc, engine, counts)
    if engine.takes_no_step:
        return _paused(view, proc, engine)
    if counts is not None and counts.makes_progress:
        return _generates(view, proc, engine)
    if counts is not None and counts.asked and (counts.counts_tokens or not engine.works):
        return _without_tokens(view, proc, engine, counts)
    if engine.works or engine.starts:
        return _generates(view, proc, engine)
    return _idle(proc, engine)


def _without_tokens(
    view: JobView, proc: Process, engine: RolloutEngine, counts: Counted
) -> Candidate:
    core = engine.core
    share = Item("proc", core.rank, f"{title(core)} used {core.activity.cpu_share:.0%} of a core")
    if counts.asleep:
        asleep = stalled(proc, engine, core, "is asleep but was asked to generate", share)
        return replace(asleep, fixes=advice("asleep", "patient client"))
    full = f", {counts.cache:.0%} of its cache used" if counts.cache is not None else ""
    during = f"in {counts.seconds:.1f} s"
    if counts.preempted >= _THRASHES:
        says = (
            f"keeps preempting requests{full}: {counts.preempted:.0f} times and no token {during}"
        )
        return replace(stalled(proc, engine, core, says, share), fixes=_room(view, counts))
    if counts.queued and not counts.running:
        says = f"runs none of {counts.queued:.0f} queued requests{full} {during}"
        return replace(
            stalled(proc, engine, core, says, share),
            liveness=_never_wakes(_long_for_a_pause(proc, engine), engine.works),
            fixes=(*advice("paused"), *_room(view, counts)),
        )
    none = f"generated no token {during}" if counts.counts_tokens else "makes no progress"
    says = f"{none} and has {counts.running:.0f} requests"
    return replace(
        stalled(proc, engine, core, says, share, *_stacks(engine)),
        cause=_soft_cause(proc),
        liveness="computing" if engine.works else "unseen",
    )


def _paused(view: JobView, proc: Process, engine: RolloutEngine) -> Candidate:
    """Return the cause of a rank that waits for an engine whose core waits for work.

    A paused engine does not count requests that arrive later. A rank that polls may wait for
    something else, such as an agent's tool, and keep its connection open. A server may run such a
    tool itself between two turns of an answer. In both cases time decides.
    """
    below = family(view, [child for part in engine.parts for child in view.children(part.pid)])
    elsewhere = any(asks_strangers(view, part) for part in engine.parts) or any(
        proc.activity.progresses for proc in below
    )
    receives = is_blocked_in(proc, "socket-receive", "pipe-read")
    says = "runs no engine step: it is paused for new weights, or the request did not reach it"
    return replace(
        stalled(proc, engine, engine.core, says, *_shares(engine), *_stacks(engine)),
        cause=_soft_cause(proc),
        liveness=_never_wakes(_long_for_a_pause(proc, engine) and receives, elsewhere),
        fixes=advice("paused", "patient client"),
    )


def _told_to_pause(proc: Process, engine: RolloutEngine, counts: Counted) -> Candidate:
    """It says itself that it is paused, which it is for the seconds that new weights take."""
    requests = counts.running + counts.queued
    has = f", with {requests:.0f} requests" if requests else ""
    says = f"is paused for new weights{has}, and no call resumed it"
    return replace(
        stalled(proc, engine, engine.core, says, *_shares(engine), *_stacks(engine)),
        cause="rollout-engine-paused",
        liveness=_never_wakes(_long_for_a_pause(proc, engine), engine.works),
        fixes=advice("paused", "resume always", "patient client"),
    )


def _generates(view: JobView, proc: Process, engine: RolloutEngine) -> Candidate:
    counts = engine.counted
    did = f" ({counts.text()})" if counts is not None and counts.asked else ""
    does = "is still starting" if engine.starts else f"works{did}"
    return replace(
        stalled(proc, engine, engine.core, does, *_shares(engine)),
        cause="",
        reason=f"waits{in_phase(proc)} for its rollout engine, which {does}",
        liveness="computing",
        sink=Sink.HELPER,
        node=None,
        fixes=_room(view, counts) if counts is not None and counts.preempted else (),
        confirm=(),
    )


def _idle(proc: Process, engine: RolloutEngine) -> Candidate:
    """Nothing of it moves, and it counts no request: what was asked did not reach it, or it does
    something else.
    """
    core = engine.core
    where = place_text(core.place)
    nothing = engine.counted is not None and not engine.counted.asked
    does = "has no request" if nothing else "makes no progress"
    says = f"{does}{f', at {where}' if where else ''}{_wants(core)}"
    return replace(
        stalled(proc, engine, core, says, *_shares(engine), *_stacks(engine)),
        cause=_soft_cause(proc),
        liveness="unseen",
        fixes=advice("idle engine", "patient client"),
    )


def _wants(core: Process) -> str:
    hold = core.hold
    if hold is None or hold.kind != "file-lock":
        return ""
    holders = ", ".join(map(core.name_of, hold.peers))
    return f", and waits for the file lock {hold.target}{f', held by {holders}' if holders else ''}"


def _long_for_a_pause(proc: Process, engine: RolloutEngine) -> bool:
    """Of the rank and of every core: a rank may wait for minutes for answers of many turns, between
    two of which a core has nothing to do.
    """
    cores = [part for part in engine.parts if part is engine.core or part.member.role == "engine"]
    return all((process.activity.still_s or 0.0) >= _LONGEST_PAUSE_S for process in (proc, *cores))


def _room(view: JobView, counts: Counted) -> tuple[Fix, ...]:
    framework = view.evidence.job.framework
    sequences = max(1, round((counts.running + counts.queued) / 2))
    return (
        _with_value(
            framework,
            "Give vLLM more memory for its cache (vllm serve: --gpu-memory-utilization 0.9).",
            "vllm.gpu_memory_utilization",
            0.9,
        ),
        _with_value(
            framework,
            f"Run fewer sequences at a time (vllm serve: --max-num-seqs {sequences}).",
            "vllm.max_num_seqs",
            sequences,
        ),
        *advice("shorter completions"),
    )


def _shares(engine: RolloutEngine) -> Iterator[Item]:
    for part in engine.parts[:3]:
        used = f"{title(part)} used {part.activity.cpu_share:.0%} of a core"
        yield Item("proc", part.rank, used)


def _stacks(engine: RolloutEngine) -> Iterator[Item]:
    return (stack_item(part) for part in engine.parts[1:3] if part.place.frames)


def _with_value(framework: str, text: str, knob: str, value: float) -> Fix:
    known = framework in knobs.FRAMEWORKS
    return Fix(text, knob, knobs.spell(framework, None, knob, value) if known else None)


def _never_wakes(long: bool, at_work: bool) -> Liveness:
    """Of an engine that takes no step: whether anything is left that could end that."""
    if at_work:
        return "computing"
    return "never-wakes" if long else "unseen"


def _soft_cause(proc: Process) -> str:
    syncs = proc.place.purpose == "weight-sync"
    return "weight-sync-blocked" if syncs else "rollout-engine-stalled"


_HEALTH = "curl -m 5 http://HOST:PORT/health"


def rollout_engine(case: Case) -> Iterator[Candidate]:
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
        fixes=advice("dead engine"),
        confirm=(f"{_HEALTH}  # responds; then request one token",),
    )


def _halted(proc: Process, engine: RolloutEngine, node: Process) -> Candidate:
    item = Item("proc", node.rank, f"{title(node)} is {node.activity.kind}, the others wait for it")
    if node.activity.kind == "frozen":
        candidate = stalled(proc, engine, node, "is frozen by its control group", item)
        return replace(candidate, fixes=advice("frozen engine"), confirm=())
    candidate = stalled(proc, engine, node, "is stopped by a signal", item)
    stopped = replace(candidate, liveness="never-wakes", fixes=())
    return stopped.continued(node, "tokens must flow immediately")


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
        fixes=advice("transfer"),
    )


def _not_up_yet(proc: Process) -> Candidate:
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
        fixes=advice("no server"),
        confirm=(f"{_HEALTH}  # from the rank's host",),
    )
    return replace(candidate.of(proc), still_s=view.wait_history.waited_s)
