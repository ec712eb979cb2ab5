"""What every rule says of the runs that its tests build, also with other settings or less recorded.

`python -m tests.unit.findings.answers` writes it down again: what changed is to be read in the diff
of `answers.json`, and to be meant.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from grpo_doctor.findings import RunView, rules
from grpo_doctor.findings.engine import ask
from grpo_doctor.findings.rule import Finding, Fix, NotApplicable, NotRun, Outcome, Passed
from grpo_doctor.findings.view import RuleFile
from grpo_doctor.trace.model import Trace
from tests.unit.findings.registry import EXAMPLES, rows_of, runs_of

RECORDED = Path(__file__).with_name("answers.json")
BY_ID = {rule.RULE.id: rule for rule in rules.ALL}
Answers = dict[str, list[str]]


def answers_of(rule_id: str) -> Answers:
    """Each example run, and each change to it that changes the answer: the lines that are said."""
    answers: Answers = {}
    for name, build in runs_of(rule_id).items():
        view, rule = RunView.of(build().build()), BY_ID[rule_id]
        answers[name] = usual = lines(ask(rule, view))
        for change, changed in _changes(view.trace, rule):
            other = lines(ask(rule, RunView(replace(view.analysis, trace=changed))))
            if other != usual:
                answers[f"{name}, {change}"] = other
    for name, build in rows_of(rule_id).items():
        answers[name] = _brief(ask(BY_ID[rule_id], RunView.of(build().build())))
    return answers


def _brief(outcome: Outcome) -> list[str]:
    """An answer without the evidence and the risks, which the runs before it show."""
    if not isinstance(outcome, Finding):
        return lines(outcome)
    first = itertools.islice(_finding(outcome), 2)
    return [*first, *(line for fix in outcome.fixes for line in itertools.islice(_fix(fix), 2))]


def lines(outcome: Outcome) -> list[str]:
    """An answer as a user reads it, numbers to six digits."""
    match outcome:
        case Passed(note):
            return [f"passed: {note}"]
        case NotApplicable(reason, left_out):
            return [f"not applicable{' (left out)' * left_out}: {reason}"]
        case NotRun(missing):
            return [f"not run: {'; '.join(missing)}"]
        case Finding():
            return list(_finding(outcome))
    return [f"error: {outcome.exception}: {outcome.message}"]


def _finding(finding: Finding) -> Iterator[str]:
    yield (
        f"{finding.severity}, confidence {_text(finding.confidence)}, cost {_text(finding.cost)}, "
        f"phases {list(finding.phases)}, ranks {list(finding.ranks)}, steps {list(finding.steps)}"
        f"{', ruins the run' if finding.ruins else ''}"
    )
    yield f"{finding.headline}: {finding.cause}"
    for evidence in finding.evidence:
        yield f"{evidence.text} = {_text(evidence.value)} {evidence.unit} ({evidence.source})"
    for fix in finding.fixes:
        yield from _fix(fix)


def _fix(fix: Fix) -> Iterator[str]:
    predicted = fix.predicted
    gain = f"not predicted: {fix.unpredicted}"
    if predicted is not None:
        gain = f"{_text(predicted.low)} {_text(predicted.mid)} {_text(predicted.high)}"
    yield f"{'paste' if fix.pasted else 'next'} {fix.spelling} [{fix.typed}] at [{fix.where}]"
    yield f"  {fix.knob}: {_text(fix.before)} to {_text(fix.after)}; {gain}; {fix.safety}"
    yield f"  {fix.risk}"


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _changes(trace: Trace, rule: RuleFile) -> Iterator[tuple[str, Trace]]:
    run = trace.run
    yield "no setting known", replace(trace, run=replace(run, knobs={}, config={}))
    yield (
        "of TRL",
        replace(
            trace,
            run=replace(run, framework="trl", framework_version="1.0.0", command=("trl", "grpo")),
        ),
    )
    yield "of an unknown framework", replace(trace, run=replace(run, framework="unknown"))
    yield "nothing recorded but what is needed", _only(trace, rule)
    for name, value in run.knobs.items():
        other = (not value) if isinstance(value, bool) else 1 if isinstance(value, int) else None
        knobs = {**run.knobs, name: other}
        changed = {key: value for key, value in knobs.items() if value is not None}
        yield f"{name} {_text(other)}", replace(trace, run=replace(run, knobs=changed))


def _only(trace: Trace, rule: RuleFile) -> Trace:
    """Less the series and metrics that the rule reads where there are any."""
    needed = {name for signal in rule.RULE.needs for name in signal.reads}

    def is_needed(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in needed)

    metrics = {name: values for name, values in trace.metrics.values.items() if is_needed(name)}
    return replace(
        trace,
        series=tuple(series for series in trace.series if is_needed(series.name)),
        metrics=replace(trace.metrics, values=metrics),
    )


def recorded() -> dict[str, Answers]:
    """What was written down."""
    answers: dict[str, Answers] = json.loads(RECORDED.read_text())
    return answers


if __name__ == "__main__":
    everything = {rule_id: answers_of(rule_id) for rule_id in EXAMPLES}
    RECORDED.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")
