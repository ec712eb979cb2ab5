"""Ranks that use a core without getting on, or that get none."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from grpo_doctor.hang.causes.candidate import MECHANISM, PLACE, Candidate, Case
from grpo_doctor.hang.causes.wording import busy_class, in_phase, stack_item
from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item

STARVED = 0.3  # of the time runnable without a core
THROTTLED = 0.3  # of the time held back by its quota
NICE = 5


def propose(case: Case) -> Iterator[Candidate]:
    """Starved ranks first: a rank without a core looks busy to itself."""
    for actor in case.scene.by_rank.values():
        if actor.held:
            continue
        starved = _starved(case.scene, actor)
        if starved is not None:
            yield starved
        elif actor in case.suspects and _computes(actor) and not case.scene.all_spin:
            yield _busy(actor)


def _computes(actor: Actor) -> bool:
    return actor.motion.kind == "busy" and actor.long_work is None


def _starved(scene: Scene, actor: Actor) -> Candidate | None:
    reasons: list[str] = []
    throttled = _throttled_share(actor)
    limits = actor.limits[-1] if actor.limits else None
    others = [a for a in scene.by_rank.values() if a.pid != actor.pid]
    usual = median([a.motion.delay_share for a in others]) if others else 0.0
    delayed = actor.motion.delay_share >= STARVED and actor.motion.delay_share > 2 * usual
    if throttled >= THROTTLED and limits is not None:
        cores = f"{limits.quota_cores:.2g}" if limits.quota_cores else "?"
        reasons.append(f"its CPU quota of {cores} cores holds it back {throttled:.0%} of the time")
    if delayed and limits is not None and limits.nice >= NICE:
        reasons.append(f"it has nice {limits.nice} and gets no core")
    if delayed and limits is not None and len(limits.cores) == 1 and _more_cores(others):
        reasons.append(f"it is bound to core {limits.cores[0]} alone and shares it")
    if (
        not reasons
        and delayed
        and not actor.waits
        and actor.motion.kind == "working"
        and _works_hard(actor)
    ):
        reasons.append("other processes use the cores")
    if not reasons:
        return None
    return Candidate(
        cause="cpu-starved",
        culprits=(actor.rank,) if actor.rank is not None else (),
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
        hard=False,
        works=True,
        precise=MECHANISM,
        strength=0.9,
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(
            Fix("Raise the CPU quota or nice value, widen the core binding, end what else runs."),
        ),
        confirm=(f"cat /proc/{actor.pid}/schedstat; sleep 1; cat /proc/{actor.pid}/schedstat",),
    )


def _works_hard(actor: Actor) -> bool:
    return actor.motion.cpu_share + actor.motion.delay_share > 0.8


def _more_cores(others: list[Actor]) -> bool:
    return any(len(a.limits[-1].cores) > 1 for a in others if a.limits)


def _throttled_share(actor: Actor) -> float:
    if len(actor.limits) < 2 or actor.motion.seconds <= 0:
        return 0.0
    held_ns = actor.limits[-1].throttled_ns - actor.limits[0].throttled_ns
    return held_ns / 1e9 / actor.motion.seconds


def _busy(actor: Actor) -> Candidate:
    collecting = actor.place.call == "gc"
    doing = "collects garbage" if collecting else "computes"
    return Candidate(
        cause=busy_class(actor),
        culprits=(actor.rank,) if actor.rank is not None else (),
        reason=f"{doing} without an end in sight{in_phase(actor)}",
        evidence=(
            Item(
                "proc",
                actor.rank,
                f"pid {actor.pid} used {actor.motion.cpu_share:.0%} of a core and stood at the "
                "same place at each look",
            ),
            stack_item(actor),
        ),
        hard=False,
        works=True,
        precise=PLACE,
        strength=0.9,
        phase=actor.phase,
        fixes=(
            Fix("Call gc.freeze() after setup, or collect less often.", "offload.gc_collect")
            if collecting
            else Fix("Give this computation a limit: a timeout in a process of its own."),
        ),
        confirm=(f"py-spy record --pid {actor.pid} --duration 10  # which line it spends",),
    )
