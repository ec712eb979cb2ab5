"""Unaccounted step time."""

from __future__ import annotations

from grpo_doctor.analysis.per_step import gap_seconds, unattributed_span_seconds
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed
from grpo_doctor.findings.shared import PROFILE, percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.phases import UNATTRIBUTED
from grpo_doctor.trace.model import Origin

RULE = timed_rule("visibility")
# The bundled trainer leaves under 2%; a framework's own bookkeeping between phases may take as
# much again.
MIN_SHARE = 0.05
# Of the unattributed time: a span that holds more than half of it is what it is.
MIN_NAMED = 0.5
_UNKNOWN = "what the time is spent on is unknown"
_NAME_IT = (
    'put `with grpo_doctor_probes.phase("rollout"):`, or another phase, around the '
    f"unnamed code: {PROFILE} on a rank"
)


def check(view: RunView) -> Answer:
    """Compare what no phase covers with the step."""
    share = view.analysis.share(UNATTRIBUTED)
    if share < MIN_SHARE:
        return Passed(f"{percent(share, 1)} of the step is outside all phases")
    steps = len(view.analysis.step_seconds)
    seconds = share * view.step_s
    origin = view.trace.run.origin
    if origin:
        return _untimed(view, origin, share)
    (before, after), gap = next(iter(gap_seconds(view.analysis).items()))
    where = f"between {before} and {after}"
    source = f"main thread without an open phase, mean of {steps} steps"
    spans = unattributed_span_seconds(view.analysis)
    name, named_s = next(iter(spans.items()), ("", 0.0))
    is_named = named_s >= MIN_NAMED * seconds
    of_it = f"in `{name}`" if is_named else where
    part = named_s if is_named else gap
    function = name.rpartition("/")[2]
    faster = f"make `{function}` faster or call it less often: {PROFILE} on a rank"
    return Finding(
        confidence=1.0,
        cost=share,
        phases=(UNATTRIBUTED,),
        evidence=(
            Evidence("outside all phases, per step", seconds, "s", source),
            Evidence("outside all phases", 100 * share, "%", source),
            Evidence(f"of it {of_it}, per step", part, "s", source),
        ),
        cause=f"{seconds:.3g} s of each {view.step_s:.3g} s step are in no phase, "
        f"{percent(part / seconds)} of it {of_it}.",
        fixes=(view.advice(faster if is_named else _NAME_IT, _UNKNOWN, safety="needs-code"),),
    )


def _untimed(view: RunView, origin: Origin, share: float) -> Finding:
    """What a file of another program has no name for: where in the step it lies is unknown. A
    profile names only what the job marks, so it is not a cost there."""
    seconds = share * view.step_s
    steps = len(view.analysis.step_seconds)
    source = f"step time less what {origin.what} names, mean of {steps} steps"
    advice = "record with `grpo-doctor run -- ...`, which records more of a step"
    return Finding(
        severity=severity_of(share) if origin.durations_only else "info",
        confidence=1.0,
        cost=share if origin.durations_only else 0.0,
        phases=(UNATTRIBUTED,),
        evidence=(
            Evidence("without a name, per step", seconds, "s", source),
            Evidence("without a name", 100 * share, "%", source),
        ),
        cause=f"{seconds:.3g} s of each {view.step_s:.3g} s step have no name in {origin.what}.",
        fixes=(view.advice(advice, _UNKNOWN),),
    )
