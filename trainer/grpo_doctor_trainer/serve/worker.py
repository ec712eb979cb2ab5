"""What the engine's worker processes can do beyond vLLM's own: take over new weights.

vLLM adds this class to its worker (`worker_extension_cls`), so that its methods can be called by
name on all workers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from grpo_doctor_trainer.rollout.vllm.collective import Channel, receive
from grpo_doctor_trainer.rollout.vllm.weight_checks import (
    Signature,
    missing_weights,
    note_loads,
    stop_noting,
)
from grpo_doctor_trainer.serve.protocol import JoinRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


class WeightWorker:
    """Takes weights by file or by collective.

    Every call gives what the model was handed: its signature and the number of its tensors.
    """

    # Set by vLLM's worker.
    device: torch.device
    model_runner: Any
    rank: int

    def grpo_load_files(self, paths: list[str]) -> tuple[str, int]:
        """Loads all weights from safetensors files."""
        signature = Signature()

        def weights() -> Iterator[tuple[str, torch.Tensor]]:
            for path in paths:
                with safe_open(path, framework="pt", device=str(self.device)) as file:
                    for name in file.keys():  # noqa: SIM118 - it is no mapping
                        tensor = file.get_tensor(name)
                        signature.add(name, tensor)
                        yield name, tensor

        self._grpo_load(weights())
        return signature.value(), signature.tensors

    def grpo_join(self, backend: str, host: str, port: int, size: int, timeout_s: float) -> None:
        """Joins the trainer's group, behind the trainer in the order of workers.

        The arguments are `JoinRequest`'s: vLLM hands on plain values alone.
        """
        self.grpo_leave()
        group = JoinRequest(backend, host, port, size, timeout_s)
        self._grpo_channel = Channel(group, 1 + self.rank, self.device)
        self._grpo_channel.join()

    def grpo_receive(self) -> tuple[str, int]:
        """Loads all weights as they come over the group."""
        signature = Signature()
        weights = receive(self._grpo_channel, signature.add)
        self._grpo_load(weights)
        for _ in weights:  # a model that stops early must not leave the sender waiting
            pass
        return signature.value(), signature.tensors

    def grpo_leave(self) -> None:
        """Leaves the trainer's group, if in one."""
        channel = getattr(self, "_grpo_channel", None)
        if channel is not None:
            channel.close()

    def _grpo_load(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Gives the model all weights in one pass.

        Raises:
            ValueError: the model has weights for which nothing came.
        """
        model = self.model_runner.get_model()
        loaded: set[str] = set()
        note_loads(model, loaded)
        try:
            if self.device.type == "cpu":
                # This build packs a layer's weights for its kernels when it has them all, and does
                # not take a single one later: its reloading undoes that first.
                self.model_runner.reload_weights(weights_iterator=weights)
            else:
                model.load_weights(weights)
        finally:
            stop_noting(model)
        if missing := missing_weights(model, loaded):
            raise ValueError(f"nothing was sent for {len(missing)} weights, such as {missing[0]}")
