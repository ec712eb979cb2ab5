"""The predicted effect of changed settings: each setting's local model, replayed together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.analysis import Analysis
from grpo_doctor.knobs.values import spelled
from grpo_doctor.whatif import models
from grpo_doctor.whatif.models.cost_model import Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.prediction import (
    NoModel,
    Prediction,
    Withheld,
    ground,
    predict_on,
    together,
)
from grpo_doctor.whatif.step_model import StepModel


def predict_settings(
    analysis: Analysis, model: StepModel, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Prediction | Withheld:
    """Replay a run with some settings changed.

    Args:
        analysis: the run.
        model: its steps.
        before: the values in this run, set or default; None where unknown.
        after: the values to try, by canonical name.

    Returns:
        the change of the step time, all settings together; or, where the model of any of them has
        no answer for this run, its reason.
    """
    base = ground(model)
    if isinstance(base, Withheld):
        return base
    run = analysis.trace.run
    after = {  # of a setting that is taken away, its default holds
        name: knobs.default(run.framework, run.framework_version, name) if value is None else value
        for name, value in after.items()
    }
    changed = {name: value for name, value in after.items() if value != before.get(name)}
    listed = ", ".join(f"{name} {spelled(value)}" for name, value in changed.items())
    description = f"with {listed or 'its own settings'}"
    predictions = []
    for cost_model, settings in _by_model(changed).items():
        now = {name: before.get(name) for name in settings}
        effect = _effect(cost_model, Case(analysis, base.model, now, settings, changed))
        if isinstance(effect, Withheld):
            if len(changed) == len(settings):
                return effect
            return Withheld(f"{', '.join(settings)}: {effect.reason}")
        predictions.append(predict_on(base, effect, description))
    return predictions[0] if len(predictions) == 1 else together(base, predictions, description)


def _effect(cost_model: CostModel | None, case: Case) -> Effect | Withheld:
    if cost_model is None:
        return NoModel(f"no model predicts the effect of {', '.join(case.after)}")
    if (refused := _refused(case.after)) is not None:
        return Withheld(refused)
    try:
        return cost_model.effect(case)
    except UnsupportedError as problem:
        return Withheld(str(problem))


def _refused(settings: Mapping[str, Any]) -> str | None:
    """Return why no model is asked: the value is unknown, or below zero."""
    for name, value in settings.items():
        if value is None and name not in models.NONE_IS_A_VALUE:
            return f"the default of {name} is unknown"
        if isinstance(value, (int, float)) and value < 0:
            return f"{name} can't be {value}"
    return None


def _by_model(settings: Mapping[str, Any]) -> dict[CostModel | None, dict[str, Any]]:
    by_model: dict[CostModel | None, dict[str, Any]] = {}
    for name, value in settings.items():
        by_model.setdefault(models.BY_KNOB.get(name), {})[name] = value
    return by_model
