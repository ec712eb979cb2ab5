"""Rollout engines that are dead or stand still."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grpo_doctor.hang.causes.candidate import MECHANISM, Candidate, Case
from grpo_doctor.hang.causes.wording import at, in_phase, named, stack_item
from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.waits import asks_engine
from grpo_doctor_probes.evidence import EngineLook

_DIED = re.compile(
    r"EngineDeadError|EngineCore.*(died|failed|fatal)|engine core.*died", re.IGNORECASE
)
_TOKENS = ("generation_tokens_total", "vllm:generation_tokens_total")
_RUNNING = ("num_requests_running", "vllm:num_requests_running")
_QUEUED = ("num_requests_waiting", "vllm:num_requests_waiting")


def propose(case: Case) -> Iterator[Candidate]:
    """For each rank that waits for a rollout: what its engine does."""
    for actor in case.suspects:
        if actor.held or actor.motion.kind == "working" or not asks_engine(actor):
            continue
        engines = _engines_of(case, actor)
        yield from _dead(case.scene, actor, engines)
        if engines and not any(one.motion.kind == "gone" for one in engines):
            yield from _stalled(case.scene, actor, engines)


def _engines_of(case: Case, actor: Actor) -> tuple[Actor, ...]:
    reached = case.graph.reach.get(actor.node, frozenset())
    return tuple(one for one in case.scene.engine_parts() if one.node in reached)


def _dead(scene: Scene, actor: Actor, engines: tuple[Actor, ...]) -> Iterator[Candidate]:
    dead = [one for one in engines if one.motion.kind == "gone"]
    servers = [one for one in engines if one.member.role == "server"]
    pids = {one.pid for one in engines}
    told = [
        Item("log", actor.rank, line)
        for log in scene.evidence.logs
        if log.pid in pids | {actor.pid}
        for line in log.lines
        if _DIED.search(line)
    ]
    orphaned = bool(servers) and bool(told) and not any(o.member.role == "engine" for o in engines)
    if not dead and not orphaned:
        return
    node = dead[0].node if dead else servers[0].node
    who = named(dead[0]) if dead else f"the core of {named(servers[0])}"
    yield Candidate(
        cause="rollout-engine-dead",
        culprits=(actor.rank,) if actor.rank is not None else (),
        reason=f"waits{in_phase(actor)} for a rollout engine that is dead: {who}",
        evidence=(
            *(Item("proc", one.rank, f"{named(one)} has ended") for one in dead),
            *told[-3:],
            stack_item(actor),
        ),
        hard=True,
        precise=MECHANISM + 5,
        strength=0.93,
        dead=True,
        phase=actor.phase or "rollout",
        node=node,
        still_s=actor.motion.still_s,
        fixes=(
            Fix("Start the engine again and read its own log for the first error."),
            Fix("If it ran out of memory, give it less.", "vllm.gpu_memory_utilization"),
        ),
        confirm=("curl -m 5 http://HOST:PORT/health  # alive; then ask for one token",),
    )


def _stalled(scene: Scene, actor: Actor, engines: tuple[Actor, ...]) -> Iterator[Candidate]:
    stopped = [one for one in engines if one.motion.kind in ("stopped", "frozen")]
    counted = _counted([look for one in engines for look in scene.engine_looks(one.pid)])
    works = any(one.motion.progresses for one in engines)
    if (counted is not None and counted.made > 0) or (works and not (counted and counted.asked)):
        yield _generates(actor, engines, counted)
        return
    cores = [one for one in engines if one.member.role == "engine"]
    core = (stopped or cores or list(engines))[0]
    syncs = actor.place.purpose == "weight-sync"
    where = at(core.place.user or (core.place.frames[0] if core.place.frames else None))
    yield Candidate(
        cause="weight-sync-blocked" if syncs else "rollout-engine-stalled",
        culprits=(actor.rank,) if actor.rank is not None else (),
        reason=f"waits{in_phase(actor)} for a rollout engine that does not move: {named(core)}"
        f"{f' at {where}' if where else ''}",
        evidence=(
            *((Item("metrics", actor.rank, counted.text),) if counted else ()),
            Item("proc", core.rank, f"{named(core)} used {core.motion.cpu_share:.0%} of a core"),
            stack_item(actor),
        ),
        hard=bool(stopped),
        works=works,
        precise=MECHANISM + 4,
        strength=0.9 if counted or stopped else 0.8,
        phase=actor.phase or "rollout",
        node=core.node,
        still_s=actor.motion.still_s,
        fixes=(
            Fix(
                "Give the engine room for the longest prompt and completion.", "vllm.max_model_len"
            ),
            Fix("Restart the engine; give the client's requests a timeout."),
        ),
        confirm=(f"py-spy dump --pid {core.pid}",),
    )


def _generates(actor: Actor, engines: Sequence[Actor], counted: Counted | None) -> Candidate:
    """Nothing is wrong: the engine is at it."""
    did = f" ({counted.text})" if counted is not None else ""
    return Candidate(
        cause="",
        culprits=(actor.rank,) if actor.rank is not None else (),
        reason=f"waits{in_phase(actor)} for its rollout engine, which works{did}",
        evidence=(
            *(
                Item("proc", one.rank, f"{named(one)} used {one.motion.cpu_share:.0%} of a core")
                for one in engines[:3]
            ),
            stack_item(actor),
        ),
        hard=False,
        works=True,
        precise=MECHANISM,
        phase=actor.phase or "rollout",
        still_s=actor.motion.still_s,
    )


@dataclass(frozen=True, slots=True)
class Counted:
    """What /metrics says: tokens made between its first and last answer, requests it has."""

    made: float
    asked: float
    text: str


def _counted(looks: Sequence[EngineLook]) -> Counted | None:
    """None without two answers."""
    values = [look.values for look in looks if look.values]
    if len(values) < 2:
        return None
    made = _value(values[-1], _TOKENS) - _value(values[0], _TOKENS)
    running, queued = _value(values[-1], _RUNNING), _value(values[-1], _QUEUED)
    text = f"{made:.0f} tokens between looks, {running:.0f} requests run, {queued:.0f} wait"
    return Counted(made, running + queued, text)


def _value(values: dict[str, float], names: tuple[str, ...]) -> float:
    return sum(value for key, value in values.items() if key.partition("{")[0] in names)
