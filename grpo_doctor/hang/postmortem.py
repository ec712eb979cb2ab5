"""The verdict of flight-recorder dumps alone: the job is gone, or on other machines."""

from __future__ import annotations

import msgspec

from grpo_doctor.hang.certainty import with_worth
from grpo_doctor.hang.decision.render.details import unseen, with_layout, with_spelled_fixes
from grpo_doctor.hang.decision.render.pictures import edges_of, nodes_of
from grpo_doctor.hang.decision.render.stalled import RECORDERS_OFF, recorders_are_off
from grpo_doctor.hang.model import matching
from grpo_doctor.hang.model.matching import Ruling
from grpo_doctor.hang.model.nodes import RankNode
from grpo_doctor.hang.model.view import JobView
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor.hang.verdict import (
    SCHEMA,
    Cost,
    Diagnosis,
    Fix,
    Item,
    JobSeen,
    RankState,
    State,
    Verdict,
    WaitGraph,
)
from grpo_doctor.hang.wording import ranks_text, sentence, verb

_XID = "dmesg -T | grep -i xid  # on the host of the rank named above"
_LOOK = "py-spy dump --pid PID  # on the host of the rank named above, if it still runs"
_CALL_ALIKE = (Fix("Make every rank call the same collectives in the same order."),)
_FIXES = {
    "collective-mismatch": _CALL_ALIKE,
    "collective-skipped": _CALL_ALIKE,
    "group-order-cycle": (Fix("Use the process groups in one order on all ranks."),),
    "gpu-fault": (Fix("Look for an Xid of this GPU, drain its host, and reset or replace it."),),
}

# What the recorders of several ranks show together; other grounds compare one rank with the past.
_SHOWN = frozenset({"awaited", "outnumbered", "shown"})


def diagnose(view: JobView) -> Diagnosis:
    """Judges what the recordings allow to say."""
    ruling = _of_usable(matching.judge(view.matching), view.recordings.unusable)
    graph = waits.build(view)
    guilty = frozenset(map(RankNode, ruling.culprits))
    heard = tuple(sorted(view.matching.heard))
    size = view.evidence.job.world_size or view.matching.world_size
    missing = tuple(rank for rank in range(size or 0) if rank not in heard)
    return Diagnosis(
        schema=SCHEMA,
        job=JobSeen(
            host=view.evidence.job.host,
            framework=view.evidence.job.framework,
            world_size=size,
            ranks_seen=heard,
            ranks_missing=missing,
        ),
        verdict=with_layout(
            view, with_spelled_fixes(_judged(view, ruling), view.evidence.job.framework)
        ),
        ranks=tuple(_rank(view, rank) for rank in heard),
        cost=Cost(seconds=round(view.evidence.cost.seconds, 3), max_pause_ms=0.0),
        taken_unix_ns=view.evidence.taken_unix_ns,
        graph=WaitGraph(
            nodes=nodes_of(view, graph, guilty),
            edges=edges_of(graph),
            cycle=tuple(node.id for node in graph.cycle())
            if ruling.cause == "group-order-cycle"
            else (),
        ),
        problems=unseen(view),
    )


def _of_usable(ruling: Ruling, unusable: frozenset[int]) -> Ruling:
    """A rank whose dump can't be used is not missing: what it did is not known, and neither is
    whether a job is well of which it is a part.
    """
    if not ruling.cause and unusable:
        unread = ranks_text(sorted(unusable))
        text = f"There is no usable recording of {unread}: {ruling.summary}"
        return msgspec.structs.replace(ruling, cause="unknown", unusual=False, summary=text)
    awaited = set(ruling.culprits) & unusable if ruling.grounds == "unrecorded" else set()
    if not awaited:
        return ruling
    facts = tuple((rank, text) for rank, text in ruling.facts if rank not in awaited)
    culprits = tuple(rank for rank in ruling.culprits if rank not in awaited)
    if culprits:
        summary = next((text for rank, text in facts if rank in culprits), ruling.summary)
        return msgspec.structs.replace(ruling, culprits=culprits, facts=facts, summary=summary)
    waiting = f"{ranks_text(ruling.victims)} {verb(ruling.victims, 'waits')}"
    text = f"{waiting} for {ranks_text(sorted(awaited))}, whose recording can't be used"
    return Ruling("unknown", victims=ruling.victims, unusual=True, summary=text, facts=facts)


def _judged(view: JobView, ruling: Ruling) -> Verdict:
    verdict = _verdict(view, ruling)
    return with_worth(verdict, verdict.certainty)


def _verdict(view: JobView, ruling: Ruling) -> Verdict:
    if recorders_are_off(view):
        return Verdict(
            state="slow",
            cause="unknown",
            summary="The recordings have no entries, so attach cannot judge the job.",
            confirm=(_LOOK,),
            fixes=(Fix(RECORDERS_OFF),),
        )
    return Verdict(
        state=_state(view, ruling),
        cause=ruling.cause,
        culprits=ruling.culprits,
        victims=ruling.victims,
        certainty=_certainty(ruling),
        summary=sentence(ruling.summary or "the recordings show no rank behind the others"),
        evidence=tuple(Item("flight recorder", rank, text) for rank, text in ruling.facts),
        confirm=_confirm(ruling),
        fixes=_FIXES.get(ruling.cause, ()),
    )


def _confirm(ruling: Ruling) -> tuple[str, ...]:
    if ruling.cause == "gpu-fault":
        return (_XID,)
    return (_LOOK,) if ruling.culprits else ()


def _certainty(ruling: Ruling) -> str:
    if ruling.cause == "unknown" and not ruling.culprits:
        return ""
    if ruling.either or ruling.grounds == "either":
        return "possible"
    return "proven" if ruling.grounds in _SHOWN else "likely"


def _state(view: JobView, ruling: Ruling) -> State:
    """Without one recording nothing was seen, as when a visit is interrupted at its beginning."""
    if not view.matching.heard:
        return "slow"
    if ruling.cause == "unknown" and not ruling.unusual and not ruling.culprits:
        return "slow"
    return "stuck" if ruling.cause else "healthy"


def _rank(view: JobView, rank: int) -> RankState:
    waits_for = [wait for wait in view.matching.waits if wait.rank == rank]
    first = waits_for[0] if waits_for else None
    hung = any((blame.rank, blame.reason) == (rank, "device-hung") for blame in view.matching.blame)
    return RankState(
        rank=rank,
        pid=None,
        role="rank",
        state="waiting" if first else "unknown",
        where=f"{first.operation} #{first.sequence}" if first else "",
        waiting_for="its own GPU" if hung else ranks_text(first.on) if first else "",
    )
