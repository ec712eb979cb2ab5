"""Who waits for whom, where all waits end, and everything that blame is derived from."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from grpo_doctor.hang.dumps import Recording
from grpo_doctor.hang.model.matching.groups import Gathered, History, Signatures, Track, history
from grpo_doctor.hang.model.matching.model import Blame, Shift, Side, Wait, Why
from grpo_doctor.hang.model.matching.queues import (
    UNKNOWN,
    Families,
    JointOp,
    JointOps,
    Queue,
    QueuedOp,
    on_device,
    queues,
)

Node = int | QueuedOp | JointOp
N = TypeVar("N", bound=Hashable)
Targets = Callable[[N], Iterable[N]]
# A wait in which the awaited ranks have something left to do. In `mismatch` both sides did it, and
# in `joined` everyone did: those give no direction.
DIRECTED = frozenset({"missing", "queued", "p2p"})
Camps = Callable[[JointOp], tuple[Side, ...]]


class Waiting:
    """The graph of hosts, units and meetings, and its sinks. A rank whose GPU is `hung` does not
    wait.
    """

    def __init__(
        self, joint_ops: JointOps, queues: Mapping[int, Queue], hung: frozenset[int]
    ) -> None:
        self.joint_ops = joint_ops
        self.queues = queues
        self.hung = hung
        self.heads = [unit for rank in sorted(queues) for unit in queues[rank].heads]
        starts: list[Node] = [*self.heads]
        self.sinks = tuple(sinks(starts, self.targets))

    def targets(self, node: Node) -> Sequence[Node]:
        """What has to happen first."""
        if isinstance(node, JointOp):
            if node.all_joined and node.ends is None:
                return [unit for rank in node.joined for unit in self._earlier(rank, node)]
            return [*node.queued.values(), *node.missing, *node.unseen]
        if isinstance(node, QueuedOp):
            if node.rank in self.hung:
                return ()
            return [node.behind] if node.behind is not None else self.joint_ops.of(node)
        queue = self.queues.get(node)
        return queue.heads if queue is not None else ()

    def _earlier(self, rank: int, joint_op: JointOp) -> list[QueuedOp]:
        """What a rank gave before its part of a whole meeting, and which is not over: it was not
        in the way of other operations then, and may be in the way of this one.
        """
        queue = self.queues[rank]
        own = queue.collectives[joint_op.group, joint_op.number]
        if not own.parts or not on_device(own.parts[0]):
            return []
        return [unit for unit in queue.heads if UNKNOWN < unit.order < own.order]


def waits(waiting: Waiting, signatures: Signatures, sides: Camps) -> tuple[Wait, ...]:
    """Return one wait for every head of a stream and reason that it does not end, ordered by rank.
    What is behind a head waits for that head, and has no wait of its own.
    """
    waits_of_heads: list[Wait] = []
    shared: dict[tuple[JointOp, Why], tuple[int, ...]] = {}  # a thousand wait for the same ones
    for unit in waiting.heads:
        for joint_op in waiting.joint_ops.of(unit):
            for why, on in _reasons(unit, joint_op, sides):
                if why in DIRECTED:
                    ranks = shared.setdefault((joint_op, why), tuple(sorted(on)))
                else:
                    ranks = tuple(sorted(rank for rank in on if rank != unit.rank))
                waits_of_heads.append(_wait(unit, joint_op, why, ranks, signatures))
    return tuple(sorted(waits_of_heads, key=lambda w: (w.rank, w.group, w.sequence, w.why, w.on)))


def _wait(
    unit: QueuedOp, joint_op: JointOp, why: Why, on: tuple[int, ...], signatures: Signatures
) -> Wait:
    operation = signatures.signature(unit.parts).text() if unit.parts else "a collective"
    if joint_op.ends is not None:
        source, target = joint_op.ends
        sends = unit.rank == source
        operation = f"send to rank {target}" if sends else f"receive from rank {source}"
    return Wait(
        rank=unit.rank,
        group=unit.group,
        sequence=joint_op.number,
        operation=operation,
        on=on,
        why=why,
        since_ns=unit.parts[0].created_ns if unit.parts else None,
        site=signatures.site(unit.parts[0]) if unit.parts else "",
    )


def _reasons(
    unit: QueuedOp, joint_op: JointOp, sides: Camps
) -> Iterator[tuple[Why, Sequence[int]]]:
    """Why an operation at a head does not end: all reasons that hold."""
    absent = [*joint_op.missing, *joint_op.unseen]
    if joint_op.ends is not None:
        behind = [*absent, *joint_op.queued]
        yield ("p2p", behind) if behind else ("joined", joint_op.ends)
        return
    if absent or joint_op.open_ended:
        yield "missing", absent
    if joint_op.queued:
        yield "queued", list(joint_op.queued)
    sides_of = sides(joint_op)
    if len(sides_of) > 1:
        own = next((side for side in sides_of if unit.rank in side.ranks), None)
        yield "mismatch", [rank for side in sides_of if side is not own for rank in side.ranks]
    elif joint_op.all_joined:
        yield "joined", [*joint_op.joined, *joint_op.through]


def cycles(waits: Sequence[Wait], sinks: Iterable[frozenset[Node]]) -> tuple[tuple[Wait, ...], ...]:
    """One shortest ring of waits for each set of heads that all wait for each other."""
    rings = []
    for sink in sinks:
        inside = waits_of(sink, waits)
        if ring := _shortest_ring(inside):
            steps = (
                next(w for w in inside if w.rank == rank and following in w.on)
                for rank, following in zip(ring, (*ring[1:], ring[0]))
            )
            rings.append(tuple(steps))
    return tuple(sorted(rings, key=lambda ring: [wait.rank for wait in ring]))


def waits_of(sink: frozenset[Node], waits: Iterable[Wait]) -> list[Wait]:
    """The directed waits in the operations of a sink."""
    joint_ops = {(m.group, m.number, m.ends is None) for m in sink if isinstance(m, JointOp)}
    heads = {node.rank for node in sink if isinstance(node, QueuedOp) and node.behind is None}
    return [
        w
        for w in waits
        if w.why in DIRECTED
        and w.rank in heads
        and (w.group, w.sequence, w.why != "p2p") in joint_ops
    ]


def _shortest_ring(inside: Sequence[Wait]) -> tuple[int, ...]:
    """From the smallest rank that a ring leads back to, always over the smallest ranks."""
    graph: dict[int, set[int]] = {}
    for wait in inside:
        graph.setdefault(wait.rank, set()).update(wait.on)
    following = {rank: sorted(needed & graph.keys()) for rank, needed in graph.items()}
    rings = (ring_from(start, following.__getitem__) for start in sorted(graph))
    return next(filter(None, rings), ())


def ring_from(start: N, targets: Targets[N]) -> tuple[N, ...]:
    """The shortest way from a node back to it; empty without one."""
    paths: deque[tuple[N, ...]] = deque([(start,)])
    visited: set[N] = set()
    while paths:
        path = paths.popleft()
        for target in targets(path[-1]):
            if target == start:
                return path
            if target not in visited:
                visited.add(target)
                paths.append((*path, target))
    return ()


def sinks(starts: Iterable[N], targets: Targets[N]) -> Iterator[frozenset[N]]:
    """The strongly connected components that can be reached and that nothing leads out of."""
    outgoing: dict[N, frozenset[N]] = {}
    todo = [*starts][::-1]
    while todo:
        node = todo.pop()
        if node not in outgoing:
            following = [*targets(node)]
            outgoing[node] = frozenset(following)
            todo += following[::-1]
    reached = reach(outgoing)
    visited: set[frozenset[N]] = set()
    for node, ahead in reached.items():
        if not ahead:
            yield frozenset((node,))
        elif ahead not in visited and all(reached[other] == ahead for other in ahead):
            yield ahead
        visited.add(ahead)


def reach(targets: Mapping[N, frozenset[N]]) -> dict[N, frozenset[N]]:
    """Every node that can be reached from each one, in one step or more.

    Ranks of one collective mostly wait for the same others: their answer is found once, and each
    set of links is gone through once in it.
    """
    closures: dict[frozenset[N], frozenset[N]] = {}
    for direct in targets.values():
        if direct not in closures:
            closures[direct] = _closure(direct, targets)
    return {node: closures[direct] for node, direct in targets.items()}


def _closure(direct: frozenset[N], targets: Mapping[N, frozenset[N]]) -> frozenset[N]:
    nodes: set[N] = set(direct)
    todo = list(direct)
    expanded: set[frozenset[N]] = set()
    while todo:
        further = targets.get(todo.pop(), frozenset())
        if further in expanded:
            continue
        expanded.add(further)
        todo += further - nodes
        nodes |= further
    return frozenset(nodes)


@dataclass(slots=True)
class MatchContext:
    """Groups by `Group.key`, queues by rank, and what was found in them."""

    gathered: Mapping[str, Gathered]
    pasts: Mapping[str, History]
    signatures: Signatures
    families: Families
    heard: frozenset[int]
    queues: Mapping[int, Queue]
    waiting: Waiting = field(init=False)
    hung: tuple[Blame, ...] = ()
    waits: tuple[Wait, ...] = ()
    shifts: tuple[Shift, ...] = ()
    sides: dict[JointOp, tuple[tuple[Side, ...], bool]] = field(default_factory=dict)

    def title(self, key: str) -> str:
        """A group in words."""
        group = self.gathered.get(key)
        return group.group.title() if group is not None else "group known only from a counter"

    def is_off(self, rank: int, key: str | None) -> bool:
        """Whether a rank had called more or fewer collectives of this kind of group, before it came
        to something else, than others of its role; with `key` None, more or fewer transfers.
        """
        units = (unit for unit in self.queues[rank].units if not unit.transfer)
        return any(self.families.out_of_step(u, key) for u in units if u.group != key)


def context_of(recordings: Sequence[Recording], gathered: Mapping[str, Gathered]) -> MatchContext:
    """What ranks did in each group, and what is not over."""
    signatures = Signatures()
    pasts = {key: history(group.tracks, signatures) for key, group in gathered.items()}
    tracks: dict[int, dict[str, Track]] = defaultdict(dict)
    for key, merged in gathered.items():
        for rank, track in merged.tracks.items():
            tracks[rank][key] = track
    queued = queues(recordings, tracks)
    return MatchContext(
        gathered=gathered,
        pasts=pasts,
        signatures=signatures,
        families=Families(gathered, pasts, signatures),
        heard=frozenset(queued),
        queues=queued,
    )
