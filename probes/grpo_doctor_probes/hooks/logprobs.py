"""Whose log-probs a forward pass gives: one function of a trainer serves policy and reference."""

from __future__ import annotations

from typing import Any

from grpo_doctor_probes.hooks.spans import inside

LOSS = "train/loss"
OLD, REFERENCE = "logprob/old", "logprob/reference"
# The first layer of peft's in a model, by the model's id: to look for it takes milliseconds.
_LAYERS: dict[int, Any] = {}


def logprob_span(trainer: Any, model: Any, *_: Any, **__: Any) -> str | None:
    """Return the span of a pass over `model`; None for the policy's own pass within the loss."""
    if _is_reference(trainer, model):
        return REFERENCE
    return None if inside(LOSS) else OLD


def _is_reference(trainer: Any, model: Any) -> bool:
    if model is getattr(trainer, "ref_model", None):
        return True
    layer = _adapter_layer(model)
    if layer is None:
        return False
    name = getattr(trainer, "ref_adapter_name", None)
    off = vars(layer).get("_disable_adapters")  # peft's class has the same, False
    return bool(off) or (bool(name) and name in layer.active_adapters)


def _adapter_layer(model: Any) -> Any:
    if id(model) not in _LAYERS:
        # `disable_adapters` without the dash is also a method of transformers' models.
        modules = model.modules() if hasattr(model, "modules") else ()
        layers = (m for m in modules if hasattr(m, "_disable_adapters"))
        _LAYERS[id(model)] = next(layers, None)
    return _LAYERS[id(model)]
