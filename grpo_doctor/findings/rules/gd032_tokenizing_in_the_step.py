"""Texts are tokenized while the step waits."""

from __future__ import annotations

from grpo_doctor.findings import loading, signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.signals import Signal
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.model import Trace
from grpo_doctor.whatif import Settings

# What spans are called that do it: the last part of `rollout/encode`.
PREPARING = ("tokenize", "encode", "prepare_inputs", "process_inputs", "collate", "chat_template")


def preparing_spans(trace: Trace) -> list[str]:
    """Return the names of spans within a phase that prepare inputs."""
    return [
        name
        for name in trace.names
        if phase_of(name) and "/" in name and name.rpartition("/")[2] in PREPARING
    ]


_SPANS = Signal("", lambda a: bool(preparing_spans(a.trace)), ("spans",))
RULE = timed_rule(
    "data",
    signals.any_of(
        "time of preparing inputs: spans such as `rollout/encode` or `dataload/tokenize`, or the "
        "counter `dataload/tokenize_s` of a loader that times itself",
        loading.LOADER_TIMES,
        _SPANS,
    ),
    uses=(loading.LOADER_COUNTERS,),
)
# Tokenizing a GRPO batch takes milliseconds; a twentieth of a step is not a matter of course.
MIN_SHARE = 0.05
# Of what the loader does; with less it is loading that is slow, and another rule's matter.
MOSTLY = 0.50
_KNOB = "dataload.num_workers"
_BEFOREHAND = "tokenize the data set once, before training, and load the tokens"


def check(view: RunView) -> Answer:
    """Add up what the main thread spends on preparing inputs."""
    spans = {name: view.span_seconds(name) for name in preparing_spans(view.trace)}
    loader_s = _loader_seconds(view)
    seconds = sum(spans.values()) + loader_s
    share = view.of_step(seconds)
    if share < MIN_SHARE:
        return Passed(f"preparing inputs takes {percent(share, 1)} of the step on the main thread")
    starved = view.found("GD002") if loader_s else None
    if starved is not None and sum(spans.values()) < MIN_SHARE * view.step_s:
        loaded = loading.loading(view)
        if loaded is None or loaded.share("tokenize_s", "join_s") < MOSTLY:
            return Passed(
                f"preparing inputs takes {percent(share, 1)} of the step, a part of the loading "
                "that GD002 reports"
            )
    evidence = [Evidence(f"{name} per step", s, "s", "its spans") for name, s in spans.items() if s]
    if loader_s:
        source = "dataload/tokenize_s and join_s, without loader processes"
        evidence.append(Evidence("tokenizing per step", loader_s, "s", source))
    phases = {phase_of(name) or "" for name, s in spans.items() if s} | (
        {"dataload"} if loader_s else set()
    )
    return Finding(
        severity="low" if starved is not None else severity_of(share),
        confidence=0.8,
        cost=share,
        phases=tuple(sorted(phases)),
        evidence=tuple(evidence),
        cause=f"{seconds:.3g} s of each {view.step_s:.3g} s step prepare inputs on the main thread "
        f"({percent(share)}).",
        fixes=tuple(_fixes(view, 0.0 if starved and starved.sets(_KNOB) else loader_s)),
    )


def _loader_seconds(view: RunView) -> float:
    load = loading.loading(view)
    if load is None or view.fact(_KNOB) != 0:
        return 0.0
    return load.parts["tokenize_s"] + load.parts["join_s"]


def _fixes(view: RunView, loader_s: float) -> list[Fix]:
    reason = "how much of the preparation can be stored depends on the framework"
    risk = "Stored tokens are valid for one tokenizer and chat template."
    beforehand = view.advice(_BEFOREHAND, reason, risk=risk)
    if not loader_s:
        return [beforehand]
    target = loading.enough_workers(view, 0) or loading.USUAL
    risk = f"Takes {target} process{'es' * (target != 1)} per rank, with CPU time and memory."
    reason = "no model predicts the effect of loader processes on this run"
    change = Settings(((_KNOB, target),), reason)
    return [view.setting(_KNOB, target, change, risk=risk), beforehand]
