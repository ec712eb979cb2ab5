"""Rollout servers share the work unevenly."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.sampled import held
from grpo_doctor.findings.rollout_servers import (
    CACHE,
    PREEMPTIONS,
    RUNNING,
    TOKENS,
    WAITING,
    WITHIN_RANKS,
    Load,
    engine_within_ranks,
    loads,
    series_of_server,
    server_signal,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.trace.intervals import Intervals, intersect, none, union
from grpo_doctor.trace.model import Series

RULE = timed_rule("rollout", server_signal(RUNNING), uses=(WAITING, CACHE, PREEMPTIONS, TOKENS))
# Lengths are random: of 64 completions on each of two servers, one seldom has a third less than its
# share. With half of it, it is not chance.
FEW = 0.5
# Below it even perfect shares shorten the step by less than it varies.
MIN_COST = 0.03
# Each server is asked once a second, at a moment of its own: a queue is known to stand next to an
# idle server only where both were seen twice.
_SEEN_TWICE_NS = 2_000_000_000
_UNKNOWN = "which requests went to which server was not recorded"


def check(view: RunView) -> Answer:
    """Compare the servers' tokens, and look for a queue next to a server with nothing to do."""
    if engine_within_ranks(view):
        return WITHIN_RANKS
    servers = [load for load in loads(view) if load.pid is not None]
    if len(servers) < 2:
        return NotApplicable("fewer than two servers joined the run")
    busy = [_time(view, load, RUNNING) for load in servers]
    unit, shares = _shares(servers)
    rollout = view.share("rollout")
    beside_idle = _queue_beside_idle(view, servers)
    longer = max(busy) - float(np.mean(busy))
    few = min(shares) * len(shares) < FEW
    cost = min(rollout, max(beside_idle, longer if few else 0.0))
    if cost < MIN_COST:
        return Passed(
            f"the server with the fewest has {percent(min(shares))} of the {unit}, and requests "
            f"wait next to an idle one for {percent(beside_idle, 1)} of the steps"
        )
    text = "give each request to the server with the fewest open requests"
    risk = "If completions of one prompt go to several servers, each computes its prefix."
    return Finding(
        confidence=0.8 if few else 0.7,
        cost=cost,
        phases=("rollout",),
        evidence=(
            *(
                row
                for load, share, part in zip(servers, shares, busy)
                for row in _evidence(load, unit, share, part)
            ),
            Evidence(
                "a queue while another server is idle", 100 * beside_idle, "% of the steps", RUNNING
            ),
            *view.phase_evidence("rollout"),
        ),
        cause=_cause(servers, unit, shares, beside_idle),
        fixes=(view.advice(text, _UNKNOWN, risk=risk),),
    )


def _shares(servers: list[Load]) -> tuple[str, list[float]]:
    """Return each server's share of all tokens, else of all requests over time; which of them."""
    tokens = [load.tokens for load in servers]
    known = None not in tokens
    amounts = [load.tokens or 0.0 if known else load.running for load in servers]
    total = sum(amounts)
    shares = [amount / total if total else 1 / len(servers) for amount in amounts]
    return "tokens" if known else "requests", shares


def _time(view: RunView, load: Load, name: str) -> float:
    """Return the share of the steps in which a server reported a number above zero."""
    windows = view.analysis.used_windows
    above = _where(series_of_server(view, name, load.host, load.pid), zero=False)
    return intersect(above, windows).total_ns / windows.total_ns if windows.total_ns else 0.0


def _where(series: Series | None, *, zero: bool) -> Intervals:
    if series is None:
        return none()
    stretches, values = held(series)
    return stretches.select((values <= 0) if zero else (values > 0))


def _queue_beside_idle(view: RunView, servers: list[Load]) -> float:
    """The largest part of the steps in which requests wait at one server while another has none."""
    windows = view.analysis.used_windows
    if not windows.total_ns:
        return 0.0
    queues, idle = [], []
    for load in servers:
        waiting = series_of_server(view, WAITING, load.host, load.pid)
        resting = _where(series_of_server(view, RUNNING, load.host, load.pid), zero=True)
        queues.append(_where(waiting, zero=False))
        idle.append(intersect(resting, _where(waiting, zero=True)) if waiting else resting)
    together = [
        _lasting(intersect(intersect(queue, idle_times), windows)).total_ns
        for at, queue in enumerate(queues)
        for other, idle_times in enumerate(idle)
        if at != other
    ]
    return max(together) / windows.total_ns


def _lasting(stretches: Intervals) -> Intervals:
    joined = union(stretches.start_ns, stretches.end_ns)
    return joined.select(joined.end_ns - joined.start_ns >= _SEEN_TWICE_NS)


def _evidence(load: Load, unit: str, share: float, busy: float) -> tuple[Evidence, ...]:
    source = f"/metrics of {load.name}"
    return (
        Evidence(f"{unit} of {load.name}", round(100 * share, 1), "% of all", source),
        Evidence(f"any request at {load.name}", round(100 * busy, 1), "% of the steps", source),
    )


def _cause(servers: list[Load], unit: str, shares: list[float], beside_idle: float) -> str:
    fewest, busiest = int(np.argmin(shares)), int(np.argmax(shares))
    words = (
        f"{servers[fewest].name} has {percent(shares[fewest])} of the {unit}, "
        f"{servers[busiest].name} {percent(shares[busiest])}"
    )
    if beside_idle >= MIN_COST:
        words += (
            f"; requests wait at one server while another is idle, for {percent(beside_idle)} of "
            f"the steps"
        )
    return f"{words}."
