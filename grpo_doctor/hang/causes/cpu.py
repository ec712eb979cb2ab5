"""Ranks that use a core without progress, or that get none."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink, ranks_of
from grpo_doctor.hang.causes.description import busy_class, in_phase, stack_item
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting.starvation import DELAYED, hardly_runs, throttled
from grpo_doctor.hang.verdict import Fix, Item

NICE = 5  # more than the other ranks


def propose(case: Case) -> Iterator[Candidate]:
    """Starved ranks first: a rank without a core looks busy to itself."""
    for actor in case.scene.by_rank.values():
        if actor.held or actor.device_wait:
            continue
        starved = _starved(case.scene, actor)
        if starved is not None:
            yield starved
        elif actor in case.suspects and _computes(actor) and not case.scene.all_spin:
            yield _busy(actor)


def _computes(actor: Actor) -> bool:
    """Return whether it computes at one line; without a stack, it may just be ending."""
    return actor.motion.kind == "busy" and actor.long_work is None and bool(actor.place.frames)


def _starved(scene: Scene, actor: Actor) -> Candidate | None:
    peers = [a for a in scene.by_rank.values() if a.pid != actor.pid]
    usual = median([a.motion.delay_share for a in peers]) if peers else 0.0
    reasons = _reasons(scene, actor, peers, usual)
    if not reasons:
        return None
    return Candidate(
        cause="cpu-starved",
        reason=f"gets too little CPU: {reasons[0]}{in_phase(actor)}",
        evidence=(
            Item(
                "proc",
                actor.rank,
                f"ran {actor.motion.cpu_share:.0%} of the time, was runnable without a core "
                f"{actor.motion.delay_share:.0%} (others {usual:.0%})",
            ),
            *(Item("cgroup", actor.rank, reason) for reason in reasons),
            stack_item(actor),
        ),
        sink=Sink.HELPER,
        liveness="progressing",
        fixes=(
            Fix(
                "Raise the CPU quota or nice priority, widen the core binding, or end other "
                "processes."
            ),
        ),
        confirm=(f"cat /proc/{actor.pid}/schedstat; sleep 1; cat /proc/{actor.pid}/schedstat",),
    ).of(actor)


def _reasons(scene: Scene, actor: Actor, peers: list[Actor], usual: float) -> list[str]:
    """Why it gets no core; empty where it does, or where the others do not either."""
    motion = actor.motion
    delayed = motion.delay_share >= DELAYED and motion.delay_share > 2 * usual
    reasons = _by_limits(scene, actor, peers, delayed) if actor.limits else []
    crowded = motion.kind == "working" and motion.cpu_share + motion.delay_share > 0.8
    if not reasons and delayed and not actor.waits and (crowded or hardly_runs(actor)):
        reasons.append("other processes use the cores")
    return reasons


def _by_limits(scene: Scene, actor: Actor, peers: list[Actor], delayed: bool) -> list[str]:
    limits = actor.limits[-1]
    theirs = [peer.limits[-1] for peer in peers if peer.limits]
    reasons: list[str] = []
    if throttled(actor):
        quota = f"{limits.quota_cores:.2g}" if limits.quota_cores else "?"
        share = actor.throttled_share
        reasons.append(f"its CPU quota of {quota} cores throttles it {share:.0%} of the time")
    if delayed and limits.nice >= NICE + min((peer.nice for peer in theirs), default=0):
        reasons.append(f"it has nice {limits.nice} and gets no core")
    sharing = _sharing(scene, actor)
    if actor.motion.delay_share >= DELAYED and sharing:
        cores = ", ".join(map(str, limits.cores))
        reasons.append(f"it is bound to core {cores} together with {sharing} other ranks")
    elif delayed and len(limits.cores) == 1 and any(len(peer.cores) > 1 for peer in theirs):
        reasons.append(f"it is bound to core {limits.cores[0]} alone and shares it")
    return reasons


def _sharing(scene: Scene, actor: Actor) -> int:
    """How many other ranks are bound to its cores: too few for all, where the host has more."""
    cores = actor.limits[-1].cores
    if not cores or len(cores) >= _cores_of_host(scene, actor):
        return 0
    on_host = [peer for peer in scene.by_rank.values() if peer.member.host == actor.member.host]
    same = [peer for peer in on_host if peer.limits and peer.limits[-1].cores == cores]
    return len(same) - 1 if len(same) > len(cores) else 0


def _cores_of_host(scene: Scene, actor: Actor) -> int:
    """Of several hosts only the sum is known: then what any process of this one may run on."""
    host = scene.evidence.host
    if host is None:
        return 0
    on_host = [peer for peer in scene.actors if peer.member.host == actor.member.host]
    if len(on_host) == len(scene.actors):
        return host.cores
    return 1 + max(
        (max(peer.limits[-1].cores, default=-1) for peer in on_host if peer.limits), default=-1
    )


def _busy(actor: Actor) -> Candidate:
    collecting = actor.place.call == "gc"
    doing = "collects garbage" if collecting else "computes"
    return Candidate(
        cause=busy_class(actor),
        culprits=ranks_of(actor),
        reason=f"{doing} with no end in sight{in_phase(actor)}",
        evidence=(
            Item(
                "proc",
                actor.rank,
                f"pid {actor.pid} used {actor.motion.cpu_share:.0%} of a core and was at the "
                "same place in each sample",
            ),
            stack_item(actor),
        ),
        sink=Sink.LINE,
        liveness="computing",
        phase=actor.phase,
        fixes=(
            Fix("Call gc.freeze() after setup, or collect less often.", "offload.gc_collect")
            if collecting
            else Fix("Limit this computation: run it in a separate process with a timeout."),
        ),
        confirm=(
            f"py-spy record --pid {actor.pid} --duration 10  # shows which lines take the time",
        ),
    )
