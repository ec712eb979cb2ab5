"""What TRL's and ms-swift's GRPO trainers share: whose log-probs a forward pass gives, and the size
of each pass.
"""

from __future__ import annotations

from typing import Any

from grpo_doctor_probes import counter
from grpo_doctor_probes.hooks.spans import inside
from grpo_doctor_probes.hooks.wrapping import Around, before

LOSS = "train/loss"
OLD, REFERENCE = "logprob/old", "logprob/reference"
# The first layer of peft's in a model, by the model's id: to look for it takes milliseconds.
_LAYERS: dict[int, Any] = {}
PLACES = "train/token_places"


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


def _count_places(*args: Any, **kwargs: Any) -> None:
    """Tokens and padding of a pass, by the tensors' shapes: nothing is asked of the device."""
    if inside("eval"):
        return
    inputs = kwargs["inputs"] if "inputs" in kwargs else args[2:3]
    while isinstance(inputs, (list, tuple)):
        if not inputs:
            return
        inputs = inputs[0]
    model_inputs = inputs.get("model_inputs", inputs)
    names = ("input_ids",) if "input_ids" in model_inputs else ("prompt_ids", "completion_ids")
    places = sum(model_inputs[name].numel() for name in names if name in model_inputs)
    if places:
        counter(PLACES, float(places))


def of_trainer(owner: str = "GRPOTrainer") -> dict[str, Around]:
    """Count the padded tokens of each pass of a trainer."""
    return {f"{owner}.compute_loss": before(_count_places)}
