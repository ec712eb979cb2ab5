"""Who waits for whom, across ranks, groups, roles and things, by all that was seen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from grpo_doctor.hang.model.nodes import Node, ProcessNode, RankNode, ResourceNode
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.model.waiting.graph import Graph, Link
from grpo_doctor_probes.evidence import Blocked

_CHANNELS = {
    "pipe-read": "pipe",
    "pipe-write": "pipe",
    "fifo-open": "file",
    "socket-receive": "socket",
    "socket-send": "socket",
    "socket-connect": "socket",
    "socket-accept": "socket",
    "file": "file",
    "file-lock": "lock",
    "child": "child",
    "poll": "socket",
}
_THINGS = ("file", "lock", "socket")
# The processes that a rank starts for a loader, a pool or a child.
_CHILD_ROLES = {
    "loader": ("dataloader",),
    "pool": ("reward", "helper"),
    "child": ("reward", "helper"),
}
_OF_THE_JOB = ("src", "dst")
_OF_ITS_GROUP = ("group_src", "group_dst")
_MOST_DIGITS = 9  # of a rank; whatever else was on the stack may be of any length


class _Shared:
    """Sets of ranks, each made once: a thousand ranks of a collective wait for the same ones."""

    def __init__(self) -> None:
        self._sets: dict[tuple[int, ...], frozenset[Node]] = {}

    def ranks(self, ranks: Iterable[int]) -> frozenset[Node]:
        key = tuple(ranks)
        nodes = self._sets.get(key)
        if nodes is None:
            nodes = self._sets[key] = frozenset(map(RankNode, key))
        return nodes


def build(scene: Scene) -> Graph:
    """Finds every wait that the evidence shows."""
    return Graph.of(
        (
            *_recorded(scene),
            *_by_stack(scene),
            *_held(scene),
            *_children(scene),
            *_engines(scene),
            *_tasks(scene),
        )
    )


def _recorded(scene: Scene) -> Iterator[Link]:
    """Yield waits of flight recorders; ranks that made progress since then, or died, have none."""
    shared = _Shared()
    for wait in scene.matching.waits:
        actor = scene.by_rank.get(wait.rank)
        if wait.why == "joined" or (actor is not None and not actor.waits):
            continue
        label = f"{wait.operation} #{wait.sequence}" if wait.sequence else wait.operation
        kind = "p2p" if wait.why == "p2p" else "collective"
        yield Link(RankNode(wait.rank), shared.ranks(wait.on), kind, label)


def absent(scene: Scene) -> tuple[int, ...]:
    """Ranks that are not in any call that needs the others, or are not able to answer."""
    unseen = [rank for rank in scene.world if rank not in scene.by_rank]
    missing = scene.evidence.job.ranks_missing
    busy = [rank for rank, actor in scene.by_rank.items() if not actor.waits]
    return tuple(sorted({*busy, *(rank for rank in unseen if rank in missing)}))


def _by_stack(scene: Scene) -> Iterator[Link]:
    """Yield waits of ranks without a recording: they wait for the ranks outside such a call."""
    recorded = {wait.rank for wait in scene.matching.waits if wait.why != "joined"}
    absentees, shared = absent(scene), _Shared()
    for rank, actor in scene.by_rank.items():
        if not actor.waits or rank in recorded:
            continue
        if actor.place.call == "p2p":
            peer = partner_of(scene, actor)
            targets: Iterable[int] = absentees if peer is None else (peer,)
            kind = "p2p"
        else:
            joins = actor.at_store or actor.place.call == "store"
            targets, kind = absentees, "store" if joins else "collective"
        yield Link(RankNode(rank), shared.ranks(targets), kind, actor.place.operation)


def _held(scene: Scene) -> Iterator[Link]:
    """What the main thread's blocking call is on, where it is not in a call to other ranks."""
    for actor in scene.actors:
        hold = actor.hold
        if hold is None or actor.waits or hold.kind not in _CHANNELS:
            continue
        kind = _CHANNELS[hold.kind]
        if actor.member.role == "rank" and actor.place.call == "loader":
            continue  # the loader's children say more than the queue's pipe
        ends: set[Node] = {
            scene.by_pid[pid].node if pid in scene.by_pid else ProcessNode(pid)
            for pid in hold.peers
        }
        if not ends and kind in _THINGS and hold.target:
            ends = {ResourceNode(kind, hold.target)}
        yield Link(actor.node, frozenset(ends), kind, _label(hold), needs="any")


def _label(hold: Blocked) -> str:
    return f"{hold.kind.replace('-', ' ')} {hold.target}".strip()


def _children(scene: Scene) -> Iterator[Link]:
    """A rank in a loader, pool or child wait needs the processes it started for that."""
    for actor in scene.actors:
        if actor.waits or actor.held:
            continue
        roles = _CHILD_ROLES.get(actor.place.call)
        if roles is None:
            continue
        children = [
            child.node
            for child in scene.children(actor.pid)
            if child.member.role in roles and "tracker" not in child.member.name
        ]
        yield Link(actor.node, frozenset(children), "child", actor.place.operation, needs="any")


def asks_engine(actor: Actor) -> bool:
    """Whether it waits for something and the stack says that it is a rollout."""
    if "generate" not in actor.place.purposes and actor.place.purpose != "weight-sync":
        return False
    return actor.place.call in ("http", "poll", "queue", "asyncio", "lock", "pool") or (
        actor.hold is not None
        and actor.hold.kind in ("socket-receive", "pipe-read", "poll", "futex")
    )


def _engines(scene: Scene) -> Iterator[Link]:
    """A rank in a rollout needs the engine; an engine's front needs its core, that its workers."""
    parts = scene.engine_parts()
    pids = {process.pid for process in parts}
    for actor in scene.by_rank.values():
        if actor.waits or actor.held or not asks_engine(actor):
            continue
        fronts = [process for process in parts if process.member.parent not in pids]
        peers = {pid for row in actor.blocked for pid in row.peers}
        own = [process for process in parts if process.pid in peers]
        own = own or [process for process in fronts if process.rank in (actor.rank, None)] or fronts
        own = [process for process in own if process.member.host == actor.member.host] or own
        engines = frozenset(engine.node for engine in own)
        yield Link(actor.node, engines, "engine", actor.place.operation, needs="any")
    for front in parts:
        # A server wakes for every message of its core's, and depends on it all the same.
        at_rest = front.member.role == "server" or front.motion.kind in ("still", "polling")
        for child in scene.children(front.pid):
            if child.pid in pids and (at_rest or child.held):
                yield Link(front.node, frozenset({child.node}), "engine", needs="any")


def _tasks(scene: Scene) -> Iterator[Link]:
    """Link an idle actor of Ray to its driver's next call, and who asks for tasks to busy ones."""
    callers = tasks.drivers(scene)
    for rank in tasks.idle_ranks(scene):
        calling = frozenset(caller.node for caller in callers)
        yield Link(rank.node, calling, "task", "its next call", needs="any")
    for actor in scene.actors:
        if tasks.asks(actor):
            for worker in tasks.pending(scene):
                task = frozenset({worker.node})
                yield Link(actor.node, task, "task", tasks.task_of(worker), needs="any")


def partner_of(scene: Scene, actor: Actor) -> int | None:
    """The rank of the job at the other end; None where it is not known.

    `send_object_list` passes on its partner's number within the group alone, so a number of the
    job counts first, whichever call of the stack has it.
    """
    for number in _numbers(scene, actor, _OF_THE_JOB):
        return number
    for number in _numbers(scene, actor, _OF_ITS_GROUP):
        return _of_the_job(scene, actor, number)
    return None


def _numbers(scene: Scene, actor: Actor, names: Sequence[str]) -> Iterator[int]:
    for call in scene.evidence.arguments:
        values = [call.values.get(name, "") for name in names if call.pid == actor.pid]
        yield from (
            int(value) for value in values if value.isdecimal() and len(value) <= _MOST_DIGITS
        )


def _of_the_job(scene: Scene, actor: Actor, number: int) -> int | None:
    """Return the group, which the stack does not show, where all of this rank's groups agree.

    Groups whose members no recorder lists do not count: there may be others in addition to them.
    """
    recording = scene.recordings.of(actor.rank) if actor.rank is not None else None
    groups = recording.groups if recording is not None else ()
    listed = [group.ranks for group in groups if actor.rank in group.ranks]
    # As torch was given the members, or sorted: it depends on who made the group.
    orders = [order for ranks in listed for order in (ranks, sorted(ranks))]
    members = {order[number] for order in orders if number < len(order)}
    return members.pop() if len(members) == 1 else None
