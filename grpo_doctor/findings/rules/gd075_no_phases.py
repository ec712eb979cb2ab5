"""The run has no phases.

## What it means

The job was recorded, but nothing in it said where a step begins and what it spends its time on: its
framework is none of those that bring phases by themselves, or their hooks could not get in. Only
its machine and its processes were sampled from outside.

## Why it costs

Nothing by itself. But without phases nobody can say where the time of a step goes, and nearly all
rules have to stay silent.

## Evidence shown

What the samplers saw in the meantime: the job's processes with their processor time and memory, the
GPUs, the host.

## Fix

Five lines around the parts of the training loop, under `grpo-doctor run` as before. A job of TRL,
ms-swift, verl or OpenRLHF needs none of them: `grpo-doctor run -- COMMAND` gives it phases, unless
`--no-hooks` was said, its Python was started with `-I` or `-E`, or its script replaces
`PYTHONPATH`.

## When it is wrong

A command that trains nothing, a data preparation for example, has no steps to mark. A run of a
known framework that failed before any phase was recorded is left out.

## References

- https://docs.python.org/3/library/site.html#module-sitecustomize
- https://docs.python.org/3/using/cmdline.html#cmdoption-I
"""

from __future__ import annotations

import numpy as np

from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed, Rule
from grpo_doctor.findings.view import RunView, identity, no_counterfactual
from grpo_doctor.launches.launcher import unwrap
from grpo_doctor.launches.programs import recognize
from grpo_doctor.launches.words import from_arguments
from grpo_doctor.whatif import Withheld

_PEAKS = {
    "job.processes": ("processes of the job, at most", ""),
    "job.rss": ("memory of the job, at most", "bytes"),
    "rank.rss": ("memory of the fullest rank, at most", "bytes"),
    "gpu.memory_used": ("memory of the fullest GPU, at most", "bytes"),
}
_MEANS = {
    "job.cpu": ("processor time of the job, of one core", "%"),
    "rank.cpu": ("processor time of a rank, of one core", "%"),
    "gpu.util": ("GPU busy by its driver", "%"),
    "host.cpu": ("host's processors busy", "%"),
}
RULE = Rule(*identity(__name__, __doc__), family="visibility", needs=(), uses=(*_PEAKS, *_MEANS))
_FIVE_LINES = """from grpo_doctor_probes import phase, step
for number, batch in enumerate(batches):
    with step(number):
        with phase("rollout"): generate(batch)
        with phase("train"): train(batch)"""
_WITHHELD = Withheld("without phases there is no step to shorten")
_NAMES = {"trl": "TRL", "verl": "verl", "openrlhf": "OpenRLHF"}
counterfactual = no_counterfactual  # there is no step time to change


def check(view: RunView) -> Answer:
    """Says what was seen of a job that marked nothing."""
    if view.trace.run.origin is not None:
        return NotApplicable("the file is of another program, which has its own words for phases")
    if view.trace.run.framework == "bundled":
        return NotApplicable("the bundled trainer marks its phases")
    if np.nansum(view.analysis.seconds[:, :, :-1]) > 0:
        return Passed("phases were recorded")
    if view.trace.run.framework_failed:
        return NotApplicable("the run failed, and no phase was recorded")
    framework = _framework(view)
    return Finding(
        severity="info",
        confidence=1.0,
        evidence=_evidence(view),
        cause=f"The command starts {framework}, but none of its hooks took effect."
        if framework
        else "The command is of no framework that brings phases by itself, and marks none.",
        fixes=(_without_hooks(view, framework) if framework else _by_hand(view),),
        headline=f"{framework} ran without its phases" if framework else "",
    )


def _evidence(view: RunView) -> tuple[Evidence, ...]:
    evidence = []
    for name, (text, unit) in _PEAKS.items():
        values = [float(np.nanmax(series.values)) for series in view.series(name)]
        if values:
            evidence.append(Evidence(text, max(values), unit, name))
    for name, (text, unit) in _MEANS.items():
        means = [float(np.nanmean(series.values)) for series in view.series(name)]
        if means:
            evidence.append(Evidence(text, round(max(means), 1), unit, name))
    if libraries := view.trace.run.libraries:
        text = ", ".join(libraries)
        evidence.insert(0, Evidence("libraries that it loads", text, "", "files it has mapped"))
    command = " ".join(view.trace.run.command)
    return (*evidence, Evidence("command", command[:200], "", "run.json"))


def _framework(view: RunView) -> str:
    """The framework that the command starts; empty for a script of the user's own."""
    started = unwrap(from_arguments(view.trace.run.command))
    program = recognize(started) if started else None
    if program is None or program.role != "train" or program.script is not None:
        return ""
    return _NAMES.get(program.framework, program.framework)


def _without_hooks(view: RunView, framework: str) -> Fix:
    command = " ".join(view.trace.run.command)
    risk = (
        f"{framework} brings phases by itself unless --no-hooks was said, Python was started with "
        "-I or -E, or the script replaces PYTHONPATH instead of adding to it."
    )
    return view.edit(f"grpo-doctor run -- {command}", _WITHHELD, safety="same-math", risk=risk)


def _by_hand(view: RunView) -> Fix:
    risk = "Phases are dataload, rollout, reward, logprob, train, optimizer, sync and checkpoint."
    return view.edit(_FIVE_LINES, _WITHHELD, safety="needs-code", risk=risk)
