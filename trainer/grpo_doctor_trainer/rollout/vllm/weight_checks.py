"""Whether an engine in this process took the weights that were sent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RolloutError

if TYPE_CHECKING:
    import torch

_LOG = logging.getLogger("vllm.grpo_doctor_trainer")  # to the engine's log file


def note_loads(model: Any, loaded: set[str]) -> None:
    """Has a model of vLLM's add the names that it loads to `loaded`, until `stop_noting`."""
    load = model.load_weights

    def load_and_note(*arguments: Any, **keywords: Any) -> Any:
        names = load(*arguments, **keywords)
        loaded.update(names or ())
        return names

    model.load_weights = load_and_note


def stop_noting(model: Any) -> None:
    """Undoes `note_loads`; nothing to do where it has not been called."""
    model.__dict__.pop("load_weights", None)


def missing_weights(model: Any, loaded: set[str]) -> list[str]:
    """Lists what a model has and did not load; empty where it does not say what it loads."""
    return sorted(_parameters(model).keys() - loaded) if loaded else []


def check_loaded(model: Any, loaded: set[str], vectors: dict[str, torch.Tensor]) -> None:
    """Compares what is cheap to compare: which names were loaded, and the small weights' values.

    Vectors, norms above all, are neither packed nor spread over tensor-parallel ranks.

    Args:
        model: the engine's, a module of vLLM's.
        loaded: what it said it has loaded.
        vectors: the one-dimensional tensors that were sent, by their names in a checkpoint.

    Raises:
        RolloutError: it has not taken all of them; names up to three.
    """
    parameters = _parameters(model)
    if missing := missing_weights(model, loaded):
        raise RolloutError(_not_taken(missing, "it was sent nothing for"))
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    renamed = dict(mapper.apply(vectors.items())) if mapper is not None else vectors
    compared = {
        name: parameters[name].detach().to(value.device).equal(value.to(parameters[name].dtype))
        for name, value in renamed.items()
        if name in parameters and parameters[name].shape == value.shape
    }
    if wrong := sorted(name for name, same in compared.items() if not same):
        raise RolloutError(_not_taken(wrong, "it holds other values in"))
    _LOG.info("first sync: %d weights loaded, %d compared", len(loaded), len(compared))


def _not_taken(names: list[str], flaw: str) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"vLLM did not take over the policy's weights: {flaw} {', '.join(names[:3])}{more}. This "
        "version of vLLM names the model's weights in another way than transformers; try another "
        "one, or use --use_vllm false"
    )


def _parameters(model: Any) -> dict[str, torch.Tensor]:
    # vLLM wraps the layers that take adapters.
    return {name.replace(".base_layer.", "."): value for name, value in model.named_parameters()}
