"""Weights into an engine of this process, and whether it took what was sent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rollout.vllm.weights import adapter_weights, policy_weights

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.ranks.engine import Engine


_LOG = logging.getLogger("vllm.grpo_doctor_trainer")  # to the engine's log file


class WeightLoader:
    """Gives the engine the policy's weights.

    Args:
        vllm: the engine, a `LLMEngine`.
        engine: holds the policy.
        config: the options.
        repacks: whether this build of vLLM packs weights for its kernels after loading them, so
            that they are loaded by its reloading alone, and all at once. The CPU build does.
    """

    def __init__(self, vllm: Any, engine: Engine, config: TrainerConfig, *, repacks: bool) -> None:
        self._vllm = vllm
        self._engine = engine
        self._config = config
        self._repacks = repacks
        self._checked = False

    def load(self) -> None:
        """Sends all weights, adapters merged.

        Raises:
            RolloutError: after the first time, if the engine has not taken all of them.
        """
        vectors: dict[str, torch.Tensor] = {}
        loaded = self._reload(vectors) if self._repacks else self._load_in_parts(vectors)
        if not self._checked:
            self._vllm.apply_model(lambda model: check_loaded(model, loaded, vectors))
            self._checked = True

    def load_adapters(self, folder: Path, number: int) -> Any:
        """Sends the adapters alone, by way of a folder, which is how vLLM takes them.

        Args:
            folder: of this rank alone.
            number: above 0, another one each time: vLLM keeps what it knows by number.

        Returns:
            the `LoRARequest` to generate with.
        """
        from vllm.lora.request import LoRARequest  # noqa: PLC0415 - may not be installed

        with phase("sync/gather"):
            tensors = adapter_weights(self._engine, self._config)
        with phase("sync/load"):
            folder.mkdir(parents=True, exist_ok=True)
            self._engine.module.peft_config["default"].save_pretrained(folder)
            save_file(
                {name: tensor.cpu().contiguous() for name, tensor in tensors.items()},
                folder / "adapter_model.safetensors",
            )
            for old in self._vllm.list_loras():
                self._vllm.remove_lora(old)
            request = LoRARequest(f"policy-{number}", number, str(folder))
            self._vllm.add_lora(request)
        return request

    def _reload(self, vectors: dict[str, torch.Tensor]) -> set[str]:
        with phase("sync/gather"):
            # Kept past their part: the engine waits with a layer until it has all of its tensors.
            copies = self._engine.zero_stage == 3
            pairs = [
                (name, tensor.clone() if copies else tensor)
                for part in policy_weights(self._engine, self._config)
                for name, tensor in part
            ]
        if not self._checked:
            _keep_vectors(vectors, pairs)
        loaded: set[str] = set()

        with phase("sync/load"):
            self._vllm.apply_model(lambda model: note_loads(model, loaded))
            try:
                self._vllm.collective_rpc("reload_weights", kwargs={"weights_iterator": pairs})
            finally:
                self._vllm.apply_model(stop_noting)
        return loaded

    def _load_in_parts(self, vectors: dict[str, torch.Tensor]) -> set[str]:
        loaded: set[str] = set()
        parts = policy_weights(self._engine, self._config)
        while True:
            with phase("sync/gather"):
                part = next(parts, None)
            if part is None:
                return loaded
            if not self._checked:
                _keep_vectors(vectors, part)
            with phase("sync/load"):
                for names in self._vllm.apply_model(lambda model: model.load_weights(part)):  # noqa: B023
                    loaded.update(names or ())


def _keep_vectors(
    vectors: dict[str, torch.Tensor], pairs: Iterable[tuple[str, torch.Tensor]]
) -> None:
    for name, tensor in pairs:
        if tensor.dim() == 1:
            vectors[name] = tensor.detach().clone()


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
