"""The run has no phases."""

from __future__ import annotations

import numpy as np

from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.view import RunView, rule
from grpo_doctor.launches.launcher import unwrap
from grpo_doctor.launches.programs import recognize
from grpo_doctor.launches.words import from_arguments

_PEAKS = {
    "job.processes": ("most processes of the job", ""),
    "job.rss": ("peak memory of the job", "bytes"),
    "rank.rss": ("peak memory of any rank", "bytes"),
    "gpu.memory_used": ("peak memory of any GPU", "bytes"),
}
_MEANS = {
    "job.cpu": ("CPU usage of the job (100% = one core)", "%"),
    "rank.cpu": ("highest CPU usage of a rank (100% = one core)", "%"),
    "gpu.util": ("highest GPU utilization", "%"),
    "host.cpu": ("CPU usage of the host", "%"),
}
RULE = rule("visibility", uses=(*_PEAKS, *_MEANS))
# Four samples a second miss what a shorter job held at most.
MIN_SAMPLED_NS = 5_000_000_000
_FIVE_LINES = """from grpo_doctor_probes import phase, step
for number, batch in enumerate(batches):
    with step(number):
        with phase("rollout"): generate(batch)
        with phase("train"): train(batch)"""
_WITHHELD = "without phases there is no step to shorten"
UNKNOWN = "the reason is unknown"
_NAMES = {"trl": "TRL", "ms-swift": "ms-swift", "verl": "verl", "openrlhf": "OpenRLHF"}


def check(view: RunView) -> Answer:
    """Say what was seen of a job that marked nothing."""
    if view.trace.run.origin is not None:
        return NotApplicable("the file comes from another program, which has its own phases")
    if view.trace.run.framework == "bundled":
        return NotApplicable("the bundled trainer marks its phases")
    if np.nansum(view.analysis.seconds[:, :, :-1]) > 0:
        return Passed("phases were recorded")
    if view.trace.run.unhooked:
        return _lost(view)
    framework = _framework(view)
    unseen = framework and all(process.role == "job" for process in view.trace.processes)
    if view.trace.run.failed or (unseen and view.trace.run.exit.state == "interrupted"):
        return NotApplicable("the run ended early, and no phase was recorded")
    why = "none of its hooks took effect"
    if any(note.startswith("phase `") for note in view.trace.loss.notes):
        why = "its functions have other names in this version"
    return Finding(
        severity="info",
        confidence=1.0,
        evidence=_evidence(view),
        cause=f"The command starts {framework}, and {why}."
        if framework
        else "This command uses no supported framework and has no phase markers.",
        fixes=(_without_hooks(view, framework) if framework else _by_hand(view),),
        headline=f"{framework} ran without its phases" if framework else "",
    )


def _lost(view: RunView) -> Finding:
    """Some processes ran without hooks: the first reason, and how to get them in."""
    unhooked = view.trace.run.unhooked
    first = unhooked[0]
    named = ", ".join(f"rank {u.rank}" if u.rank is not None else f"pid {u.pid}" for u in unhooked)
    return Finding(
        severity="medium",
        confidence=1.0,
        ranks=tuple(sorted({u.rank for u in unhooked if u.rank is not None})),
        evidence=(
            Evidence("processes without hooks", named[:200], "", "/proc of the running job"),
            Evidence("command of the first", first.command, "", "/proc of the running job"),
            *_evidence(view),
        ),
        cause=f"grpo-doctor's hooks could not be installed in these processes: {first.reason}.",
        fixes=(view.advice(first.remedy, _WITHHELD),),
        headline=first.reason if first.reason != UNKNOWN else "",
    )


def _evidence(view: RunView) -> tuple[Evidence, ...]:
    evidence = []
    for name, (text, unit) in {**_PEAKS, **_MEANS}.items():
        sampled = [s.values for s in view.series(name) if s.t_ns[-1] - s.t_ns[0] >= MIN_SAMPLED_NS]
        if sampled and name in _PEAKS:
            evidence.append(Evidence(text, max(float(np.nanmax(v)) for v in sampled), unit, name))
        elif sampled:
            mean = max(float(np.nanmean(values)) for values in sampled)
            evidence.append(Evidence(text, round(mean, 1), unit, name))
    if libraries := view.trace.run.libraries:
        text = ", ".join(libraries)
        evidence.insert(0, Evidence("loaded libraries", text, "", "mapped files"))
    command = " ".join(view.trace.run.command)
    return (*evidence, Evidence("command", command[:200], "", "run.json"))


def _framework(view: RunView) -> str:
    """Return the framework that the command starts, or that its script uses; empty without one."""
    started = unwrap(from_arguments(view.trace.run.command))
    program = recognize(started) if started else None
    if program is None or program.role != "train" or program.script is not None:
        return _NAMES.get(view.trace.run.framework, "")
    return _NAMES.get(program.framework, program.framework)


def _without_hooks(view: RunView, framework: str) -> Fix:
    command = " ".join(view.trace.run.command)
    risk = (
        f"{framework} has phases unless --no-hooks was set, Python was started with -I or -E, or "
        f"the script replaces PYTHONPATH instead of extending it."
    )
    return view.edit(f"grpo-doctor run -- {command}", _WITHHELD, risk=risk)


def _by_hand(view: RunView) -> Fix:
    risk = "Phases are dataload, rollout, reward, logprob, train, optimizer, sync and checkpoint."
    return view.edit(_FIVE_LINES, _WITHHELD, safety="needs-code", risk=risk)
