"""Weights into an engine of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rollout.vllm.weight_checks import check_loaded, note_loads, stop_noting
from grpo_doctor_trainer.rollout.vllm.weights import adapter_weights, policy_weights, stream_weights

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.ranks.engine import Engine


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
                for name, tensor in stream_weights(self._engine, self._config)
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
