"""Gradient checkpointing: without it the backward pass does not compute the layers again.

What that costs is one forward pass of the layers. Where the log-probs of the same completions were
computed without gradients, such a pass was measured, and the layers' part of it is that of their
multiplications; else the pass is a share of the training time that follows from counting them:
with all weights trained 2 parts of 8 (forward 2, again 2, backward 4), with LoRA 2 of 6 (its
backward pass needs no gradients of the frozen weights).
"""

from __future__ import annotations

from grpo_doctor.whatif.models.cost_model import Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.models.passes import BATCH, PLACES, arithmetic_of
from grpo_doctor.whatif.step_model import Edit

_KNOB = "train.gradient_checkpointing"
# ms-swift publishes -20% of a step with LoRA where counting says -33%.
_MEASURED_ERROR, _COUNTED_ERROR = 0.25, 0.45
_SHARES = {"full": 2 / 8, "lora": 2 / 6}
_FULL_GPU = 0.90


def _effect(case: Case) -> Effect:
    train = case.work_s("train")
    if not train:
        raise UnsupportedError("no train span was recorded")
    if case.before[_KNOB] is None:
        raise UnsupportedError("whether this run computes its layers again was not recorded")
    most_used = [m.peak_bytes / m.gpu.memory_total_bytes for m in case.analysis.gpu_memory]
    off = case.after[_KNOB] is False
    if off and most_used and max(most_used) > _FULL_GPU:
        raise UnsupportedError(f"GPU memory is {100 * max(most_used):.0f}% full as it is")
    forward = _forward_s(case)
    if forward is not None and forward < train / 2:
        seconds, error, how = forward, _MEASURED_ERROR, "the log-probs' own passes"
    else:
        share = _SHARES.get(str(case.knob("train.type")))
        if share is None:
            raise UnsupportedError("whether all weights or adapters are trained was not recorded")
        seconds = train * (share if off else share / (1 - share))
        error, how = _COUNTED_ERROR, "the number of multiplications"
    factor = 1 - seconds / train if off else 1 + seconds / train
    assumes = f"one forward pass of {seconds:.3g} s, by {how}, and memory for the activations"
    return Effect((Edit(("train",), factor),), assumes, error)


def _forward_s(case: Case) -> float | None:
    """Return a forward pass of the layers over one step's completions, without gradients."""
    for name in ("logprob/reference", "logprob/old"):
        measured = case.work_s(name)
        if measured:
            return measured * _layers_share(case)
    return None


def _layers_share(case: Case) -> float:
    """Return the layers' share of a forward pass, the rest being the logits; 1 if unknown."""
    counted = arithmetic_of(case.analysis.trace.run.config)
    if counted is None:
        return 1.0
    places, sequences = case.values(PLACES), case.knob(BATCH)
    width = float(places.mean()) / sequences if len(places) and sequences else 0.0
    return counted.layers_share(width)


MODELS = (CostModel("recomputation", (_KNOB,), _effect),)
