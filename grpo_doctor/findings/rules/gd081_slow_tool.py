"""Slow calls of one tool make the slowest trajectories."""

from __future__ import annotations

from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Edit, Replay, WhatIf
from grpo_doctor_reports.schema.trajectories import ToolEntry

RULE = timed_rule("rollout")
# The slowest tenth is then five trajectories at least.
MIN_TRAJECTORIES = 50
# Of the time of the slowest tenth: a third is as much as generating and waiting, each.
MIN_OF_TAIL = 0.35
# Where all calls are as long as the slow ones the tool is slow, and no tail; the 99th percentile of
# an exponential distribution is 6.6 medians.
MIN_RATIO = 3.0
# A step as short as this machine's noise is no gain.
MIN_SHARE = 0.03
_SOURCE = "calls of trajectories"


def check(view: RunView) -> Answer:
    """Look for a tool that takes much of the slowest tenth, in calls longer than its usual one."""
    found = view.trace.trajectories
    if found is None or not found.tools:
        return NotApplicable("no trajectory that calls tools was recorded")
    if found.count < MIN_TRAJECTORIES:
        return Passed(f"only {found.count} trajectories, too few for a tail")
    tool = max(found.tools, key=lambda each: each.tail_seconds)
    of_tail = min(1.0, tool.tail_seconds / found.tail_seconds) if found.tail_seconds else 0.0
    ratio = tool.p99_s / tool.p50_s if tool.p50_s else 0.0
    if of_tail < MIN_OF_TAIL or ratio < MIN_RATIO:
        return Passed(
            f"{tool.name} takes {percent(of_tail)} of the slowest tenth of trajectories; its slow "
            f"calls take {ratio:.2g} times as long as the usual one"
        )
    rollout_s = view.seconds("rollout")
    waits = "rollout/wait" in view.trace.names or tool.saved_s is None or not rollout_s
    saved_s = 0.0 if waits else min(tool.saved_s or 0.0, rollout_s)
    share = view.of_step(saved_s)
    if not waits and share < MIN_SHARE:
        return Passed(f"usual calls of {tool.name} would save {percent(share, 1)} of the step")
    change: WhatIf = "how long the trainer waits for single trajectories was not measured"
    if not waits:
        scenario = f"with every call of {tool.name} as long as its usual one"
        change = Replay((Edit(("rollout",), 1 - saved_s / rollout_s),), scenario, half=True)
    return Finding(
        severity="medium" if waits else severity_of(share),
        confidence=0.8,
        cost=share,
        phases=("rollout",),
        evidence=(
            Evidence("of the slowest tenth of trajectories", 100 * of_tail, "%", _SOURCE),
            *_evidence(tool),
            *([Evidence("with usual calls ready earlier", saved_s, "s", _SOURCE)] * bool(saved_s)),
        ),
        cause=f"One call of {tool.name} in a hundred takes {tool.p99_s:.3g} s or more, while the "
        f"usual one takes {tool.p50_s:.2g} s.",
        fixes=(
            view.advice(
                f"give calls of {tool.name} a time limit of some {2 * tool.p50_s:.2g} s, or more "
                "workers if calls wait for each other in it",
                change,
                safety="needs-code",
                risk="After a time-out the model gets an error message for an answer.",
            ),
        ),
        headline=f"Slow calls of {tool.name} make the slowest trajectories",
    )


def _evidence(tool: ToolEntry) -> tuple[Evidence, ...]:
    return (
        Evidence("usual call", tool.p50_s, "s", f"{tool.calls} calls"),
        Evidence("99th percentile", tool.p99_s, "s", f"{tool.calls} calls"),
        Evidence("longest call", tool.longest_s, "s", f"{tool.calls} calls"),
    )
