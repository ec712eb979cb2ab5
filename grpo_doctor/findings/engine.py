"""Asks each rule of a run once, after those that it defers to; one that fails stops no other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from grpo_doctor.analysis.learning.curves import without_rollouts
from grpo_doctor.findings.learning import with_lost_steps
from grpo_doctor.findings.priority import priority
from grpo_doctor.findings.readings import UntimedError
from grpo_doctor.findings.rule import (
    Finding,
    NotApplicable,
    NotRun,
    Outcome,
    Passed,
    Rule,
    RuleError,
)
from grpo_doctor.findings.rules import ALL
from grpo_doctor.findings.shared import DEFERS_TO, OF_ANY_TRAINING
from grpo_doctor.findings.signals import PHASES, STEPS, Signal
from grpo_doctor.findings.view import RuleFile, RunView
from grpo_doctor.trace.model import Kind, Origin, Trace

_RECORD = re.compile(
    r"record with `grpo-doctor run`(?: on the GPU's machine)?(?: on (a kernel [^,;()]+))?"
)

_OF_ROLLOUTS = ("rollout", "reward", "sync", "learning")

BY_ID = {rule.RULE.id: rule for rule in ALL}


@dataclass(frozen=True, slots=True)
class Results:
    """Every rule is in exactly one of these, `findings` first what `priority` puts first."""

    findings: tuple[tuple[Rule, Finding], ...]
    passed: tuple[tuple[Rule, Passed], ...]
    not_run: tuple[tuple[Rule, NotRun], ...]
    not_applicable: tuple[tuple[Rule, NotApplicable], ...]
    errors: tuple[tuple[Rule, RuleError], ...] = ()


def run_rules(view: RunView, rules: Sequence[RuleFile] = ALL) -> Results:
    """Ask every rule."""
    answers = [(rule.RULE, ask(rule, view)) for rule in rules]
    findings = [(rule, a) for rule, a in answers if isinstance(a, Finding)]
    findings.sort(key=lambda found: priority(*found))
    return Results(
        findings=tuple(findings),
        passed=tuple((rule, a) for rule, a in answers if isinstance(a, Passed)),
        not_run=tuple((rule, a) for rule, a in answers if isinstance(a, NotRun)),
        not_applicable=tuple((rule, a) for rule, a in answers if isinstance(a, NotApplicable)),
        errors=tuple((rule, a) for rule, a in answers if isinstance(a, RuleError)),
    )


def ask(rule: RuleFile, view: RunView) -> Outcome:
    """Return what the rule answers, or why it could not; never raises."""
    answers, rule_id = view.answers, rule.RULE.id
    if rule_id not in answers:
        for first in DEFERS_TO.get(rule_id, ()):
            ask(BY_ID[first], view)
        answers[rule_id] = _ask(rule, view)
    return answers[rule_id]


def _outside(rule: Rule, view: RunView) -> NotRun | NotApplicable | None:
    """Why this run is none that the rule is of; None where it may be."""
    recorded, origin = len(view.analysis.ranks), view.trace.run.origin
    of_rollouts = rule.family in _OF_ROLLOUTS and rule.id not in OF_ANY_TRAINING
    if of_rollouts and without_rollouts(view.analysis):
        return NotApplicable("neither rollouts nor rewards were recorded")
    if origin and recorded < rule.min_ranks:
        return NotRun((f"a recording of every rank: {_instead(origin)}",))
    ranks = max(recorded, view.trace.run.world_size)
    if 0 < ranks < rule.min_ranks:
        return NotApplicable(f"the run has {ranks} rank{'s' * (ranks != 1)}")
    return None


def _ask(rule: RuleFile, view: RunView) -> Outcome:
    outside = _outside(rule.RULE, view)
    if outside is not None:
        return outside
    try:
        absent = [signal for signal in rule.RULE.needs if not signal.present(view.analysis)]
        if absent:
            return _without(absent, view)
        return _on_facts(rule, view.narrowed(rule.RULE))
    except UntimedError as untimed:
        origin = view.trace.run.origin
        assert origin is not None
        return NotRun((f"{untimed}: {_instead(origin)}",))
    except Exception as error:  # noqa: BLE001 - a rule's defect must not cost the report
        return RuleError(type(error).__name__, str(error))


def _without(absent: Sequence[Signal], view: RunView) -> Outcome:
    """Why a rule says nothing where these parts are missing."""
    names = [set(signal.reads) for signal in absent]
    engine = any(each and all(n.startswith(("engine/", "server.")) for n in each) for each in names)
    if engine and view.now("vllm.use") is False:
        return NotApplicable("the rollout runs without an engine")
    reasons = (s.why(view.analysis) or _remedy(s, view.trace) for s in absent)
    return NotRun(tuple(dict.fromkeys(reasons)))


def _on_facts(rule: RuleFile, view: RunView) -> Outcome:
    """What the rule says, with what its fixes bring; a finding that rests on a default is none."""
    answer = rule.check(view)
    if isinstance(answer, Finding) and view.assumed:
        unsaid = "the run does not record it, and a default is not a fact"
        return NotRun(tuple(f"the setting {name}: {unsaid}" for name in sorted(view.assumed)))
    if isinstance(answer, Finding):
        known = tuple(row for row in answer.evidence if row.value is not None)
        fixes = tuple(map(view.predicted, answer.fixes))
        answer = replace(answer, evidence=known, fixes=fixes)
    return with_lost_steps(answer, rule.RULE, view)


def _remedy(signal: Signal, trace: Trace) -> str:
    """What is missing, and how to get it: of a job that we did not record, by recording it."""
    origin = trace.run.origin
    recorded_by_us = "grpo-doctor run" in signal.text or "grpo_doctor_probes" in signal.text
    if origin is None and trace.run.exit.state != "unknown":  # that was just done
        of_steps = signal in (STEPS, PHASES) and trace.run.framework != "bundled"
        if of_steps and not _is_marked(trace):
            if trace.run.failed:
                return "steps and phases: the run failed, and none was recorded"
            return "steps and phases: none were recorded, see GD075"
        return _RECORD.sub(_saw_none, signal.text)
    if origin is None or (not recorded_by_us and (signal is not STEPS or len(trace.spans))):
        return signal.text
    if signal.text.startswith("metric"):
        subject = signal.text.partition(":")[0]
        return f"{subject}: the framework must log it, in a run that is long enough"
    subject = "step times" if signal is STEPS else signal.text.partition(":")[0].partition(" (")[0]
    return f"{subject}: {_instead(origin)}"


def _is_marked(trace: Trace) -> bool:
    """Return whether any process but the launcher recorded a step or a phase."""
    kind = trace.spans.kind
    recorded = any(process.role != "job" for process in trace.processes)
    return recorded and bool(((kind == Kind.STEP) | (kind == Kind.SPAN)).any())


def _saw_none(advice: re.Match[str]) -> str:
    takes = f", which takes {advice[1]}" if advice[1] else ""
    return f"`grpo-doctor run` saw none{takes}"


def _instead(origin: Origin) -> str:
    return f"not in {origin.what}; record with `grpo-doctor run -- ...`"
