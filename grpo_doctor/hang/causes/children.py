"""Ranks that wait for a process of their own: a subprocess, a pool, a loader's workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import MATTER, MECHANISM, Candidate, Case
from grpo_doctor.hang.causes.locks import waits_in_fork
from grpo_doctor.hang.causes.pools import has_tasks, in_process_pool
from grpo_doctor.hang.causes.wording import (
    at,
    blocked_class,
    busy_class,
    in_phase,
    named,
    stack_item,
    still_item,
)
from grpo_doctor.hang.known_code import short
from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item

_AT_REST = ("still", "polling", "unknown")


def propose(case: Case) -> Iterator[Candidate]:
    """Looks through the wait into the process that is waited for."""
    for actor in case.suspects:
        if actor.held or actor.motion.progresses:
            continue
        if actor.place.call == "loader" or _waits_for_loader(case.scene, actor):
            yield from _loader(case.scene, actor)
        elif _waits_for_child(actor):
            yield from _child(case.scene, actor)


def _waits_for_loader(scene: Scene, actor: Actor) -> bool:
    children = scene.children(actor.pid)
    has_loaders = any(one.member.role == "dataloader" for one in children)
    return actor.place.purpose == "dataload" and has_loaders


def _waits_for_child(actor: Actor) -> bool:
    hold = actor.hold
    if hold is not None and hold.kind == "child":
        return True
    return actor.place.call == "child" or (actor.place.call == "pool" and not has_tasks(actor))


def _loader(scene: Scene, actor: Actor) -> Iterator[Candidate]:
    family = _family(scene, scene.children(actor.pid))  # a fork server is between, with some
    workers = [one for one in family if one.member.role == "dataloader"]
    workers = [one for one in workers if not _has_succeeded(one)]  # its shard was read to the end
    if not workers and not _has_workers(actor):
        return  # it loads in the training process
    stuck = [one for one in workers if not one.motion.progresses]
    held = [one for one in workers if one.held]
    if workers and len(stuck) < len(workers) and not held:
        return  # at least one prepares a batch
    guilty = held or [one for one in stuck if not _rests(one)] or stuck
    says = f": {_doing(guilty[0])}" if guilty else ": none is left"
    yield Candidate(
        cause="dataload-blocked",
        culprits=_culprit(actor),
        reason=f"waits for its data loader's workers{says}",
        evidence=(stack_item(actor), *(_item(one) for one in guilty[:4]), still_item(actor)),
        hard=bool(held),
        precise=MECHANISM,
        strength=0.9,
        phase=actor.phase or "dataload",
        node=guilty[0].node if guilty else "",
        still_s=actor.motion.still_s,
        fixes=(
            Fix(
                "Load in the training process to see the worker's own error.",
                "dataload.num_workers",
            ),
            Fix("Give the DataLoader a timeout, so that a dead worker raises."),
            Fix("Fork no worker after threads were started: multiprocessing_context='spawn'."),
        ),
        confirm=tuple(f"py-spy dump --pid {one.pid}" for one in guilty[:1] if not one.held),
    )


def _has_workers(actor: Actor) -> bool:
    return any(
        short(frame.function) in ("_try_get_data", "_get_data") for frame in actor.place.frames
    )


def _child(scene: Scene, actor: Actor) -> Iterator[Candidate]:
    children = _awaited(scene, actor)
    if not children:
        if actor.hold is not None and actor.hold.kind == "child":
            yield _waiting(actor, f"waits for a child process{in_phase(actor)}", ())
        return
    family = _family(scene, children)
    working = [one for one in family if one.motion.progresses or one.ended_meanwhile]
    if working or _just_started(scene, actor):
        yield _works(actor, working or children)
        return
    deepest = _deepest(scene, children)
    if waits_in_fork(deepest):
        yield _forked(actor, deepest)
        return
    lost = in_process_pool(actor) and all(_rests(one) or one.held for one in children)
    hard = lost or any(one.held for one in children)
    says = (
        "a pool worker died and its task is lost: all the others wait for work"
        if lost
        else f"its child {named(deepest)} {_doing(deepest)}"
    )
    reason = f"waits{in_phase(actor)}{' for ever' if hard else ''}: {says}"
    items = tuple(_item(one) for one in dict.fromkeys([deepest, *children]))
    yield replace(_waiting(actor, reason, items[:3]), hard=hard, node="" if lost else deepest.node)


def _family(scene: Scene, children: Sequence[Actor]) -> list[Actor]:
    """These processes and all that they started."""
    found = {one.pid: one for one in children}
    todo = list(children)
    while todo:
        below = [one for one in scene.children(todo.pop().pid) if one.pid not in found]
        found |= {one.pid: one for one in below}
        todo += below
    return list(found.values())


def _has_succeeded(actor: Actor) -> bool:
    """Whether it has ended in order and its parent has not asked yet: nobody waits for that."""
    return actor.look is not None and actor.look.state == "Z" and actor.look.exit_code == 0


def _just_started(scene: Scene, actor: Actor) -> bool:
    """Whether it waits for a process that was not there when the job was found."""
    hold = actor.hold
    return hold is not None and hold.kind == "child" and not set(hold.peers) <= set(scene.by_pid)


def _awaited(scene: Scene, actor: Actor) -> list[Actor]:
    """The children that it may be waiting for."""
    own = [one for one in scene.children(actor.pid) if one.member.role != "dataloader"]
    own = [one for one in own if "tracker" not in one.member.name and not _has_succeeded(one)]
    hold = actor.hold
    named_ones = hold.peers if hold is not None and hold.kind == "child" else ()
    return [one for one in own if one.pid in named_ones] or own


def _forked(actor: Actor, child: Actor) -> Candidate:
    where = at(child.place.user or child.place.frames[0])
    reason = (
        f"waits for its child {named(child)}, which waits for a lock that was taken when it was "
        f"forked, at {where}"
    )
    fix = Fix("Start the child with spawn, or fork before any thread is started.")
    found = _waiting(actor, reason, (_item(child),))
    return replace(
        found,
        cause="lock-held",
        hard=True,
        precise=MECHANISM + 2,
        node=child.node,
        fixes=(fix,),
    )


def _culprit(actor: Actor) -> tuple[int, ...]:
    return (actor.rank,) if actor.rank is not None else ()


def _waiting(actor: Actor, reason: str, items: tuple[Item, ...]) -> Candidate:
    return Candidate(
        cause="child-stuck",
        culprits=_culprit(actor),
        reason=reason,
        evidence=(*items, still_item(actor), stack_item(actor)),
        hard=False,
        precise=MECHANISM,
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(
            Fix("Give the wait a timeout (subprocess: timeout=, pool: .get(timeout))."),
            Fix("End the child when the timeout is over."),
        ),
        confirm=(f"ps -o pid,stat,wchan:20,etime,args --ppid {actor.pid}",),
    )


def _works(actor: Actor, working: Sequence[Actor]) -> Candidate:
    one = working[0]
    busy = one.motion.kind == "busy"
    cause = busy_class(actor) if busy else blocked_class(actor)
    return Candidate(
        cause="" if actor.long_work is not None else cause,
        culprits=_culprit(actor),
        reason=f"waits{in_phase(actor)} for its child {named(one)}, which works",
        evidence=(_item(one), stack_item(actor)),
        hard=False,
        works=True,
        precise=MATTER + 3,
        strength=0.85,
        phase=actor.phase,
        node=one.node,
        still_s=actor.motion.still_s,
        fixes=(Fix("Give the work a timeout."),),
    )


def _deepest(scene: Scene, children: Sequence[Actor]) -> Actor:
    """The process at the end of the chain of children: a shell's child, not the shell."""
    one = min(children, key=lambda c: (not c.held, _rests(c), c.pid))
    seen = {one.pid}
    while not one.held:
        below = [c for c in scene.children(one.pid) if c.pid not in seen]
        hold = one.hold
        if not below or (hold is not None and hold.kind not in ("child", "other", "poll")):
            return one
        one = min(below, key=lambda c: (not c.held, c.pid))
        seen.add(one.pid)
    return one


def _rests(actor: Actor) -> bool:
    """Whether a worker waits for its next task."""
    return actor.place.call in ("queue", "pool") and actor.motion.kind in _AT_REST


def _doing(actor: Actor) -> str:
    if actor.ended_meanwhile:
        return "ended while we looked"
    if actor.motion.kind == "gone":
        return "is dead"
    if actor.motion.kind == "stopped":
        return "is stopped"
    if actor.motion.kind == "frozen":
        return "is frozen"
    if actor.motion.progresses:
        return f"uses {actor.motion.cpu_share:.0%} of a core"
    where = at(actor.place.user) if actor.place.user else ""
    hold = next(iter(actor.blocked), None)
    what = f" ({hold.kind.replace('-', ' ')} {hold.target})" if hold is not None else ""
    return f"does not move{f', at {where}' if where else ''}{what.replace(' )', ')')}"


def _item(actor: Actor) -> Item:
    return Item("proc", actor.rank, f"{named(actor)} {_doing(actor)}")
