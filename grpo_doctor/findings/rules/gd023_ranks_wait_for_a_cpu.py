"""Ranks wait for a CPU."""

from __future__ import annotations

from typing import Literal

import numpy as np

from grpo_doctor.analysis.sampled import held, mean_over
from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed, scaled
from grpo_doctor.findings.shared import Severity, percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.trace.intervals import Intervals, intersect, together

_WAIT = "rank.cpu_wait"
RULE = timed_rule(
    "system",
    signals.sampled(_WAIT, "record with `grpo-doctor run` on a kernel that has schedstats"),
    uses=("host.cpu", "host.psi_cpu", "rank.cpu", "rank.processors"),
)
# A rank with a core of its own waits for under 1% of the time; samplers, loaders and
# rewards that share it add a few percent.
MIN_WAIT = 0.10
# On a host this idle, waiting comes from where a rank may run, not from how much there is.
IDLE_HOST_PCT = 60.0
BUSY_HOST_PCT = 90.0
# What others use of the host, in points of its 100%. Samplers and a shell take a few; a quarter is
# half a processor of two and sixteen of sixty-four, and as much again waits behind it.
OTHERS_PCT = 25.0
# Two ranks with their loaders and rewards on two processors, and nothing else there, were measured
# waiting 7 to 20% of the time. More needs more threads than there are processors.
MIN_OWN_WAIT = 0.30
_UNKNOWN = "how the work would spread over more CPUs was not measured"


def check(view: RunView) -> Answer:
    """Read what the kernel counted."""
    waits = _by_rank(view, _WAIT)
    if not waits:
        return Passed("nothing was sampled within the steps")
    worst = max(waits.values()) / 100
    if worst < MIN_WAIT:
        return Passed(f"ranks wait for a CPU {percent(worst, 1)} of the time")
    host = view.highest_mean("host.cpu", _while_waiting(view))
    why = _why(view, host)
    own = _own_pct(view)
    if own is not None and worst < MIN_OWN_WAIT and not view.has_gpu and why in _OF_ITS_OWN:
        return Passed(
            f"ranks wait for a CPU {percent(worst)} of the time, for CPUs that this job itself "
            f"keeps {own:.0f}% busy"
        )
    ranks = tuple(sorted(rank for rank, wait in waits.items() if wait / 100 >= MIN_WAIT))
    return Finding(
        severity=_severity(view, worst, why),
        confidence=0.7 if why == "unclear" else 0.9,
        cost=worst,
        ranks=() if len(ranks) == len(view.analysis.ranks) else ranks,
        evidence=_evidence(view, waits, host),
        cause=f"Rank {max(waits, key=lambda r: (waits[r], -r))} was ready to run and had no "
        f"CPU {percent(worst)} of the time"
        + (f", while the host's were {host:.0f}% busy." if host is not None else "."),
        fixes=(_fix(view, ranks, why),),
        headline=_HEADLINES[why],
    )


_Why = Literal["confined", "others", "full", "unclear"]
_OF_ITS_OWN: tuple[_Why, ...] = ("full", "unclear")
_HEADLINES: dict[_Why, str] = {
    "confined": "Ranks are pinned to too few CPUs",
    "others": "CPU contention from other processes",
    "full": "More threads want to run than the host has CPUs",
    "unclear": "",
}


def _why(view: RunView, host: float | None) -> _Why:
    if host is None:
        return "unclear"
    if host < IDLE_HOST_PCT:
        return "confined"
    own = _own_pct(view)
    if own is not None and host - own >= OTHERS_PCT:
        return "others"
    return "full" if host > BUSY_HOST_PCT else "unclear"


def _own_pct(view: RunView) -> float | None:
    """Return how busy the ranks and their workers alone keep the CPUs that they may use; for the
    ranks of one host, which have the most of them."""
    if len({process.host for process in view.trace.processes}) > 1:
        return None
    used, allowed = _by_rank(view, "rank.cpu"), _by_rank(view, "rank.processors")
    return sum(used.values()) / max(allowed.values()) if used and allowed else None


def _severity(view: RunView, worst: float, why: _Why) -> Severity:
    """Return the severity; a full host without a GPU is normal when training on CPUs."""
    severity = severity_of(worst)
    if why == "confined" or severity == "low":
        return severity
    return "medium" if view.has_gpu or why == "others" else "low"


def _by_rank(view: RunView, name: str) -> dict[int, float]:
    inside = view.analysis.used_windows
    by_rank: dict[int, float] = {}
    for series in view.series(name):
        mean = mean_over(series, inside)
        if series.rank is not None and mean is not None:
            by_rank[series.rank] = max(by_rank.get(series.rank, 0.0), mean)
    return by_rank


def _while_waiting(view: RunView) -> Intervals:
    """When any rank waited for a CPU: a host that is idle otherwise says nothing about that."""
    waiting_times = []
    for series in view.series(_WAIT):
        stretches, values = held(series)
        waiting_times.append(stretches.select(values >= 100 * MIN_WAIT))
    return intersect(view.analysis.used_windows, together(waiting_times))


def _evidence(view: RunView, waits: dict[int, float], host: float | None) -> tuple[Evidence, ...]:
    worst = max(waits, key=lambda r: (waits[r], -r))
    allowed, used = _by_rank(view, "rank.processors"), _by_rank(view, "rank.cpu")
    own, pressure = _own_pct(view), view.highest_mean("host.psi_cpu", _while_waiting(view))
    workers = "CPU usage of the rank and its workers (100% = one core)"
    return (
        Evidence(f"rank {worst} waits for a CPU", round(waits[worst], 1), "%", _WAIT),
        Evidence("mean of all ranks", round(float(np.mean([*waits.values()])), 1), "%", _WAIT),
        Evidence("CPUs it may use", allowed.get(worst), "", "rank.processors"),
        Evidence(workers, scaled(used.get(worst), digits=1), "%", "rank.cpu"),
        Evidence("host CPU usage meanwhile", scaled(host, digits=1), "%", "host.cpu"),
        Evidence("of which this job's own", scaled(own, digits=1), "%", "rank.cpu"),
        Evidence("CPU pressure", scaled(pressure, digits=1), "%", "host.psi_cpu"),
    )


def _fix(view: RunView, ranks: tuple[int, ...], why: _Why) -> Fix:
    process = view.process_of(ranks[0])
    if why == "others":
        text = f"on {process.host}: use top to find programs of other jobs, and move them"
        return view.advice(text, _UNKNOWN)
    if why == "confined":
        text = (
            f"on {process.host}: check where rank {ranks[0]} may run (Cpus_allowed_list in "
            "/proc/.../status) and give each rank its own CPUs"
        )
        return view.advice(text, _UNKNOWN, risk="Also check the container's CPU limit.")
    text = (
        f"on {process.host}: use top to see what else runs there; set OMP_NUM_THREADS to the "
        f"CPUs per rank, and start fewer loader and reward processes"
    )
    return view.advice(text, _UNKNOWN, risk="Loading then takes longer.")
