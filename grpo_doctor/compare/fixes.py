"""What was predicted of the settings that changed, and what they brought."""

from __future__ import annotations

from typing import Any

from grpo_doctor.compare.run import ComparedRun
from grpo_doctor.compare.settings import affects_step, changed_knobs, option_changes
from grpo_doctor.whatif import Ground, Prediction, Settings, Withheld, ground, together
from grpo_doctor.whatif.models import BY_KNOB
from grpo_doctor.whatif.prediction import RUN_ERROR
from grpo_doctor_reports.schema.compare import Change, FixResult

Changed = dict[str, tuple[Any, Any]]


def fix_results(before: ComparedRun, after: ComparedRun, measured: Change) -> list[FixResult]:
    """Return one entry for all changed settings together: they were measured together.

    Where no model predicts a setting, the prediction of a finding's fix with the same change is
    used. Settings without either are named in the note; then nothing is compared.
    """
    changed = {
        name: (old.value, new.value)
        for name, (old, new) in changed_knobs(before, after).items()
        if new.value is not None and affects_step(name)
    }
    if not changed:
        return []
    outcome = _predicted(before, changed)
    predicted = outcome if isinstance(outcome, Prediction) else None
    note = f"not predicted: {outcome.reason}" if isinstance(outcome, Withheld) else ""
    inside = None
    if predicted:
        inside, note = _outcome(predicted, measured, _other_difference(before, after))
    return [
        FixResult(
            knobs={name: [old, new] for name, (old, new) in changed.items()},
            findings=[
                rule.id
                for rule, finding in before.results.findings
                if any(fix.knob in changed for fix in finding.fixes)
            ],
            predicted_low_pct=round(predicted.low, 1) if predicted else None,
            predicted_mid_pct=round(predicted.mid, 1) if predicted else None,
            predicted_high_pct=round(predicted.high, 1) if predicted else None,
            measured_pct=measured.change_pct,
            inside=inside,
            note=note,
            unpredicted=outcome.reason if isinstance(outcome, Withheld) else None,
        )
    ]


def _outcome(predicted: Prediction, measured: Change, difference: str) -> tuple[bool | None, str]:
    """Return whether the measured change is as predicted, and why that is unknown.

    Both have an interval. A measured one that only touches the predicted one decides nothing.
    """
    value, low, high = measured.change_pct, measured.low_pct, measured.high_pct
    if difference:
        return None, f"{difference} differs too, and is not part of the prediction"
    if value is None or low is None or high is None:
        return None, "too few steps to check the prediction"
    if predicted.low == predicted.high == 0:
        # No change was predicted: none is visible, or none beyond what two runs differ by anyway.
        return low <= 0 <= high or abs(value) <= 100 * RUN_ERROR, ""
    # To the digit that is shown.
    if round(predicted.low, 1) <= round(value, 1) <= round(predicted.high, 1):
        return True, ""
    if low <= predicted.high and high >= predicted.low:
        return (None, "the measured change is outside, but its interval overlaps the predicted")
    return False, ""


def _other_difference(before: ComparedRun, after: ComparedRun) -> str:
    """Return what differs other than settings; empty if nothing does."""
    first, second = before.trace.run, after.trace.run
    if first.framework != second.framework:
        return "the framework"
    if first.world_size != second.world_size:
        return "the number of ranks"
    options = [row.name for row in option_changes(before, after) if row.affects_step]
    return next((f"the option {name}" for name in options), "")


def _predicted(before: ComparedRun, changed: Changed) -> Prediction | Withheld:
    """By the models; what they have no answer for by findings, all replayed together."""
    outcome = _by_models(before, changed)
    base = ground(before.view.model)
    if isinstance(outcome, Prediction) or not isinstance(base, Ground):
        return outcome
    advised = {name: _of_finding(before, name, new) for name, (_, new) in changed.items()}
    # A model speaks of several knobs at once, so those that it has an answer for stay together.
    silent = [
        name for name, advice in advised.items() if advice and not _has_model(before, name, changed)
    ]
    predicted = [advice for name in silent if (advice := advised[name]) is not None]
    modelled = {name: pair for name, pair in changed.items() if name not in silent}
    if not predicted:
        return outcome
    if modelled:
        prediction = _by_models(before, modelled)
        if isinstance(prediction, Withheld):
            return prediction
        predicted.append(prediction)
    return predicted[0] if len(predicted) == 1 else together(base, predicted, "with these settings")


def _has_model(before: ComparedRun, name: str, changed: Changed) -> bool:
    """Return whether its model has an answer, given what else it speaks of that changed."""
    model = BY_KNOB.get(name)
    family = {knob: pair for knob, pair in changed.items() if BY_KNOB.get(knob) is model}
    return isinstance(_by_models(before, family), Prediction)


def _by_models(before: ComparedRun, changed: Changed) -> Prediction | Withheld:
    return before.view.gain(Settings(tuple((name, new) for name, (_, new) in changed.items())))


def _of_finding(before: ComparedRun, name: str, value: Any) -> Prediction | None:
    """Return the prediction of a finding's fix that makes this change and no other."""
    alone = before.view.spell(name, value)
    for _, finding in before.results.findings:
        for fix in finding.fixes:
            is_change = (fix.knob, fix.after) == (name, value) and alone in (None, fix.spelling)
            if is_change and fix.predicted is not None:
                return fix.predicted
    return None
