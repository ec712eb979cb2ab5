"""Checkpoints less often, or without the optimizer's state."""

from __future__ import annotations

from grpo_doctor.whatif.models.cost_model import Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.step_model import every, without

STATE = "checkpoint/optimizer"
# One checkpoint tells little of the next: disks and page caches differ more than computing does.
_ERROR = 0.20


def _less_often(case: Case) -> Effect:
    before, after = case.before.get("checkpoint.save_steps"), case.after["checkpoint.save_steps"]
    if not case.work_s("checkpoint"):
        raise UnsupportedError("no checkpoint was written in the used steps")
    if after == 0:
        return Effect((without("checkpoint"),), "", _ERROR)
    if not before:
        raise UnsupportedError("how often this run saves was not recorded")
    # Used steps per checkpoint, as they came: the last step of a short run saves too.
    model = case.model
    steps = set(model.step_of[model.stretch[model.part("checkpoint")]].tolist())
    interval = len(model.measured_s) / len(steps) if steps else None
    if interval is None:
        raise UnsupportedError("no checkpoint was written in the used steps")
    return Effect(
        (every(("checkpoint",), 1, after / interval),),
        f"a checkpoint costs as much as in this run, where one in {interval:.3g} used steps had "
        f"one",
        _ERROR,
    )


def _only_model(case: Case) -> Effect:
    if case.after["checkpoint.save_only_model"] is not True:
        raise UnsupportedError("how long saving the optimizer's state takes was not measured here")
    if not case.work_s("checkpoint"):
        raise UnsupportedError("no checkpoint was written in the used steps")
    if not case.work_s(STATE):
        raise UnsupportedError(f"saving the optimizer's state has no separate span `{STATE}`")
    return Effect((without(STATE),), "that no run resumes from the checkpoint", _ERROR)


MODELS = (
    CostModel("less frequent checkpoints", ("checkpoint.save_steps",), _less_often),
    CostModel("checkpoints without optimizer state", ("checkpoint.save_only_model",), _only_model),
)
