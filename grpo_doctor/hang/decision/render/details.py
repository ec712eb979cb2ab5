"""Additions to a verdict: places in the parallel layout, the framework's own names of settings,
whether the job can be saved, and what could not be inspected.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from grpo_doctor import knobs
from grpo_doctor.hang.catalogue import BY_NAME
from grpo_doctor.hang.model.parallelism import Coordinates, coordinates, known_groups
from grpo_doctor.hang.model.view import JobView
from grpo_doctor.hang.verdict import Fix, Item, Problem, Verdict
from grpo_doctor.hang.wording import ranks_text, seconds_text

_MOST = 4  # culprits whose places are said
# What to set a knob to when it is a fix for a hang.
_VALUES: dict[str, Any] = {
    "dataload.num_workers": 0,
    "offload.optimizer": False,
    "offload.gc_collect": False,
    "checkpoint.save_only_model": True,
    "vllm.gpu_memory_utilization": 0.6,
}
_TIMEOUT = "run.collective_timeout_s"
_FILE = "file:"
_NVML = "The driver hangs: `timeout 10 nvidia-smi` hangs too. Look for an Xid in dmesg."


def with_layout(view: JobView, verdict: Verdict) -> Verdict:
    """The verdict with the culprits' places; unchanged where the job has no axes."""
    if not verdict.culprits:
        return verdict
    layout = coordinates(known_groups(view.recordings), len(view.world))
    places = [layout[rank] for rank in verdict.culprits[:_MOST] if rank in layout]
    placed = [place for place in places if place.places]
    if not placed:
        return verdict
    items = tuple(Item("layout", place.rank, place.text) for place in placed)
    summary = verdict.summary
    if len(verdict.culprits) == 1:
        summary = _with_axes(summary, placed[0])
    evidence = (*verdict.evidence, *items)
    return msgspec.structs.replace(verdict, summary=summary, evidence=evidence)


def _with_axes(summary: str, coordinates: Coordinates) -> str:
    """`Rank 9 (TP 1, PP 0) is stopped ...`: the only culprit where it is first named."""
    axes = coordinates.text.partition(" = ")[2]
    return re.sub(rf"\b([Rr]ank {coordinates.rank})\b", rf"\1 ({axes})", summary, count=1)


def with_timeout(view: JobView, verdict: Verdict) -> Verdict:
    """The verdict with when the process group's time-out ends the wait, and the option that sets
    it; only of live jobs in which an operation is open.
    """
    live = [recording for recording in view.recordings.ranks if not recording.from_file]
    open_ones = [
        (entry.created_ns / 1e9 + entry.timeout_s - recording.at_unix_ns / 1e9, entry.timeout_s)
        for recording in live
        for entry in recording.entries
        if not entry.done and entry.created_ns and entry.timeout_s and recording.at_unix_ns
    ]
    if verdict.state not in ("slow", "stuck") or not open_ones:
        return verdict
    left_s, timeout_s = min(open_ones)
    ends = f"ends the job in {seconds_text(left_s)}" if left_s > 0 else "has passed"
    framework, longer = view.evidence.job.framework, None
    if framework in knobs.FRAMEWORKS:
        longer = knobs.spell(framework, None, _TIMEOUT, int(2 * timeout_s))
    option = longer or "init_process_group(timeout=...)"
    text = f"the process group's time-out of {seconds_text(timeout_s)} {ends}; longer: {option}"
    return msgspec.structs.replace(
        verdict, evidence=(*verdict.evidence, Item("time-out", None, text))
    )


def with_spelled_fixes(verdict: Verdict, framework: str) -> Verdict:
    """Return the verdict with each fix's setting under this framework's own name."""
    return msgspec.structs.replace(
        verdict, fixes=tuple(_spelled(fix, framework) for fix in verdict.fixes)
    )


def _spelled(fix: Fix, framework: str) -> Fix:
    if fix.spelling is not None or fix.knob not in _VALUES or framework not in knobs.FRAMEWORKS:
        return fix
    spelling = knobs.spell(framework, None, fix.knob, _VALUES[fix.knob])
    return msgspec.structs.replace(fix, spelling=spelling)


def with_outlook(verdict: Verdict, of_case: str = "") -> Verdict:
    """The verdict with what this case, else its class, says of the running job; only where nothing
    moves.
    """
    entry = BY_NAME.get(verdict.cause)
    if entry is None or verdict.state not in ("stuck", "dead"):
        return verdict
    return msgspec.structs.replace(verdict, can_go_on=of_case or entry.can_go_on)


def unseen_parts(view: JobView) -> tuple[Problem, ...]:
    """Each problem of the visit and of the recordings once, with its remedy."""
    ranks: dict[tuple[str, str], list[int]] = {}
    unranked: list[tuple[str, str]] = []
    recorders = {problem.what for problem in view.recordings.problems}
    for problem in view.evidence.problems:
        proc = view.by_pid.get(problem.pid) if problem.pid is not None else None
        if problem.what in recorders:
            continue  # said below, with its rank
        if proc is not None and proc.member.role == "rank" and proc.rank is not None:
            ranks.setdefault((problem.what, problem.remedy), []).append(proc.rank)
        else:
            unranked.append((_of_process(view, problem.pid, problem.what), problem.remedy))
    for unread in view.recordings.problems:
        if unread.source.startswith(_FILE):
            file = unread.source.removeprefix(_FILE)
            unranked.append((f"{file}: {unread.what}", unread.remedy))
        elif unread.rank is not None:
            ranks.setdefault((unread.what, unread.remedy), []).append(unread.rank)
        else:
            unranked.append((unread.what, unread.remedy))
    unranked += [(item.text, _NVML) for item in view.gpus.silence]
    ranked = [
        (f"{ranks_text(tuple(sorted(set(affected))))}: {text}", remedy)
        for (text, remedy), affected in ranks.items()
    ]
    every = dict.fromkeys((*unranked, *ranked))
    return tuple(Problem(what, remedy) for what, remedy in every)


def _of_process(view: JobView, pid: int | None, text: str) -> str:
    """Return `text` after the PID; without it for several hosts, whose PIDs are translated."""
    several = len(view.evidence.job.placements) > 1
    return text if pid is None or several or str(pid) in text else f"pid {pid}: {text}"
