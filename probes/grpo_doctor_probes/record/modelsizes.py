"""The sizes of a model, as rules and memory estimates need them; of any object in their shape."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from typing import Any

_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")


def model_sizes(config: Any) -> dict[str, int]:
    """Return what a model's configuration says, `model_vocab_size` and others, as far as it does.

    Of a model with images its text part's.
    """
    text = getattr(config, "text_config", None) or config
    sizes = {name: getattr(text, name, None) for name in _SIZES}
    return {f"model_{name}": size for name, size in sizes.items() if isinstance(size, int)}


def weight_counts(model: Any) -> dict[str, int]:
    """`model_parameters` and `model_trained_parameters`: counts of numbers, also where ZeRO-3 has
    partitioned them."""
    counts = [
        (int(getattr(weight, "ds_numel", weight.numel())), weight.requires_grad)
        for weight in model.parameters()
    ]
    return {
        "model_parameters": sum(count for count, _ in counts),
        "model_trained_parameters": sum(count for count, trained in counts if trained),
    }
