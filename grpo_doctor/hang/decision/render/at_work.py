"""Verdicts on jobs that make progress, are slow, or end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from grpo_doctor.hang.causes.description import activity_item, in_phase, stack_item, working_class
from grpo_doctor.hang.decision.render.stalled import hidden
from grpo_doctor.hang.decision.stall import Stall, called_since_first_look, quiet_s
from grpo_doctor.hang.model.engine_counters import counted
from grpo_doctor.hang.model.nodes import Node
from grpo_doctor.hang.model.process.progress import uses_gpu
from grpo_doctor.hang.model.process.stacks import Purpose
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor.hang.model.waiting.wakeups import family
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


def healthy(view: JobView, graph: Graph) -> Verdict:
    """Nothing stands, as far as can be seen in so short a time: healthy where progress was seen."""
    ranks = list(view.by_rank.values())
    progressed = _got_on(view, graph)
    if not progressed and any(proc.activity.kind == "unknown" for proc in ranks):
        return hidden(view)
    phases = sorted({proc.phase for proc in ranks if proc.phase})
    return Verdict(
        state="healthy" if progressed else "slow",
        cause="",
        phase=phases[0] if len(phases) == 1 else None,
        summary=sentence(_progress_text(view, progressed)),
        evidence=tuple(activity_item(proc) for proc in ranks[:8]),
    )


def _got_on(view: JobView, graph: Graph) -> bool:
    """Return whether anything that the job needs made progress. A process that spins at one line
    may wait for its GPU, and one that wakes from time to time may poll forever.
    """
    counts = counted([look for looks in view.evidence.engines for look in looks])
    if counts is not None and counts.makes_progress:
        return True
    ranks = view.by_rank.values()
    needed = frozenset[Node]().union(*(graph.reach.get(proc.node, ()) for proc in ranks))
    own = family(view, list(ranks))
    helpers = [proc for proc in view.procs if proc.node in needed or proc in own]
    working = any(proc.activity.progresses for proc in helpers if proc not in ranks)
    called = any(proc.activity.progressed for proc in tasks.at_work(view))
    return working or called or any(map(_is_seen_to_work, ranks)) or called_since_first_look(view)


def _is_seen_to_work(proc: Process) -> bool:
    """Where the host blocks in a collective, as with gloo, what wakes it is what comes from others;
    a host that waits for a GPU runs all the time, or looks again every millisecond.
    """
    activity = proc.activity
    if activity.kind == "working":
        return True
    if proc.look is None or uses_gpu(proc.look):
        return False
    beside = proc.tid != proc.pid
    ran = beside and quiet_s(proc, frozenset({proc.tid})) < activity.seconds
    return ran or (proc.place.communicates and activity.kind == "polling" and activity.is_active)


def _progress_text(view: JobView, progressed: bool) -> str:
    ranks = view.by_rank.values()
    count = len(ranks)
    waited = seconds_text(view.wait_history.waited_s or 0.0)
    working = sum(proc.activity.kind == "working" for proc in ranks)
    if progressed:
        everybody = {1: "the only rank", 2: "both ranks"}.get(count, f"all {count} ranks")
        subject = f"{working} of {count} ranks" if working < count else everybody
        waiting = f", the others have waited for {waited}" if 0 < working < count else ""
        if not working and called_since_first_look(view):
            return "the job is healthy: its ranks started collectives between two samples"
        if not working:
            return "the job is healthy: processes that its ranks wait for made progress"
        return f"the job is healthy: {subject} made progress between two samples{waiting}"
    if all(proc.activity.kind == "still" for proc in ranks):
        return f"slow: no rank has made progress for {waited}, which is not unusual yet"
    if any(proc.activity.kind in ("busy", "spinning") for proc in ranks):
        return (
            "slow: no rank made visible progress: some use a core at one line, which is either "
            "a long computation or a wait for the GPU"
        )
    return (
        "slow: no rank made visible progress: they woke now and then and did nothing between "
        "two samples, which is not unusual yet"
    )


def job_ended(left: Iterable[Process]) -> Verdict:
    """No process of the job is left: dead, unless each is known to have ended in order."""
    codes = {proc.look.exit_code if proc.look is not None else None for proc in left}
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


def slow_work(view: JobView, stall: Stall) -> Verdict:
    """Some ranks wait while others work: slow, not stuck."""
    workers = sorted(stall.working, key=lambda proc: proc.rank if proc.rank is not None else -1)
    ranks = tuple(proc.rank for proc in workers if proc.rank is not None)
    waiting_ranks = {rank for rank, proc in view.by_rank.items() if proc.waits}
    victims = tuple(sorted(waiting_ranks.difference(ranks)))
    first = workers[0]
    waiting = f"; {ranks_text(victims)} {verb(victims, 'waits')}" if victims else ""
    since = view.wait_history.waited_s
    for_s = f" for {seconds_text(since)}" if victims and since else ""
    doing = f"{_doing(first)}{in_phase(first)}{_rate(first)}"
    left_s = seconds_left(first.pid, first.long_work, view.evidence.logs)
    outlook = f", with about {seconds_text(left_s)} left" if left_s is not None else ""
    # Long work has no class of its own, but for one line that burns a core in every look.
    at_it = first.long_work is None or first.activity.kind == "busy"
    held_up = bool(victims) and at_it and view.wait_history.unusual()
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
        evidence=tuple(i for proc in workers[:4] for i in (activity_item(proc), stack_item(proc))),
        confirm=("Run attach again in a minute: a working rank will be at another line.",),
    )


def _doing(proc: Process) -> str:
    purpose = proc.long_work or proc.place.purpose
    return _WORK.get(purpose, "works") if purpose is not None else "works"


def _rate(proc: Process) -> str:
    if proc.activity.io_bytes < 1_000_000:
        return ""
    return f", {bytes_text(proc.activity.io_bytes)} in {seconds_text(proc.activity.seconds)}"
