"""Verdicts on jobs that make progress, are slow, or end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from grpo_doctor.hang.causes.description import in_phase, motion_item, stack_item, working_class
from grpo_doctor.hang.decision.render.stalled import hidden
from grpo_doctor.hang.decision.silence import quiet_s
from grpo_doctor.hang.decision.stall import Stall, called_since_first_look
from grpo_doctor.hang.model.engine_counters import counted
from grpo_doctor.hang.model.nodes import Node
from grpo_doctor.hang.model.process.known_code import Purpose
from grpo_doctor.hang.model.process.progress import uses_gpu
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.model.waiting.chain import family
from grpo_doctor.hang.model.waiting.graph import Graph
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor.hang.wording import (
    bytes_text,
    conjugated,
    ranks_text,
    seconds_text,
    sentence,
    verb,
)
from grpo_doctor_probes.evidence import LogTail

_WORK: dict[Purpose, str] = {
    "checkpoint": "writes a checkpoint",
    "compile": "compiles",
    "load": "loads a model",
    "download": "downloads",
    "evaluate": "evaluates",
    "generate": "generates",
    "offload": "moves weights",
    "reward": "computes rewards",
    "dataload": "loads data",
    "train": "trains",
    "logprob": "computes log-probabilities",
}


# tqdm: `45%|####5     | 9/20 [00:30<00:37,  3.4s/it]`; `?` instead of a time before the first.
_BAR = re.compile(r"\d{1,12}/\d{1,12} \[[\d:]{1,12}<((?:\d{1,4}:){1,2}\d{2})[,\]]")
# What shows a bar of its own. In others the last bar in the log is that of the whole training.
_COUNTED: frozenset[Purpose] = frozenset({"evaluate", "generate", "load", "download"})
FRESH_S = 30.0  # a bar that was written earlier is of work that is done, or that stands


def seconds_left(pid: int, purpose: Purpose | None, logs: Sequence[LogTail]) -> float | None:
    """Seconds until a process's work is done, by the last bar in its log; None without a bar."""
    if purpose not in _COUNTED:
        return None
    own = [log for log in logs if log.pid == pid and log.written_s_ago <= FRESH_S]
    newest = min(own, key=lambda log: log.written_s_ago, default=None)
    return bar_seconds(newest.lines) if newest is not None else None


def bar_seconds(lines: Sequence[str]) -> float | None:
    """The time that the last progress bar says is left, in seconds."""
    times = [match for line in lines for match in _BAR.findall(line)]
    if not times:
        return None
    seconds = 0.0
    for part in times[-1].split(":"):
        seconds = seconds * 60 + int(part)
    return seconds


def healthy(scene: Scene, graph: Graph) -> Verdict:
    """Nothing stands, as far as can be seen in so short a time: healthy where progress was seen."""
    ranks = list(scene.by_rank.values())
    got_on = _got_on(scene, graph)
    if not got_on and any(actor.motion.kind == "unknown" for actor in ranks):
        return hidden(scene)
    phases = sorted({actor.phase for actor in ranks if actor.phase})
    return Verdict(
        state="healthy" if got_on else "slow",
        cause="",
        phase=phases[0] if len(phases) == 1 else None,
        summary=sentence(_progress_text(scene, got_on)),
        evidence=tuple(motion_item(actor) for actor in ranks[:8]),
    )


def _got_on(scene: Scene, graph: Graph) -> bool:
    """Return whether anything that the job needs made progress. A process that spins at one line
    may wait for its GPU, and one that wakes from time to time may poll forever.
    """
    counts = counted([look for looks in scene.evidence.engines for look in looks])
    if counts is not None and counts.gets_on:
        return True
    ranks = scene.by_rank.values()
    needed = frozenset[Node]().union(*(graph.reach.get(actor.node, ()) for actor in ranks))
    own = family(scene, list(ranks))
    helpers = [actor for actor in scene.actors if actor.node in needed or actor in own]
    working = any(actor.motion.progresses for actor in helpers if actor not in ranks)
    called = any(actor.motion.got_on for actor in tasks.at_work(scene))
    return working or called or any(map(_is_seen_to_work, ranks)) or called_since_first_look(scene)


def _is_seen_to_work(actor: Actor) -> bool:
    """Where the host blocks in a collective, as with gloo, what wakes it is what comes from others;
    a host that waits for a GPU runs all the time, or looks again every millisecond.
    """
    motion = actor.motion
    if motion.kind == "working":
        return True
    if actor.look is None or uses_gpu(actor.look):
        return False
    beside = actor.tid != actor.pid
    ran = beside and quiet_s(actor, frozenset({actor.tid})) < motion.seconds
    return ran or (actor.place.communicates and motion.kind == "polling" and motion.stirs)


def _progress_text(scene: Scene, got_on: bool) -> str:
    ranks = scene.by_rank.values()
    count = len(ranks)
    waited = seconds_text(scene.patience.waited_s or 0.0)
    working = sum(actor.motion.kind == "working" for actor in ranks)
    if got_on:
        everybody = {1: "the only rank", 2: "both ranks"}.get(count, f"all {count} ranks")
        subject = f"{working} of {count} ranks" if working < count else everybody
        waiting = f", the others have waited for {waited}" if 0 < working < count else ""
        if not working and called_since_first_look(scene):
            return "the job is healthy: its ranks started collectives between two samples"
        if not working:
            return "the job is healthy: processes that its ranks wait for made progress"
        return f"the job is healthy: {subject} made progress between two samples{waiting}"
    if all(actor.motion.kind == "still" for actor in ranks):
        return f"slow: no rank has made progress for {waited}, which is not unusual yet"
    if any(actor.motion.kind in ("busy", "spinning") for actor in ranks):
        return (
            "slow: no rank made visible progress: some use a core at one line, which is either "
            "a long computation or a wait for the GPU"
        )
    return (
        "slow: no rank made visible progress: they woke now and then and did nothing between "
        "two samples, which is not unusual yet"
    )


def job_ended(left: Iterable[Actor]) -> Verdict:
    """No process of the job is left: dead, unless each is known to have ended in order."""
    codes = {actor.look.exit_code if actor.look is not None else None for actor in left}
    summary = "The job ended during the inspection."
    if codes == {0}:
        return Verdict(
            state="healthy",
            cause="",
            summary=f"{summary} Every rank exited with code 0.",
        )
    return Verdict(
        state="dead",
        cause="",
        summary=f"{summary} No rank is left.",
        confirm=("Read the end of its log: it shows whether the job finished or failed.",),
    )


def ending(ranks: tuple[int, ...], remaining: int) -> Verdict:
    """Return the verdict on ranks that ended while no other rank waits for them yet."""
    alive = f"{remaining} other{'s continue' if remaining != 1 else ' continues'}"
    return Verdict(
        state="slow",
        cause="",
        summary=sentence(
            f"{ranks_text(ranks)} exited during the inspection, and {alive}: the job may be ending"
        ),
        confirm=("Run attach again in a few seconds, to see whether the job has ended.",),
    )


def slow_work(scene: Scene, stall: Stall) -> Verdict:
    """Some ranks wait while others work: slow, not stuck."""
    workers = sorted(stall.working, key=lambda actor: actor.rank if actor.rank is not None else -1)
    ranks = tuple(actor.rank for actor in workers if actor.rank is not None)
    waiting_ranks = {rank for rank, actor in scene.by_rank.items() if actor.waits}
    victims = tuple(sorted(waiting_ranks.difference(ranks)))
    first = workers[0]
    waiting = f"; {ranks_text(victims)} {verb(victims, 'waits')}" if victims else ""
    since = scene.patience.waited_s
    for_s = f" for {seconds_text(since)}" if victims and since else ""
    doing = f"{_doing(first)}{in_phase(first)}{_rate(first)}"
    left_s = seconds_left(first.pid, first.long_work, scene.evidence.logs)
    outlook = f", with about {seconds_text(left_s)} left" if left_s is not None else ""
    # Long work has no class of its own, but for one line that burns a core in every look.
    at_it = first.long_work is None or first.motion.kind == "busy"
    held_up = bool(victims) and at_it and scene.patience.unusual()
    return Verdict(
        state="slow",
        cause=working_class(first, first) if held_up else "",
        culprits=ranks,
        victims=victims,
        certainty="likely" if held_up else "",
        phase=first.phase,
        summary=sentence(
            f"slow, not stuck: {ranks_text(ranks)} {conjugated(doing, len(ranks))}{outlook}"
            f"{waiting}{for_s}"
        ),
        evidence=tuple(i for actor in workers[:4] for i in (motion_item(actor), stack_item(actor))),
        confirm=("Run attach again in a minute: a working rank will be at another line.",),
    )


def _doing(actor: Actor) -> str:
    purpose = actor.long_work or actor.place.purpose
    return _WORK.get(purpose, "works") if purpose is not None else "works"


def _rate(actor: Actor) -> str:
    if actor.motion.io_bytes < 1_000_000:
        return ""
    return f", {bytes_text(actor.motion.io_bytes)} in {seconds_text(actor.motion.seconds)}"
