"""How new weights get from the trainer to the server, behind one narrow interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from grpo_doctor_probes import counter
from grpo_doctor_trainer.errors import RolloutError

if TYPE_CHECKING:
    from grpo_doctor_trainer.rollout.vllm.client import ServerClient
    from grpo_doctor_trainer.rollout.vllm.signature import Signature
    from grpo_doctor_trainer.serve.protocol import WeightsTaken

Part = list[tuple[str, torch.Tensor]]


class WeightTransfer(Protocol):
    """Sends weights from rank 0, which alone has one.

    The order of calls is `begin`, `add` for each part, `finish`; after an error, `abandon`.
    """

    def describe(self) -> str:
        """Names the way for the log."""

    def begin(self, version: str) -> None:
        """Starts with new weights."""

    def add(self, part: Part) -> None:
        """Takes one part of the weights; the tensors are valid during the call only.

        Raises:
            RolloutError: it could not be sent.
        """

    def finish(self) -> None:
        """Makes the server use what was added, and checks that it got the same.

        Raises:
            RolloutError: it did not.
        """

    def abandon(self) -> None:
        """Forgets what was added."""

    def close(self) -> None:
        """Leaves nothing behind."""


def compare(signature: Signature, taken: WeightsTaken, client: ServerClient) -> None:
    """Checks that the server's workers took what was sent.

    Raises:
        RolloutError: they did not.
    """
    counter("sync/tensors", float(taken.tensors))
    if taken.signature != signature.value():
        raise RolloutError(
            f"the vLLM server at {client.address} got other weights than were sent "
            f"({taken.tensors} tensors for {signature.tensors}, or other values). "
            f"Its log: {client.log}"
        )
