"""From what was seen to the verdict. Pure: the same evidence gives the same words."""

from __future__ import annotations

from grpo_doctor.hang.causes import Candidate, Case
from grpo_doctor.hang.causes.candidate import Sink
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
    Judgement,
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
from grpo_doctor.hang.decision.root import proposals, roots_of, together, with_library_threads
from grpo_doctor.hang.decision.state import Stall, as_of_one_look, stall_of, state_of
from grpo_doctor.hang.model.nodes import Node, RankNode
from grpo_doctor.hang.model.view import JobView, build
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor.hang.verdict import (
    SCHEMA,
    Cost,
    Diagnosis,
    JobSeen,
    Verdict,
    WaitGraph,
    with_worth,
)
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
    roots = roots_of(view, graph, proposals(case))
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
    if state == "slow" and stall.working and not _named_first(root, stall):
        return slow_work(view, stall), None
    victims = _victims(view, graph, root)
    if root.is_a_guess:
        return undecided(view, stall), None
    return judged(view, Judgement(root, state, victims, root.certainty, roots[1:])), root


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


def _named_first(root: Candidate, stall: Stall) -> bool:
    """Return whether a soft cause says more than that its rank is busy."""
    working = {proc.rank for proc in stall.working}
    return root.sink >= Sink.HELPER or not set(root.culprits) <= working


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
            with_timeout(view, with_layout(view, with_spelled_fixes(worth, job.framework))),
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
            cycle=tuple(node.id for node in graph.cycle())
            if verdict.cause in ("group-order-cycle", "collective-mismatch")
            else (),
        ),
        stacks=stack_groups(view),
        problems=unseen_parts(view),
    )
