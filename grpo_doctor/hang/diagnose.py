"""From what was seen to the verdict. Pure: the same evidence gives the same words.

The root is the end of the waits that explains the rest, of what all causes propose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from grpo_doctor.hang.causes import CAUSES, Candidate, Case
from grpo_doctor.hang.causes.candidate import Sink, busy_class, in_phase
from grpo_doctor.hang.decision.render.document import (
    edges_of,
    nodes_of,
    rank_states,
    stack_groups,
    unseen_parts,
    with_layout,
    with_outlook,
    with_spelled_fixes,
    with_timeout,
)
from grpo_doctor.hang.decision.render.ray_start import without_ranks
from grpo_doctor.hang.decision.render.verdicts import (
    ending,
    healthy,
    job_ended,
    judged,
    launchers,
    not_started,
    slow_work,
    undecided,
    without_culprit,
)
from grpo_doctor.hang.decision.state import MOMENT_S, Stall, as_of_one_look, stall_of, state_of
from grpo_doctor.hang.model.matching.model import strongest
from grpo_doctor.hang.model.nodes import Node, RankNode, name_of
from grpo_doctor.hang.model.view import JobView, build
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor.hang.verdict import (
    SCHEMA,
    Cost,
    Diagnosis,
    Item,
    JobSeen,
    Verdict,
    WaitGraph,
    with_worth,
)
from grpo_doctor.hang.wording import conjugated, ranks_text
from grpo_doctor_probes.evidence import Evidence


def diagnose(evidence: Evidence) -> Diagnosis:
    """The verdict on one visit. Order of processes, ranks and dumps never matters."""
    return diagnose_view(build(evidence))


def diagnose_view(view: JobView) -> Diagnosis:
    """The same of evidence that has been put together already."""
    graph = waits.build(view)
    stall = stall_of(view)
    verdict, root = _verdict(view, graph, stall)
    verdict = as_of_one_look(view, verdict, root)
    guilty: set[Node] = set(map(RankNode, verdict.culprits)) if verdict.cause else set()
    if root is not None and root.node is not None:
        guilty.add(root.node)
    return _diagnosis(view, graph, verdict, root, frozenset(guilty))


def _verdict(view: JobView, graph: Graph, stall: Stall) -> tuple[Verdict, Candidate | None]:
    case = Case(view, graph, stall.suspects)
    proposed = [label for cause in CAUSES for label in cause(case)]
    # In an order that does not depend on that of ranks or evidence.
    proposed.sort(key=lambda label: (label.culprits, -label.sink, label.cause, label.reason))
    roots = roots_of(view, graph, proposed)
    if not stall.stalled:
        # What can be seen while no rank stands still for longer than a moment.
        roots = tuple(
            label
            for label in roots
            if label.certain or (label.liveness == "progressing" and label.cause)
        )
    if not roots:
        if not view.evidence.looks:
            return without_culprit(view), None
        return without_ranks(view) or _without_cause(view, graph, stall), None
    root = with_library_threads(view, roots[0]) if view.evidence.looks else together(roots)
    state = state_of(view, graph, root)
    of_working = set(root.culprits) <= {proc.rank for proc in stall.working}
    # A soft cause that says no more than that its rank is busy.
    if state == "slow" and stall.working and root.sink < Sink.HELPER and of_working:
        return slow_work(view, stall), None
    victims = _victims(view, graph, root)
    if root.is_a_guess:
        return undecided(view, stall), None
    return judged(view, root, state, victims, roots[1:]), root


def _without_cause(view: JobView, graph: Graph, stall: Stall) -> Verdict:
    starters = launchers(view)
    if starters:
        over = all(proc.activity.kind == "gone" for proc in starters)
        return job_ended(starters) if over else not_started(view, starters)
    alive = [proc for proc in view.by_rank.values() if proc.activity.kind != "gone"]
    waiting = any(proc.waits or proc.activity.kind == "still" for proc in alive)
    if 0 < len(alive) < len(view.by_rank) and not waiting:
        ended_ranks = view.by_rank.keys() - {proc.rank for proc in alive}
        return ending(tuple(sorted(ended_ranks)), len(alive))
    if not stall.stalled:
        return healthy(view, graph)
    if stall.working:
        return slow_work(view, stall)
    if all(proc.activity.kind == "gone" for proc in view.by_rank.values()):
        return job_ended(view.by_rank.values())
    return undecided(view, stall)


def _victims(view: JobView, graph: Graph, root: Candidate) -> tuple[int, ...]:
    nodes = graph.waiters(*map(RankNode, root.culprits))
    if root.node and not root.culprits:
        nodes |= graph.waiters(root.node)
    waiting = {rank for rank in view.seen if RankNode(rank) in nodes} or view.waiting
    return tuple(sorted(waiting - set(root.culprits)))


def _diagnosis(
    view: JobView, graph: Graph, verdict: Verdict, root: Candidate | None, guilty: frozenset[Node]
) -> Diagnosis:
    evidence = view.evidence
    job = evidence.job
    worth = with_worth(verdict, verdict.certainty)
    return Diagnosis(
        schema=SCHEMA,
        job=JobSeen(
            host=job.host,
            framework=job.framework,
            world_size=job.world_size or view.matching.world_size,
            ranks_seen=view.seen,
            ranks_missing=view.missing,
        ),
        verdict=with_outlook(
            with_timeout(view, with_layout(view, with_spelled_fixes(worth, job))),
            root.can_go_on if root is not None else "",
        ),
        ranks=rank_states(view, graph),
        cost=Cost(
            seconds=round(evidence.cost.seconds, 3),
            max_pause_ms=round(evidence.cost.max_pause_ms, 3),
        ),
        taken_unix_ns=evidence.taken_unix_ns,
        graph=WaitGraph(
            nodes=nodes_of(view, graph, guilty),
            edges=edges_of(graph),
            cycle=tuple(map(name_of, graph.cycle()))
            if verdict.cause in ("group-order-cycle", "collective-mismatch")
            else (),
        ),
        stacks=stack_groups(view),
        problems=unseen_parts(view),
    )


@dataclass(frozen=True, slots=True)
class _End:
    label: Candidate
    ranks: frozenset[Node]
    component: frozenset[Node]
    ahead: frozenset[frozenset[Node]]

    @classmethod
    def of(cls, graph: Graph, label: Candidate) -> _End:
        ranks = frozenset[Node](map(RankNode, label.culprits))
        components = {graph.component(node) for node in ranks}
        ahead = frozenset(graph.reach.get(node, frozenset()) for node in ranks)
        return cls(label, ranks, frozenset[Node]().union(*components), ahead)


def roots_of(view: JobView, graph: Graph, labels: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The labels of the sinks: the components of the graph from which no wait leads on to another
    one with a label. Best first.
    """
    best = _best_of_each(labels)
    ends = [_End.of(graph, label) for label in best]
    sinks = [end.label for end in ends if not any(_explains(other, end) for other in ends)]
    merged = _merged(view, sinks or best)
    return tuple(sorted(merged, key=lambda label: _strength(view, graph, label), reverse=True))


def _best_of_each(labels: Iterable[Candidate]) -> list[Candidate]:
    best: dict[tuple[int, ...], Candidate] = {}
    for label in labels:
        rival = best.get(label.culprits)
        if rival is None or _quality(label) > _quality(rival):
            best[label.culprits] = label
    return list(best.values())


def _quality(label: Candidate) -> tuple[int, bool]:
    return label.sink, label.cannot_move


def _explains(cause: _End, symptom: _End) -> bool:
    """Return whether the symptom's ranks wait, in the end, for the cause's; of one component the
    label of the stronger edge explains it.
    """
    if not symptom.ranks:
        return False
    if not cause.component.isdisjoint(symptom.component):
        return _quality(cause.label) > _quality(symptom.label)
    return all(not cause.ranks.isdisjoint(nodes) for nodes in symptom.ahead)


def _asks(view: JobView, label: Candidate) -> bool:
    """Whether all that is known is that its ranks ask for something, sleep and ask again: they may
    well wait for a rank that is silent.
    """
    ranks = [view.by_rank[rank] for rank in label.culprits if rank in view.by_rank]
    woke = (
        activity.kind == "polling" or (activity.still_s is not None and activity.still_s < MOMENT_S)
        for activity in (proc.activity for proc in ranks)
    )
    return bool(ranks) and label.sink <= Sink.LINE and all(woke)


def _merged(view: JobView, labels: list[Candidate]) -> list[Candidate]:
    """Merge labels of ranks with the same problem; the texts are those of the first rank."""
    groups: dict[tuple[str, str, bool], list[Candidate]] = {}
    for label in labels:
        key = (label.cause, label.liveness, _asks(view, label))
        groups.setdefault(key, []).append(label)
    merged: list[Candidate] = []
    for group in groups.values():
        first = min(group, key=lambda label: label.culprits)
        others = [label for label in group if label.reason != first.reason]
        merged.append(
            replace(
                first,
                culprits=tuple(sorted({rank for label in group for rank in label.culprits})),
                likewise=tuple(sorted(rank for label in others for rank in label.culprits)),
                evidence=tuple(item for label in group[:4] for item in label.evidence),
                confirm=tuple(dict.fromkeys(s for label in group[:2] for s in label.confirm)),
                still_s=max(
                    (s for label in group if (s := label.still_s) is not None), default=None
                ),
                whole=first.whole if len(group) == 1 else "",
            )
        )
    return merged


def together(roots: Sequence[Candidate]) -> Candidate:
    """Return the strongest root, with the culprits of all others that have any.

    For recordings alone: they show that several ranks fail, and not which of them failed first.
    """
    first, *others = roots
    named = [first, *(root for root in others if root.culprits and not root.either)]
    if len(named) == 1 or not first.culprits:
        return first
    statements = (
        f"{ranks_text(root.culprits)} {conjugated(root.reason, len(root.culprits))}"
        for root in named
    )
    return replace(
        first,
        culprits=tuple(sorted({rank for root in named for rank in root.culprits})),
        evidence=tuple(item for root in named for item in root.evidence),
        whole="; ".join(statements),
    )


class _Strength(NamedTuple):
    """What decides between causes at unrelated ends, the first difference first."""

    cannot_move: bool
    idle: bool  # not seen to compute or progress
    blocked: bool  # not merely asking again and again
    waiting_ranks: int
    blamed: bool  # by the recordings too
    sink: Sink
    fewer_culprits: int
    lower_rank: int


def _strength(view: JobView, graph: Graph, label: Candidate) -> _Strength:
    behind = graph.waiters(*map(RankNode, label.culprits))
    waiters = [node for node in behind if isinstance(node, RankNode)]
    blamed = any(b.rank in label.culprits for b in strongest(view.matching.blame))
    return _Strength(
        cannot_move=label.cannot_move,
        idle=label.liveness not in ("computing", "progressing"),
        blocked=not _asks(view, label),
        waiting_ranks=len(waiters),
        blamed=blamed,
        sink=label.sink,
        fewer_culprits=-len(label.culprits),
        lower_rank=-min(label.culprits, default=0),
    )


def with_library_threads(view: JobView, root: Candidate) -> Candidate:
    """Return the root; as computing where it is not proven and library threads use a core."""
    ranks = [view.by_rank[rank] for rank in root.culprits if rank in view.by_rank]
    at_work = [proc for proc in ranks if proc.activity.library_works]
    if root.cannot_move or not at_work:
        return root
    items = (
        Item(
            "proc",
            proc.rank,
            f"library threads used {proc.activity.native_share:.0%} of a core while its Python "
            "code waited",
        )
        for proc in at_work[:3]
    )
    computes = replace(root, liveness="computing", evidence=(*items, *root.evidence))
    holds = [proc.hold for proc in ranks]
    alone = all(proc.activity.library_works for proc in ranks)
    if not alone or any(hold is not None and hold.kind != "futex" for hold in holds):
        return computes
    first = ranks[0]
    return replace(
        computes,
        cause=busy_class(first),
        reason=f"waits{in_phase(first)} for library threads, which compute",
        whole="",
        fixes=(),
        confirm=(
            first.shell("top -H -b -n 1 -p {pid}  # its threads, and how much each computes"),
        ),
    )
