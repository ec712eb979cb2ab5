"""Verdicts in words, on jobs that make progress, end or hang, and on recordings alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.calls import INSPECT
from grpo_doctor.hang.causes.candidate import (
    activity_item,
    in_phase,
    since_start_s,
    stack_item,
    standstill,
    working_class,
)
from grpo_doctor.hang.causes.gpu import ASK_RAS
from grpo_doctor.hang.causes.process import JOINING_S
from grpo_doctor.hang.decision.state import Stall, called_since_first_look, quiet_s
from grpo_doctor.hang.model.hosts import command
from grpo_doctor.hang.model.nodes import Node
from grpo_doctor.hang.model.process.progress import uses_gpu
from grpo_doctor.hang.model.process.stacks import Purpose
from grpo_doctor.hang.model.rollout_engine import counted
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor.hang.model.waiting.wakeups import family
from grpo_doctor.hang.verdict import Item, State, Verdict
from grpo_doctor.hang.wording import (
    bytes_text,
    conjugated,
    ranks_text,
    seconds_text,
    sentence,
    verb,
)

_WORK: dict[Purpose | None, str] = {
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
    called = any(proc.activity.kind == "working" for proc in tasks.at_work(view))
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
            state="healthy", cause="", summary=f"{summary} Every rank exited with code 0."
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
    work = _WORK.get(first.place.long_work or first.place.purpose, "works")
    moved = first.activity.io_bytes
    rate = f", {bytes_text(moved)} in {seconds_text(first.activity.seconds)}"
    doing = f"{work}{in_phase(first)}{rate if moved >= 1_000_000 else ''}"
    # Long work has no class of its own, but for one line that burns a core in every look.
    at_it = first.place.long_work is None or first.activity.kind == "busy"
    held_up = bool(victims) and at_it and view.wait_history.unusual()
    return Verdict(
        state="slow",
        cause=working_class(first, first) if held_up else "",
        culprits=ranks,
        victims=victims,
        certainty="likely" if held_up else "",
        phase=first.phase,
        summary=sentence(
            f"slow, not stuck: {ranks_text(ranks)} {conjugated(doing, len(ranks))}{waiting}{for_s}"
        ),
        evidence=tuple(i for proc in workers[:4] for i in (activity_item(proc), stack_item(proc))),
        confirm=("Run attach again in a minute: a working rank will be at another line.",),
    )


_WATCH_POWER = "nvidia-smi dmon -s pu -c 10  # a hang is 100% busy at low, flat power"
_ENDPOINT = re.compile(r"--(?:rdzv[-_]endpoint|master[-_]addr)[= ](\S+)")


def judged(
    view: JobView,
    root: Candidate,
    state: State,
    victims: tuple[int, ...],
    others: Sequence[Candidate] = (),
) -> Verdict:
    """The verdict that a root cause gives. `others` are further causes that were found."""
    waiting = "" if root.whole else _waiting(view, victims, len(root.culprits))
    named = tuple(rank for rank in root.culprits if rank not in root.likewise)
    likewise = f"; likewise {ranks_text(root.likewise)}" if root.likewise else ""
    statement = root.whole or (
        f"{ranks_text(named)} {conjugated(root.reason, len(named))}{likewise}"
        if named
        else root.reason
    )
    waits = view.wait_history.text(root.still_s)
    soft = ""
    if state == "slow":
        yet = "; it may end" if view.wait_history.unusual() else ", not yet unusual"
        soft = f" (waiting for {waits}{yet})" if waits else " (not yet unusual)"
    also = [
        Item("also", rank, f"{ranks_text((rank,))} {label.reason}")
        for label in others[:3]
        for rank in label.culprits[:1]
    ]
    pause = (Item("history", None, f"waiting for {waits}"),) if waits else ()
    return Verdict(
        state=state,
        cause=root.cause,
        culprits=root.culprits,
        victims=victims,
        certainty=root.certainty,
        phase=root.phase,
        summary=sentence(f"{statement}{waiting}{soft}"),
        evidence=(*root.evidence, *pause, *also),
        confirm=root.confirm,
        fixes=root.fixes,
    )


def _waiting(view: JobView, victims: tuple[int, ...], culprits: int) -> str:
    if not victims:
        return ""
    operations = [view.by_rank[rank].place.operation for rank in victims if rank in view.by_rank]
    distinct = sorted({name for name in operations if name})
    where = f" in {distinct[0]}" if len(distinct) == 1 else ""
    whom = "them" if culprits > 1 else "it"
    return f"; {ranks_text(victims)} {verb(victims, 'waits')} for {whom}{where}"


def undecided(view: JobView, stall: Stall) -> Verdict:
    """Something stands still and the evidence does not say why."""
    wait_history = view.wait_history
    # A GPU may compute for its host, or a rank on another host for all.
    hidden = bool(view.elsewhere) or any(proc.spins for proc in view.by_rank.values())
    unusual = wait_history.unusual(wait_kind="computes" if hidden else "asleep")
    suspects = [proc for proc in stall.suspects if not proc.activity.progresses]
    if view.all_spin:
        return _on_gpus(view)
    ranks = tuple(proc.rank for proc in suspects if proc.rank is not None)
    waits = wait_history.text()
    procs = list(view.by_rank.values())
    chosen = (suspects or procs)[:3]
    operations = {proc.place.operation for proc in procs}
    together = not suspects and len(operations) == 1 and "" not in operations
    found = "all ranks" if view.evidence.job.world_size else "all ranks that were found"
    where = f"{found} are in {operations.pop()}" if together else "no rank stands out"
    subject = f"{ranks_text(ranks)} {verb(ranks, 'makes')} no progress" if ranks else where
    return Verdict(
        state="stuck" if unusual else "slow",
        cause="unknown",
        culprits=ranks,
        victims=tuple(sorted(rank for rank, proc in view.by_rank.items() if proc.waits)),
        phase=next((proc.phase for proc in chosen if proc.phase), None),
        summary=sentence(
            f"{subject}, and the evidence does not show why"
            f"{f'; waiting for {waits}' if waits else ''}{'' if unusual else ', not yet unusual'}"
        ),
        evidence=(
            *(item for proc in chosen for item in (*standstill(proc), *_native_items(proc))),
        ),
        confirm=tuple(proc.shell("py-spy dump --native --pid {pid}") for proc in chosen[:1]),
        fixes=advice("recorders off") if recorders_are_off(view) else (),
    )


def _on_gpus(view: JobView) -> Verdict:
    procs = list(view.by_rank.values())
    return Verdict(
        state="slow",
        cause="unknown",
        phase=next((proc.phase for proc in procs if proc.phase), None),
        summary=sentence(
            "all ranks wait for their GPUs, each at one line of its code: either a long "
            "computation or a collective that does not end; no flight recorder shows which"
        ),
        evidence=(
            *(item for proc in procs[:3] for item in (activity_item(proc), stack_item(proc))),
        ),
        confirm=(_WATCH_POWER, ASK_RAS),
        fixes=advice("no recorder"),
    )


def recorders_are_off(view: JobView) -> bool:
    """Return whether recorders answered, and none has ever recorded anything."""
    answered = [dump for dump in view.evidence.dumps if dump.data]
    return bool(answered) and not any(recording.entries for recording in view.recordings.ranks)


def _native_items(proc: Process) -> tuple[Item, ...]:
    threads = proc.native.threads if proc.native is not None else ()
    lines = [frame.function for thread in threads[:1] for frame in thread.frames[:8]]
    return (Item("native stack", proc.rank, " < ".join(lines)),) if lines else ()


def hidden(view: JobView) -> Verdict:
    """Every rank uses a core and no stack can be read: it may compute, or wait for its GPU."""
    return Verdict(
        state="slow",
        cause="unknown",
        summary=(
            "Ranks use a core and their stacks can't be read, so attach cannot say whether "
            "they compute or wait for each other forever."
        ),
        evidence=tuple(activity_item(proc) for proc in list(view.by_rank.values())[:8]),
        fixes=advice("no stacks"),
        confirm=(_WATCH_POWER,),
    )


def launchers(view: JobView) -> tuple[Process, ...]:
    """The launchers of a job that has no rank; none where it has."""
    if view.by_rank:
        return ()
    return tuple(proc for proc in view.procs if proc.member.role == "launcher")


def not_started(view: JobView, starters: Sequence[Process]) -> Verdict:
    """No rank was started yet: after long without work of the launcher, none will be."""
    age_s = since_start_s(view, starters)
    first = starters[0]
    stands = age_s > JOINING_S and not any(proc.activity.progresses for proc in starters)
    several = _other_hosts(view) > 0
    return Verdict(
        state="stuck" if stands else "slow",
        cause="rank-missing" if several or stands else "",
        culprits=view.evidence.job.ranks_missing if stands else (),
        certainty="likely" if stands and several else "possible",
        phase="init",
        summary=sentence(f"no rank has been started yet: {_waits(view, first, age_s)}"),
        evidence=(
            Item("proc", None, f"no rank of this job is on {view.evidence.job.host}"),
            Item("proc", None, f"{first.name}, started {age_s:.0f} s ago: {_command(first)}"),
        ),
        fixes=advice("other hosts" if several else "launcher"),
        confirm=(
            command(view.evidence.job) if several else first.shell("py-spy dump --pid {pid}"),
        ),
    )


def _other_hosts(view: JobView) -> int:
    job = view.evidence.job
    nodes = max((placement.nodes or 0 for placement in job.placements), default=0)
    nodes = nodes or (job.world_size or 0) // (job.local_ranks or job.world_size or 1)
    return max(0, nodes - max(1, len(job.placements)))


def _waits(view: JobView, launcher: Process, age_s: float) -> str:
    host_count = _other_hosts(view)
    subject = f"the launcher ({launcher.name})"
    if not host_count:
        return f"{subject} was started {seconds_text(age_s)} ago"
    endpoint = _ENDPOINT.search(_command(launcher))
    where = f" at the rendezvous {endpoint[1]}" if endpoint else ""
    hosts = "the other host" if host_count == 1 else f"{host_count} other hosts"
    return f"{subject} has waited{where} for {hosts} for {seconds_text(age_s)}"


def _command(launcher: Process) -> str:
    return launcher.member.command or launcher.member.name


def without_culprit(view: JobView) -> Verdict:
    """Return healthy where all recordings agree; unknown where some can't be used."""
    unusable = view.recordings.unusable
    waiting = tuple(sorted(view.waiting))
    awaited = sorted({rank for wait in view.matching.waits for rank in wait.on} & unusable)
    if not view.matching.heard:
        return _unknown("no recording could be used")
    if recorders_are_off(view):
        off = _unknown("the recordings have no entries, so attach cannot judge the job")
        return msgspec.structs.replace(off, confirm=(INSPECT,), fixes=advice("recorders off"))
    if waiting and view.wait_history.unusual():
        whom, why = "other ranks", "and the recordings do not show why"
        if awaited:
            whom, why = ranks_text(awaited), "whose recording can't be used"
        return Verdict(
            state="stuck",
            cause="unknown",
            victims=waiting,
            summary=sentence(f"{ranks_text(waiting)} {verb(waiting, 'waits')} for {whom}, {why}"),
        )
    text = "no rank is missing from a collective, and all ranks agree on their calls"
    if waiting:
        waits = view.wait_history.text()
        text = f"ranks wait for other ranks ({waits}), which is not long for this job"
    if unusable:
        unread = ranks_text(sorted(unusable))
        return _unknown(f"there is no usable recording of {unread}; otherwise {text}")
    return Verdict(state="healthy", cause="", summary=sentence(text))


def _unknown(summary: str) -> Verdict:
    return Verdict(state="slow", cause="unknown", summary=sentence(summary))
