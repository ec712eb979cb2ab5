"""From what was seen to the verdict. Pure: the same evidence gives the same words."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_doctor.hang import postmortem, scene
from grpo_doctor.hang.causes import Candidate, Case
from grpo_doctor.hang.causes.candidate import Sink
from grpo_doctor.hang.judging import beneath, choose, rankless
from grpo_doctor.hang.judging.confidence import LEAST, confidence
from grpo_doctor.hang.judging.once import as_of_one_look
from grpo_doctor.hang.judging.silence import nobody_is_at_it, silence_s
from grpo_doctor.hang.judging.stall import Stall, stall_of
from grpo_doctor.hang.judging.undecided import undecided
from grpo_doctor.hang.process.patience import FLOOR_S
from grpo_doctor.hang.saying.outlook import with_outlook
from grpo_doctor.hang.saying.pictures import edges_of, groups_of, nodes_of, rank_states
from grpo_doctor.hang.saying.spelled import spelled
from grpo_doctor.hang.saying.unseen import unseen
from grpo_doctor.hang.saying.verdicts import Judgement, ended, ending, healthy, judged, slow_work
from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.verdict import Diagnosis, State, Verdict
from grpo_doctor.hang.waiting import waits
from grpo_doctor.hang.waiting.graph import Graph
from grpo_doctor.hang.waiting.nodes import Node, RankNode
from grpo_doctor_probes.evidence import Evidence

LEAST_WAIT_S = 3.0  # hard evidence of a shorter wait may be a moment in a healthy job


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
    roots = choose.roots(found, graph, choose.candidates(case))
    if not stall.stalled:
        roots = tuple(one for one in roots if _shows_in_motion(one))
    if not roots:
        return _without_cause(found, stall), None
    root = beneath.told(found, roots[0])
    state = state_of(found, graph, root)
    if state == "slow" and stall.working and not _named_first(root, stall):
        return slow_work(found, stall), None
    victims = _victims(found, graph, root)
    sure = confidence(found, root, victims)
    if sure < LEAST:
        return undecided(found, stall), None
    return judged(found, Judgement(root, state, victims, sure, roots[1:])), root


def _without_cause(found: Scene, stall: Stall) -> Verdict:
    seen = rankless.launchers(found)
    if seen:
        over = all(one.motion.kind == "gone" for one in seen)
        return ended() if over else rankless.not_started(found, seen)
    left = [one for one in found.by_rank.values() if one.motion.kind != "gone"]
    if 0 < len(left) < len(found.by_rank) and not any(map(_stands_or_waits, left)):
        gone = found.by_rank.keys() - {one.rank for one in left}
        return ending(tuple(sorted(gone)), len(left))
    if not stall.stalled:
        return healthy(found)
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


def state_of(found: Scene, graph: Graph, root: Candidate) -> State:
    """Stuck needs hard evidence, or a wait that is unusual for this job; else it is slow."""
    ended: State = "dead" if root.liveness == "dead" else "stuck"
    if root.certain:
        return ended
    waited = max(root.still_s or 0.0, found.patience.waited_s or 0.0)
    actors = [found.by_rank[rank] for rank in root.culprits if rank in found.by_rank]
    polls = any(actor.motion.kind == "polling" for actor in actors)
    own = waited if root.still_s is None or polls else root.still_s
    helped = _somebody_works(found, graph, root) or _may_wait_for_work(found, actors)
    if root.cannot_move and not helped and own >= LEAST_WAIT_S:
        return ended
    if root.cause in ("cpu-starved", ""):
        return "slow"
    believed = any(_is_long_work(found, actor) for actor in actors) and root.sink < Sink.HELPER
    silent = silence_s(found, root, actors)
    if believed:
        unusual = found.patience.unusual_for_long_work(waited)
    elif root.liveness == "computing" or helped:
        unusual = found.patience.unusual_for_work(waited)
    elif silent < FLOOR_S:
        unusual = found.patience.unusual_for_polls(waited)
    else:
        unusual = found.patience.unusual(min(waited, silent))
    return "stuck" if unusual else "slow"


def _somebody_works(found: Scene, graph: Graph, root: Candidate) -> bool:
    """Whether a process that the culprits wait for gets on: a loader's worker, an engine."""
    nodes = {node for rank in root.culprits for node in graph.reach.get(RankNode(rank), ())}
    helpers = [
        one
        for one in found.actors
        if one.node in nodes and one.member.role != "rank" and not _is_held_up_by(graph, one, root)
    ]
    return any(one.motion.progresses or one.ended_meanwhile for one in helpers)


def _may_wait_for_work(found: Scene, culprits: Sequence[Actor]) -> bool:
    """Whether a culprit waits in C++, which may be for another rank, and one is at work."""
    others = [one for one in found.by_rank.values() if one not in culprits and not one.waits]
    hidden = any(one.waits_in_c for one in culprits)
    return hidden and any(one.motion.progresses for one in others)


def _is_held_up_by(graph: Graph, helper: Actor, root: Candidate) -> bool:
    """Whether it is the root's own node, of which `works` tells, or waits for that: a process may
    burn a core while it waits.
    """
    return helper.node == root.node or root.node in graph.reach.get(helper.node, ())


def _is_long_work(found: Scene, actor: Actor) -> bool:
    """Work of minutes is believed where something moves or the answer comes from elsewhere."""
    if actor.held or actor.long_work is None or nobody_is_at_it(found, actor):
        return False
    return actor.motion.kind != "still" or actor.place.call == "http" or _receives(found, actor)


def _receives(found: Scene, actor: Actor) -> bool:
    """Whether its answer may be on its way: not from ranks that wait themselves."""
    hold = actor.hold
    if hold is None or hold.kind != "socket-receive":
        return False
    peers = [found.by_pid[pid] for pid in hold.peers if pid in found.by_pid]
    waiting = bool(peers) and all(one.member.role == "rank" and one.waits for one in peers)
    return not waiting


def _victims(found: Scene, graph: Graph, root: Candidate) -> tuple[int, ...]:
    nodes = {node for rank in root.culprits for node in graph.waiters(RankNode(rank))}
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
        verdict=with_outlook(spelled(verdict, job.framework)),
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
