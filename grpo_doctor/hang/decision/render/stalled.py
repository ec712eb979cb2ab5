"""Verdicts on a job without progress: its root cause, that none was found, or that no rank was
started.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.description import activity_item, since_start_s, stack_item, standstill
from grpo_doctor.hang.causes.gpu import even_items
from grpo_doctor.hang.causes.process import JOINING_S
from grpo_doctor.hang.certainty import Certainty
from grpo_doctor.hang.decision.stall import Stall
from grpo_doctor.hang.model.hosts import commands
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.verdict import Fix, Item, State, Verdict
from grpo_doctor.hang.wording import conjugated, ranks_text, seconds_text, sentence, verb

_ENABLE = (
    "Let grpo-doctor read stacks: run it as root or as the job's user, in Kubernetes with the "
    "capability SYS_PTRACE, elsewhere with `sysctl kernel.yama.ptrace_scope=0`."
)
_RECORD = "Start the next run with TORCH_FR_BUFFER_SIZE=2000 (torch before 2.11)."
RECORDERS_OFF = f"The flight recorders are off. {_RECORD}"
_WATCH_POWER = "nvidia-smi dmon -s pu -c 10  # a hang is 100% busy at low, flat power"
_ENDPOINT = re.compile(r"--(?:rdzv[-_]endpoint|master[-_]addr)[= ](\S+)")
_FIX_HOSTS = Fix(
    "Start the job on the other hosts too, with the same --nnodes, --rdzv-id and rendezvous "
    "address. Check that they reach that address (nc -zv HOST PORT)."
)
_FIX_HERE = Fix(
    "Read the launcher's own output: it shows what it waits for before it starts a rank."
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was decided about a root cause. `others` are further causes that were found."""

    root: Candidate
    state: State
    victims: tuple[int, ...]
    certainty: Certainty
    others: tuple[Candidate, ...] = ()


def judged(view: JobView, judgement: Judgement) -> Verdict:
    """The verdict that a root cause gives."""
    root, state, victims = judgement.root, judgement.state, judgement.victims
    waiting = "" if root.whole else _waiting(view, victims, len(root.culprits))
    statement = root.whole or (
        f"{ranks_text(root.culprits)} {conjugated(root.reason, len(root.culprits))}"
        if root.culprits
        else root.reason
    )
    waits = view.wait_history.text(root.still_s)
    soft = ""
    if state == "slow":
        yet = "; it may end" if view.wait_history.unusual() else ", not yet unusual"
        soft = f" (waiting for {waits}{yet})" if waits else " (not yet unusual)"
    also = [
        Item("also", rank, f"{ranks_text((rank,))} {label.reason}")
        for label in judgement.others[:3]
        for rank in label.culprits[:1]
    ]
    pause = (Item("history", None, f"waiting for {waits}"),) if waits else ()
    return Verdict(
        state=state,
        cause=root.cause,
        culprits=root.culprits,
        victims=victims,
        certainty=judgement.certainty,
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
    where = f"all ranks are in {operations.pop()}" if together else "no rank stands out"
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
            *even_items(view),
        ),
        confirm=tuple(proc.shell("py-spy dump --native --pid {pid}") for proc in chosen[:1]),
        fixes=(Fix(RECORDERS_OFF),) if recorders_are_off(view) else (),
    )


def _on_gpus(view: JobView) -> Verdict:
    """Every rank waits for its GPU, and no recorder says whether for a collective."""
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
            *even_items(view),
        ),
        confirm=(_WATCH_POWER,),
        fixes=(Fix(_RECORD),),
    )


def recorders_are_off(view: JobView) -> bool:
    """Whether recorders answered, and none has ever recorded anything."""
    answered = [dump for dump in view.evidence.dumps if dump.data]
    return bool(answered) and not any(recording.entries for recording in view.recordings.ranks)


def _native_items(proc: Process) -> tuple[Item, ...]:
    """Its C and C++ frames, where they were looked at."""
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
        fixes=(Fix(_ENABLE),),
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
        fixes=(_FIX_HOSTS if several else _FIX_HERE,),
        confirm=commands(view.evidence.job)
        if several
        else (first.shell("py-spy dump --pid {pid}"),),
    )


def _other_hosts(view: JobView) -> int:
    """Return how many hosts of the launcher's settings were not inspected."""
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
