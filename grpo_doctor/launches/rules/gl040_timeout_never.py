"""A stuck collective is never reported.

The watchdog of NCCL ends a job whose collective does not finish in time, with a message that
names it. ms-swift's default is 18,000,000 seconds, 208 days: a hang stays silent for good.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES
_DAY_S = 86_400
_SHORTEST_S = 300  # a checkpoint of 70B on a network disk takes that long, and others wait for it


def check(view: View) -> Flaw | None:
    """The collectives' timeout, against a day and five minutes."""
    seconds = view.integer("run.collective_timeout_s")
    if seconds is None or view.processes == 1:
        return None
    if seconds >= _DAY_S:
        explicit = view.sets("run.collective_timeout_s")
        return Flaw(
            severity="low" if explicit else "info",
            headline=f"a stuck collective is reported after {seconds // _DAY_S} days",
            evidence=("as set" if explicit else "this framework's default",),
            fixes=(view.flag("run.collective_timeout_s", 3600),),
            source=view.source("run.collective_timeout_s"),
        )
    if seconds >= _SHORTEST_S:
        return None
    return Flaw(
        severity="medium",
        headline=f"a collective may take {seconds} s: a long rollout or checkpoint ends the job",
        evidence=("ranks wait for the slowest rollout in a collective",),
        fixes=(view.flag("run.collective_timeout_s", 1800),),
        source=view.source("run.collective_timeout_s"),
    )
