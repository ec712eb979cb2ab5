"""Which process of a failed job died first, of what, and who followed; in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_doctor_probes.procs.printable import MESSAGE_LIMIT, printable
from grpo_doctor_probes.supervisor.deaths import Death

# An engine that ends this long before a rank fails is a suspect, not a coincidence.
_SHORTLY_S = 60.0
_FOLLOWERS_NAMED = 3
# Nobody sends these to end a process: it did something wrong itself.
_CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGSYS")


def obituary(deaths: Sequence[Death], phases: Mapping[int, str]) -> list[str]:
    """Sentences without a full stop; none if nothing failed.

    A rank that fails ends its helpers on its way out, so a helper counts as the first only where
    it crashed or the kernel killed it.

    Args:
        deaths: in any order.
        phases: by pid, the last open phase of those that were recorded.
    """
    ordered = sorted(deaths, key=lambda death: death.at_ns)
    first = next((d for d in ordered if _is_cause(d)), None)
    if first is None:
        return []
    sentences = [_first(first, phases.get(first.subject.pid, ""))]
    position = ordered.index(first)
    for before in ordered[:position]:
        earlier_s = (first.at_ns - before.at_ns) / 1e9
        if before.subject.serves and earlier_s <= _SHORTLY_S:
            sentences.append(
                f"{_name(before)} had ended {earlier_s:.1f} s before that, {_how(before)}"
            )
    followers = [
        d for d in ordered[position + 1 :] if d.subject.rank is not None and not d.in_order
    ]
    if followers:
        listed = ", ".join(_follower(first, d) for d in followers[:_FOLLOWERS_NAMED])
        more = len(followers) - _FOLLOWERS_NAMED
        sentences.append(f"then {listed}" + (f" and {more} more" if more > 0 else ""))
    return sentences


def as_facts(deaths: Sequence[Death], phases: Mapping[int, str]) -> list[dict[str, Any]]:
    """For `run.json`, in order of time."""
    return [
        {
            "pid": death.subject.pid,
            "role": death.subject.role,
            "rank": death.subject.rank,
            "at_ns": death.at_ns,
            "wait_status": death.status,
            "signal": death.signal,
            "phase": phases.get(death.subject.pid),
            "oom_kills": death.oom_kills,
            "kernel": death.kernel or None,
        }
        for death in sorted(deaths, key=lambda death: death.at_ns)
    ]


def _is_cause(death: Death) -> bool:
    if death.subject.rank is not None:
        return not death.in_order
    return bool(death.oom_kills or death.kernel) or death.signal in _CRASHES


def _first(death: Death, phase: str) -> str:
    text = f"{_name(death)} {'died' if death.signal else 'ended'} first, {_how(death)}"
    if phase:
        text += f", while in {printable(phase)}"
    if death.oom_kills:
        text += f"; the kernel killed it for memory (memory.events oom_kill +{death.oom_kills})"
    elif death.kernel:
        text += f"; the kernel says: {printable(death.kernel, MESSAGE_LIMIT)}"
    return text


def _follower(first: Death, death: Death) -> str:
    return f"{_name(death)} {(death.at_ns - first.at_ns) / 1e9:.1f} s later, {_how(death)}"


def _name(death: Death) -> str:
    return f"{printable(death.subject.role)} (pid {death.subject.pid})"


def _how(death: Death) -> str:
    if death.status is None:
        return "cause unknown"
    if death.signal is not None:
        return f"by {death.signal}"
    return "in order" if death.in_order else f"with exit code {death.status >> 8}"
