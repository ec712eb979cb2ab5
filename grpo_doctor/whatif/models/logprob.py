"""Avoidable log-prob passes: of the reference without a KL term, of the weights that sampled."""

from __future__ import annotations

from grpo_doctor.whatif.models.cost_model import NOTHING, Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.step_model import Change, Edit, without

REFERENCE, OLD = "logprob/reference", "logprob/old"
_SPG, _PASSES = "rollout.steps_per_generation", "train.grad_accumulation"
_ERROR = 0.10
_ROLLOUT_ERROR = 0.20


def _beta(case: Case) -> Effect:
    if case.after["train.beta"] != 0:
        if case.before.get("train.beta"):
            return NOTHING  # the weight of a term that is computed anyway
        raise UnsupportedError("how long the reference model takes was not measured here")
    if case.work_s(REFERENCE):
        return Effect((without(REFERENCE),), "", _ERROR)
    if case.work_s("logprob") and not case.work_s(OLD) and not _off_policy(case):
        return Effect((without("logprob"),), "that all log-probs are the reference's", 2 * _ERROR)
    raise UnsupportedError(f"the reference's log-probs have no separate span `{REFERENCE}`")


def _off_policy(case: Case) -> bool:
    passes, per_rollout = case.knob(_PASSES) or 1, case.knob(_SPG)
    several = (case.knob("train.num_iterations") or 1) > 1
    return several or bool(per_rollout and per_rollout > passes)


def _steps_per_generation(case: Case) -> Effect:
    passes, after = case.knob(_PASSES), case.after[_SPG]
    before, new_passes = case.before.get(_SPG) or passes, case.every.get(_PASSES, passes)
    if not passes or not before or not after or not new_passes:
        raise UnsupportedError("how many passes one rollout feeds was not recorded")
    for fed, of in ((before, passes), (after, new_passes)):
        if fed % of:
            raise UnsupportedError(f"{fed} is not a multiple of {of} passes per optimizer step")
    steps_before, steps_after = before // passes, after // new_passes
    if (case.knob("train.num_iterations") or 1) > 1:
        raise UnsupportedError("with several iterations over a rollout, more than this changes")
    changes: list[Change] = [Edit(("sync", "offload"), steps_before / steps_after)]
    if steps_after == 1 and steps_before > 1:
        if not case.work_s(OLD):
            raise UnsupportedError(f"the sampling weights' log-probs have no separate span `{OLD}`")
        changes.append(without(OLD))
    if steps_before == 1 and steps_after > 1:
        raise UnsupportedError("the log-probs that this requires were not measured here")
    # One rollout is so much smaller: between the same speed per completion and per rollout.
    ratio = steps_before / steps_after
    if ratio == 1:
        return NOTHING
    same, worst = Edit(("rollout",), 1.0), Edit(("rollout",), ratio)
    half = Edit(("rollout",), (1 + ratio) / 2)
    bold, shy = (same, worst) if ratio > 1 else (worst, same)
    return Effect(
        (*changes, half),
        f"a rollout of {1 / ratio:.3g} times the completions takes between as long per completion "
        "and as long as now",
        _ROLLOUT_ERROR,
        at_least=(*changes, shy),
        at_most=(*changes, bold),
    )


MODELS = (
    CostModel("no reference", ("train.beta",), _beta),
    CostModel("steps per rollout", (_SPG,), _steps_per_generation),
)
