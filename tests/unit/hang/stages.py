"""What each stage says of recorded jobs, as lines to compare: one job of every verdict and source.

Every third is also seen worse, as in `tests.corpus.degraded`; jobs under NCCL's rules add what is
rare in recorded ones. `stages.json` keeps a checksum of these lines by job and stage. A change that
is meant is taken over by `python -m tests.unit.hang.stages accept`; to be compared with the commit
before, `python -m tests.unit.hang.stages show JOB STAGE` prints the lines.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from grpo_doctor.hang import causes, dumps
from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.decision.confidence import features
from grpo_doctor.hang.decision.root import proposals, roots_of
from grpo_doctor.hang.decision.stall import Stall, stall_of
from grpo_doctor.hang.decision.state import state_of
from grpo_doctor.hang.diagnose import diagnose_scene
from grpo_doctor.hang.model import hosts, matching, parallelism
from grpo_doctor.hang.model.process.actor import Actor
from grpo_doctor.hang.model.rollout_engine import engine_of, refusals
from grpo_doctor.hang.model.scene import Scene, build
from grpo_doctor.hang.model.waiting import tasks, waits, wakeups
from grpo_doctor.hang.model.waiting.graph import Graph
from grpo_doctor.hang.multihost import with_hosts
from grpo_doctor_probes.evidence import Evidence
from tests.nccl_rules.cases import Case
from tests.unit.hang import sampled

KNOWN = Path(__file__).with_name("stages.json")
_FRACTION = re.compile(r"\d+\.\d+(e-?\d+)?")


@dataclass(frozen=True)
class Recorded:
    """One job, with what the stages make of it."""

    evidence: Evidence

    @cached_property
    def scene(self) -> Scene:
        return build(self.evidence)

    @cached_property
    def graph(self) -> Graph:
        return waits.build(self.scene)

    @cached_property
    def stall(self) -> Stall:
        return stall_of(self.scene)

    @cached_property
    def labels(self) -> tuple[Candidate, ...]:
        return proposals(causes.Case(self.scene, self.graph, self.stall.suspects))


def _recordings(job: Recorded) -> Iterator[object]:
    recordings = job.scene.recordings
    for rank in job.scene.world:
        yield rank, recordings.of(rank)
    yield recordings, recordings.unusable


def _matching(job: Recorded) -> Iterator[object]:
    matched = job.scene.matching
    for rank in job.scene.world:
        yield rank, matched.rhythm(rank), matched.backlog(rank)
    yield matched, matching.judge(matched)


def _processes(job: Recorded) -> Iterator[object]:
    yield job.scene.patience
    for actor in job.scene.actors:
        place, motion = actor.place, actor.motion
        yield actor.node.id, motion, place.text(), actor.deed.text(), place.call, place.operation
        yield place.purposes, place.phase, place.long_work, place.communicates, actor.phase
        yield actor.waits, actor.held, actor.spins, actor.device_wait, actor.long_work
        yield actor.outstanding, actor.ended_meanwhile, actor.at_store, actor.throttled_share
        yield motion.only_ticks, motion.progresses, motion.stirs, motion.works_beneath


def _model(job: Recorded) -> Iterator[object]:
    scene = job.scene
    yield scene.world, scene.elsewhere, scene.gpus, sorted(scene.by_rank), sorted(scene.by_parent)
    yield hosts.unseen(scene.evidence.job), hosts.commands(scene.evidence.job)
    groups = parallelism.groups_of(scene.recordings)
    yield from parallelism.coordinates(groups, {}, len(scene.world)).values()
    for actor in scene.actors:
        engine = engine_of(scene, job.graph, actor)
        yield actor.node.id, refusals(scene, actor)
        if engine is not None:
            parts = [_ids(part) for part in (engine.parts, engine.held, engine.dead)]
            yield parts, engine.counted, engine.last_words, engine.refuses, engine.again
            yield engine.works, engine.takes_no_step, engine.starts, engine.core.node.id


def _waiting(job: Recorded) -> Iterator[object]:
    graph, scene = job.graph, job.scene
    for link in graph.links:
        targets = sorted(node.id for node in link.targets)
        yield link.source.id, targets, link.kind, link.label, link.needs
    yield [node.id for node in graph.cycle()], tasks.quiet_s(scene)
    for ask in (tasks.idle_ranks, tasks.drivers, tasks.controllers, tasks.at_work, tasks.pending):
        yield _ids(ask(scene))
    for actor in scene.actors:
        yield actor.node.id, sorted(node.id for node in graph.waiters(actor.node))
        yield wakeups.serving(actor), wakeups.has_timer(actor), wakeups.only_by_signals(actor)
        yield tasks.is_idle(actor), tasks.task_of(actor), tasks.asks(actor)


def _causes(job: Recorded) -> Iterator[object]:
    for label in job.labels:
        yield label, label.node and label.node.id


def _decision(job: Recorded) -> Iterator[object]:
    scene, graph = job.scene, job.graph
    yield job.stall.stalled, _ids(job.stall.suspects), _ids(job.stall.working)
    for root in roots_of(scene, graph, job.labels):
        yield root.cause, root.culprits, root.reason, state_of(scene, graph, root)
        yield features(scene, root, ())
    verdict = diagnose_scene(scene).verdict
    yield verdict.state, verdict.cause, verdict.culprits, verdict.victims, verdict.confidence


def _verdict(job: Recorded) -> Iterator[object]:
    yield diagnose_scene(job.scene)


def _hosts(job: Recorded) -> Iterator[object]:
    yield from (job.evidence.job, job.evidence.problems, job.evidence.blocked, job.evidence.host)
    yield with_hosts(diagnose_scene(job.scene), job.evidence.job)


def _simulated(case: Case) -> Iterator[object]:
    recordings = dumps.read(case.files)
    matched = matching.match(recordings, case.world)
    yield from recordings.ranks
    yield from (matched.waits, matched.cycles, matched.blame, matched.shifts, matched.standings)
    yield matched, matching.judge(matched)


STAGES: dict[str, Callable[[Recorded], Iterator[object]]] = {
    "recordings": _recordings,
    "matching": _matching,
    "processes": _processes,
    "model": _model,
    "waiting": _waiting,
    "causes": _causes,
    "decision": _decision,
    "verdict": _verdict,
    "hosts": _hosts,
}


def differing(*stages: str) -> list[str]:
    """`JOB: STAGE` of everything that these stages say otherwise than is known."""
    known: dict[str, dict[str, str]] = json.loads(KNOWN.read_text())
    return [
        f"{name}: {stage}"
        for name, checksums in known.items()
        if checksums.keys() & set(stages)
        for job in [_job(name)]
        for stage in checksums.keys() & set(stages)
        if _checksum(lines(job, stage)) != checksums[stage]
    ]


def lines(job: Recorded | Case, stage: str) -> list[str]:
    """What a stage says of a job, without what differs from one machine to another."""
    values = STAGES[stage](job) if isinstance(job, Recorded) else _simulated(job)
    return [_line(facts) for facts in values]


def _line(facts: object) -> str:
    text = msgspec.json.encode(facts, order="sorted", enc_hook=str).decode()
    return _FRACTION.sub(lambda number: f"{float(number[0]):.4f}", text)


def _job(name: str) -> Recorded | Case:
    if name.startswith(f"{sampled.SIMULATED}/"):
        return sampled.case(name)
    return Recorded(sampled.evidence(name))


def _ids(actors: Iterable[Actor]) -> list[str]:
    return [actor.node.id for actor in actors]


def _checksum(text: Sequence[str]) -> str:
    return format(zlib.crc32("\n".join(text).encode()), "08x")


def main(arguments: Sequence[str]) -> None:
    """`accept` writes `stages.json` anew; `show JOB STAGE` prints what is said today."""
    if arguments[0] == "accept":
        checksums_by_job = {
            name: {stage: _checksum(lines(_job(name), stage)) for stage in stages}
            for name, stages in sampled.all_of_them()
        }
        rows = (
            f" {json.dumps(name)}: {json.dumps(stages)}"
            for name, stages in checksums_by_job.items()
        )
        KNOWN.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    else:
        name, stage = arguments[1:]
        sys.stdout.write("".join(f"{line}\n" for line in lines(_job(name), stage)))


if __name__ == "__main__":
    main(sys.argv[1:])
