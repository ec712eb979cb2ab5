"""Data loading starves the step."""

from __future__ import annotations

from grpo_doctor.findings.loading import LOADER_COUNTERS, enough_workers, loading
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed, scaled
from grpo_doctor.findings.shared import MEDIUM_SHARE, percent
from grpo_doctor.findings.view import RunView, busy_host, integer, timed_rule

RULE = timed_rule("data", uses=(LOADER_COUNTERS, "host.cpu", "rank.cpu"))
# Text prompts load in under a percent of a GRPO step; a twentieth is never a matter of course.
MIN_SHARE = 0.05
# Taking a batch that is ready out of a loader's queue costs 3 to 5 ms of pickling and waking up:
# what is below that no loader process takes away.
MIN_S = 0.008
# Processes that need at most half of the time they have were never what was waited for: what is
# left is the queue, unpickling and the copy.
AT_EASE = 0.5
# Bursts that are so much of the waiting, beyond the usual wait, are what there is to fix.
MOSTLY = 0.70
_KNOB = "dataload.num_workers"
_PARTS = {
    "read_s": "reading and decoding images",
    "process_s": "cutting images into patches",
    "tokenize_s": "tokenizing",
    "join_s": "collating prompts into batches",
}


def check(view: RunView) -> Answer:
    """Compare the ranks' own time in `dataload` with the step."""
    share = view.share("dataload")
    workers, said = integer(view.now(_KNOB)), integer(view.fact(_KNOB))
    if share < MIN_SHARE or (workers and view.seconds("dataload") < MIN_S):
        duration = f"{1000 * view.seconds('dataload'):.1f} ms"
        return Passed(f"data loading takes {percent(share, 1)} of the step, {duration}")
    if share < MEDIUM_SHARE and _have_time(view, workers):
        return Passed(
            f"data loading takes {percent(share, 1)} of the step, while its processes have time "
            f"to spare: that is the transfer, not the loading"
        )
    bursts = view.found("GD030")
    if bursts is not None and bursts.cost >= MOSTLY * share:
        return Passed(f"data loading takes {percent(share, 1)} of the step, in bursts: see GD030")
    processes = f"{said} loader process{'es' * (said != 1)}" if said is not None else None
    cpu = scaled(view.highest_mean("host.cpu"), digits=1)
    return Finding(
        confidence=0.9 if processes is not None else 0.7,
        cost=share,
        phases=("dataload",),
        evidence=(
            *view.phase_evidence("dataload"),
            Evidence("loader processes per rank", said, "", "settings"),
            Evidence("host CPU usage", cpu, "%", "host.cpu over the steps"),
            *_loader_evidence(view),
        ),
        cause=f"Each step waits {view.seconds('dataload'):.3g} s of {view.step_s:.3g} s for its "
        f"prompts{f', with {processes} per rank' if processes else ''}.",
        fixes=(_fix(view, workers),),
    )


def _fix(view: RunView, workers: int | None) -> Fix:
    target = enough_workers(view, workers)
    if target is None:
        text = "prepare the data in advance: tokenize once, resize images, store it on a local disk"
        return view.advice(text, "it depends on what the loader does")
    risk = f"Takes {target} process{'es' * (target != 1)} per rank, with CPU time and memory."
    return view.setting(_KNOB, target, busy_host(view), risk=risk)


def _have_time(view: RunView, workers: int | None) -> bool:
    """Return whether the loaders timed themselves and could have done more."""
    load = loading(view)
    if not workers or load is None or not load.effort_s:
        return False
    return load.effort_s / workers <= AT_EASE * (view.step_s - view.seconds("dataload"))


def _loader_evidence(view: RunView) -> list[Evidence]:
    load = loading(view)
    if load is None or not load.effort_s:
        return []
    part = max(load.parts, key=lambda name: load.parts[name])
    return [
        Evidence("loader process time for a step's prompts", load.effort_s, "s", "dataload/*_s"),
        Evidence(f"mostly: {_PARTS[part]}", 100 * load.share(part), "%", f"dataload/{part}"),
    ]
