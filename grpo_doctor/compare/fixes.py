"""What was predicted of the settings that changed, beside what they brought."""

from __future__ import annotations

from typing import Any

from grpo_doctor.compare.run import ComparedRun
from grpo_doctor.compare.schema import Change, FixResult
from grpo_doctor.compare.settings import changed_knobs
from grpo_doctor.whatif import Prediction


def fix_results(before: ComparedRun, after: ComparedRun, measured: Change) -> list[FixResult]:
    """One entry for all changed knobs together: they were measured together.

    Knobs of which no law knows anything are named in the note; then there is no prediction to
    hold the measurement to, but for a single changed knob that a finding's fix predicted.
    """
    changed = {
        name: pair for name, pair in changed_knobs(before, after).items() if pair[1] is not None
    }
    if not changed:
        return []
    advised = _advised(before, changed)
    outcome = before.view.what_if(**{n.replace(".", "__"): new for n, (_, new) in changed.items()})
    predicted = outcome if isinstance(outcome, Prediction) else _of_finding(before, changed)
    note = "" if predicted else f"not predicted: {getattr(outcome, 'reason', 'no law')}"
    inside = None
    value = measured["change_pct"]
    if predicted and value is not None and measured["low_pct"] is not None:
        # Both have an interval; the prediction holds if they meet.
        high, low = measured["high_pct"], measured["low_pct"]
        inside = bool(high is not None and low <= predicted.high and high >= predicted.low)
    return [
        FixResult(
            knobs={name: [old, new] for name, (old, new) in changed.items()},
            findings=advised,
            predicted_low_pct=round(predicted.low, 1) if predicted else None,
            predicted_mid_pct=round(predicted.mid, 1) if predicted else None,
            predicted_high_pct=round(predicted.high, 1) if predicted else None,
            measured_pct=value,
            inside=inside,
            note=note,
        )
    ]


def _advised(before: ComparedRun, changed: dict[str, tuple[Any, Any]]) -> list[str]:
    """Findings of the run before whose fix sets one of these knobs."""
    return [
        rule.id
        for rule, finding in before.results.findings
        if any(fix.knob in changed for fix in finding.fixes)
    ]


def _of_finding(before: ComparedRun, changed: dict[str, tuple[Any, Any]]) -> Prediction | None:
    """The prediction of a finding's fix that is exactly what was done."""
    for _, finding in before.results.findings:
        for fix in finding.fixes:
            done = {fix.knob: fix.after} == {name: new for name, (_, new) in changed.items()}
            if done and fix.predicted is not None:
                return fix.predicted
    return None
