"""Weights by collectives between the trainer's rank 0 and the server's workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rollout.vllm.channel import Channel, send_part
from grpo_doctor_trainer.rollout.vllm.signature import Signature
from grpo_doctor_trainer.rollout.vllm.transfer import compare
from grpo_doctor_trainer.serve.protocol import JoinRequest, ReceiveRequest, WeightsTaken

if TYPE_CHECKING:
    from concurrent.futures import Future

    import torch

    from grpo_doctor_trainer.rollout.vllm.client import ServerClient
    from grpo_doctor_trainer.rollout.vllm.transfer import Part
    from grpo_doctor_trainer.serve.state import Health

_JOIN_TIMEOUT_S = 120.0


class CollectiveTransfer:
    """Broadcasts each tensor to the server's workers, which load it as it comes.

    Between GPUs this goes over NCCL, which has not been run yet: it needs two GPUs, and the
    project's tests have none. Over gloo, where trainer and server share no folder, it is tested.
    """

    def __init__(
        self,
        client: ServerClient,
        health: Health,
        device: torch.device,
        timeout_s: float,
        backend: str,
    ) -> None:
        self._client = client
        self._backend = backend
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weights")
        self._answer: Future[WeightsTaken] | None = None
        self._signature = Signature()
        host, size = client.own_address(), 1 + health.workers
        try:
            self._channel = Channel(
                backend=backend,
                host=host,
                port=0,
                rank=0,
                size=size,
                timeout_s=min(timeout_s, _JOIN_TIMEOUT_S),
                device=device,
            )
            request = JoinRequest(
                backend, host, self._channel.port, size, min(timeout_s, _JOIN_TIMEOUT_S)
            )
            joined = self._thread.submit(client.call, "/weights/join", request, dict)
            try:
                self._channel.join()
            finally:
                if joined.done():
                    joined.result()  # the server's reason, if it has refused
            joined.result()
        except RuntimeError as error:
            raise self._broken("could not be joined", error) from error

    def describe(self) -> str:
        """Names the way for the log."""
        return f"{self._backend} broadcast"

    def begin(self, version: str) -> None:
        """Tells the server's workers to receive."""
        self._signature = Signature()
        self._answer = self._thread.submit(
            self._client.call, "/weights/receive", ReceiveRequest(version), WeightsTaken
        )

    def add(self, part: Part) -> None:
        """Sends the tensors."""
        for name, tensor in part:
            self._signature.add(name, tensor)
        self._send(part)

    def finish(self) -> None:
        """Ends the stream, and waits until the server has loaded it."""
        with phase("sync/load"):
            self._send([])
            if self._answer is not None:
                compare(self._signature, self._answer.result(), self._client)

    def abandon(self) -> None:
        """Leaves the group, so that the workers' receiving ends with an error."""
        self._channel.close()

    def close(self) -> None:
        """Leaves the group."""
        self._channel.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _send(self, part: Part) -> None:
        try:
            send_part(self._channel, part)
        except RuntimeError as error:
            if self._answer is not None and self._answer.done():
                self._answer.result()  # says more, if it failed
            raise self._broken("stopped taking weights", error) from error

    def _broken(self, what: str, error: Exception) -> RolloutError:
        return RolloutError(
            f"the workers of the vLLM server at {self._client.address} {what} "
            f"({self._backend}: {error}). Its log: {self._client.log}"
        )
