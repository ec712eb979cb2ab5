"""From what was seen to the verdict. Pure: the same evidence gives the same words."""

from __future__ import annotations

from grpo_doctor.hang import postmortem
from grpo_doctor.hang.causes import Candidate, Case
from grpo_doctor.hang.causes.candidate import Sink
from grpo_doctor.hang.decision.confidence import LEAST, confidence
from grpo_doctor.hang.decision.render.at_work import ended, ending, healthy, slow_work
from grpo_doctor.hang.decision.render.details import (
    unseen,
    with_layout,
    with_outlook,
    with_spelled_fixes,
)
from grpo_doctor.hang.decision.render.not_started import launchers, not_started
from grpo_doctor.hang.decision.render.pictures import edges_of, groups_of, nodes_of, rank_states
from grpo_doctor.hang.decision.render.stalled import Judgement, judged, undecided
from grpo_doctor.hang.decision.root import proposals, roots_of, with_library_threads
from grpo_doctor.hang.decision.stall import Stall, stall_of
from grpo_doctor.hang.decision.state import as_of_one_look, state_of
from grpo_doctor.hang.model import scene
from grpo_doctor.hang.model.nodes import Node, RankNode
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor.hang.model.waiting.graph import Graph
from grpo_doctor.hang.verdict import Diagnosis, Verdict
from grpo_doctor_probes.evidence import Evidence


def diagnose(evidence: Evidence) -> Diagnosis:
    """The verdict on one visit. Order of processes, ranks and dumps never matters."""
    return diagnose_scene(scene.build(evidence))


def diagnose_scene(found: Scene) -> Diagnosis:
    """The same of evidence that has been put together already."""
    if not found.evidence.looks:
        return postmortem.diagnose(found)
    graph = waits.build(found)
    stall = stall_of(found)
    verdict, root = _verdict(found, graph, stall)
    verdict = as_of_one_look(found, verdict, root)
    guilty: set[Node] = set(map(RankNode, verdict.culprits)) if verdict.cause else set()
    if root is not None and root.node is not None:
        guilty.add(root.node)
    return _diagnosis(found, graph, verdict, root, frozenset(guilty))


def _verdict(found: Scene, graph: Graph, stall: Stall) -> tuple[Verdict, Candidate | None]:
    case = Case(found, graph, stall.suspects)
    roots = roots_of(found, graph, proposals(case))
    if not stall.stalled:
        roots = tuple(one for one in roots if _shows_in_motion(one))
    if not roots:
        return _without_cause(found, graph, stall), None
    root = with_library_threads(found, roots[0])
    state = state_of(found, graph, root)
    if state == "slow" and stall.working and not _named_first(root, stall):
        return slow_work(found, stall), None
    victims = _victims(found, graph, root)
    sure = confidence(found, root, victims)
    if sure < LEAST and _is_a_guess(root):
        return undecided(found, stall), None
    return judged(found, Judgement(root, state, victims, sure, roots[1:])), root


def _is_a_guess(root: Candidate) -> bool:
    """Whether nothing but a line of code speaks for it; a `whole` says itself what is not known."""
    return root.sink <= Sink.LINE and not root.cannot_move and not root.whole


def _without_cause(found: Scene, graph: Graph, stall: Stall) -> Verdict:
    seen = launchers(found)
    if seen:
        over = all(one.motion.kind == "gone" for one in seen)
        return ended() if over else not_started(found, seen)
    left = [one for one in found.by_rank.values() if one.motion.kind != "gone"]
    if 0 < len(left) < len(found.by_rank) and not any(map(_stands_or_waits, left)):
        gone = found.by_rank.keys() - {one.rank for one in left}
        return ending(tuple(sorted(gone)), len(left))
    if not stall.stalled:
        return healthy(found, graph)
    if stall.working:
        return slow_work(found, stall)
    if all(actor.motion.kind == "gone" for actor in found.by_rank.values()):
        return ended()
    return undecided(found, stall)


def _stands_or_waits(actor: Actor) -> bool:
    return actor.waits or actor.motion.kind == "still"


def _shows_in_motion(root: Candidate) -> bool:
    """Whether it can be seen while no rank stands still for longer than a moment."""
    return root.certain or root.cause == "cpu-starved"


def _named_first(root: Candidate, stall: Stall) -> bool:
    """Whether a soft cause says more than that its rank is at work."""
    working = {actor.rank for actor in stall.working}
    return root.sink >= Sink.HELPER or not set(root.culprits) <= working


def _victims(found: Scene, graph: Graph, root: Candidate) -> tuple[int, ...]:
    nodes = graph.waiters(*map(RankNode, root.culprits))
    if root.node and not root.culprits:
        nodes |= graph.waiters(root.node)
    waiting = {rank for rank in found.by_rank if RankNode(rank) in nodes}
    if not waiting:
        waiting = {rank for rank, actor in found.by_rank.items() if actor.waits}
    return tuple(sorted(waiting - set(root.culprits)))


def _diagnosis(
    found: Scene, graph: Graph, verdict: Verdict, root: Candidate | None, guilty: frozenset[Node]
) -> Diagnosis:
    evidence = found.evidence
    job = evidence.job
    return Diagnosis(
        host=job.host,
        framework=job.framework,
        world_size=job.world_size,
        ranks_seen=tuple(sorted(found.by_rank)),
        ranks_missing=job.ranks_missing,
        verdict=with_outlook(
            with_layout(found, with_spelled_fixes(verdict, job.framework)),
            root.can_go_on if root is not None else "",
        ),
        ranks=rank_states(found, graph),
        seconds=round(evidence.cost.seconds, 3),
        max_pause_ms=round(evidence.cost.max_pause_ms, 3),
        taken_unix_ns=evidence.taken_unix_ns,
        nodes=nodes_of(found, graph, guilty),
        edges=edges_of(graph),
        cycle=tuple(node.id for node in graph.cycle())
        if verdict.cause in ("group-order-cycle", "collective-mismatch")
        else (),
        stacks=groups_of(found),
        undo=root.undo if root is not None else (),
        problems=unseen(found),
    )
