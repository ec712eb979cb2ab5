"""Activations are recomputed though there is room to keep them."""

from __future__ import annotations

from grpo_doctor.findings import device_memory, signals
from grpo_doctor.findings.rule import Answer, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.signals import Signal, sampled
from grpo_doctor.findings.span_counts import micro_batches_per_step
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Prediction, Settings

_SIZES = ("model_hidden_size", "model_intermediate_size", "model_num_hidden_layers")
RULE = timed_rule(
    "training",
    signals.SETTINGS,
    device_memory.DEVICE_MEMORY,
    Signal(
        "the model's sizes: grpo_doctor_probes.describe(config={'model_hidden_size': ..., "
        "'model_intermediate_size': ..., 'model_num_hidden_layers': ...})",
        lambda a: all(a.trace.run.config.get(name) for name in _SIZES),
    ),
    sampled(
        "train/token_places",
        "a counter with the tokens and padding of each micro-batch; the bundled trainer records it",
    ),
    uses=("train/token_places",),
)
# The recomputation is a quarter of training: below this it is a few percent of the step.
MIN_TRAIN_SHARE = 0.20
# A forward pass among forward, forward and backward: 2 of 8 units of arithmetic.
RECOMPUTED = 0.25
# Per place a layer keeps about so many values of the hidden size (norms, queries, keys, values,
# attention output, residuals, in half precision or as float32 copies) and of the inner size (gate,
# up, their product and its activation).
HIDDEN_COPIES, INNER_COPIES = 16, 4
_KNOB = "train.gradient_checkpointing"


def check(view: RunView) -> Answer:
    """Compare what activations would need with what training left free."""
    if view.knob(_KNOB) is not True:
        kept = "activations are already kept"
        return NotApplicable(f"`{_KNOB}` is unknown" if view.knob(_KNOB) is None else kept)
    share = view.share("train")
    if share < MIN_TRAIN_SHARE:
        return Passed(f"training takes {percent(share, 1)} of the step, recomputing a part of that")
    needed = _activation_bytes(view)
    room = device_memory.room_for(view, needed, "train", "optimizer") if needed else None
    if room is None:
        return NotApplicable("the memory for activations is unknown")
    if not room.fits:
        return Passed(f"recomputing is needed: {room.text}")
    outcome = view.gain(Settings(((_KNOB, False),)))
    gain = -outcome.mid / 100 if isinstance(outcome, Prediction) else RECOMPUTED * share
    if gain < RECOMPUTED * MIN_TRAIN_SHARE:
        return Passed(f"keeping activations would save {percent(gain, 1)} of the step")
    risk = "Longer completions than in this run need more memory and can end the run."
    return Finding(
        confidence=0.7,
        cost=gain,
        phases=("train",),
        evidence=(*view.phase_evidence("train"), *room.evidence),
        cause=f"The backward pass recomputes every layer, and memory has room for the "
        f"activations: {room.text}.",
        fixes=(view.setting(_KNOB, False, risk=risk),),
    )


def _activation_bytes(view: RunView) -> float:
    """Return what the layers of one micro-batch keep for the backward pass."""
    size, places = device_memory.model_size(view), view.counted_mean("train/token_places")
    passes = micro_batches_per_step(view)
    if not places or not passes or not (size.hidden and size.intermediate and size.layers):
        return 0.0
    per_place = HIDDEN_COPIES * size.hidden + INNER_COPIES * size.intermediate
    return places / passes * size.layers * per_place * device_memory.weight_bytes(view)
