"""Weights by collectives between the trainer's rank 0 and the engine's workers.

The group is apart from the trainer's own process group and from the engine's: torch's process group
classes are used directly on a store of their own. Rank 0 is the sender; it tells ahead of each part
which tensors come, so that nothing about the model has to be agreed on before.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace
from torch._C import _distributed_c10d as _c10d

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rollout.vllm.weight_checks import Signature, check_signature
from grpo_doctor_trainer.serve.protocol import JoinRequest, ReceiveRequest, WeightsTaken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from grpo_doctor_trainer.rollout.vllm.client import ServerClient
    from grpo_doctor_trainer.rollout.vllm.weight_checks import Part
    from grpo_doctor_trainer.serve.state import Health

_JOIN_TIMEOUT_S = 120.0
_LARGEST_HEADER_BYTES = 64 * 2**20


class Channel:
    """One end of the group.

    Over NCCL this has not been run: it needs two GPUs. Over gloo it is part of the tests; the two
    differ in the lines of `_make_group` alone.

    Args:
        group: what the ends have in common; on rank 0 its port may be 0, which takes a free one.
        rank: 0 for the trainer.
        device: where tensors are sent from, or received to.
    """

    def __init__(self, group: JoinRequest, rank: int, device: torch.device) -> None:
        self.device = device
        self._timeout = timedelta(seconds=group.timeout_s)
        self._store: Any = _c10d.TCPStore(
            group.host, group.port, group.size,
            is_master=rank == 0, timeout=self._timeout, wait_for_workers=False,
        )  # fmt: skip
        self._rank, self._size, self._backend = rank, group.size, group.backend
        self._group: Any = None

    @property
    def port(self) -> int:
        """The port of rank 0's store."""
        port: int = self._store.port
        return port

    def join(self) -> None:
        """Waits until all have joined; every rank calls it."""
        self._group = _make_group(self._backend, self._store, self._rank, self._size, self._timeout)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Sends a contiguous tensor of rank 0's, or receives into it.

        Raises:
            RuntimeError: another end has gone, or did not join in time.
        """
        options = _c10d.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        options.timeout = self._timeout
        work = self._group.broadcast([tensor], options)
        work.wait(self._timeout)

    def close(self) -> None:
        """Leaves the group, also in the middle of a broadcast. Can be called twice."""
        group, self._group, self._store = self._group, None, None
        if group is not None and hasattr(group, "abort"):
            group.abort()


def _make_group(backend: str, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    prefixed = _c10d.PrefixStore("weights", store)
    if backend == "nccl":
        options = _c10d.ProcessGroupNCCL.Options()
        options._timeout = timeout  # noqa: SLF001 - it has no public name
        return _c10d.ProcessGroupNCCL(prefixed, rank, size, options)
    return _c10d.ProcessGroupGloo(prefixed, rank, size, timeout)


def send_part(channel: Channel, part: Part) -> None:
    """Sends some tensors; an empty part says that there are no more.

    Args:
        channel: a joined end, the trainer's.
        part: by name; every tensor is sent from the channel's device.
    """
    description = [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in part]
    header = torch.frombuffer(bytearray(json.dumps(description).encode()), dtype=torch.uint8)
    channel.broadcast(torch.tensor([header.numel()], device=channel.device))
    channel.broadcast(header.to(channel.device))
    for _, tensor in part:
        channel.broadcast(tensor.detach().to(channel.device).contiguous())


def receive(
    channel: Channel, on_tensor: Callable[[str, torch.Tensor], None]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Receives tensors one at a time until the sender says that there are no more.

    Args:
        channel: a joined end.
        on_tensor: is called with each tensor before it is handed on, whatever becomes of it then.

    Raises:
        ValueError: the sender's description of a part makes no sense.
    """
    while True:
        size = torch.zeros(1, dtype=torch.int64, device=channel.device)
        channel.broadcast(size)
        if not 0 < int(size) <= _LARGEST_HEADER_BYTES:
            raise ValueError(f"the trainer announced {int(size)} bytes of description")
        header = torch.empty(int(size), dtype=torch.uint8, device=channel.device)
        channel.broadcast(header)
        description = json.loads(bytes(header.cpu().tolist()))
        if not description:
            return
        for name, dtype, shape in description:
            tensor = torch.empty(shape, dtype=_dtype(dtype), device=channel.device)
            channel.broadcast(tensor)
            on_tensor(name, tensor)
            yield name, tensor


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"the trainer announced a tensor of type {name!r}")
    return dtype


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
        group = JoinRequest(
            backend, client.own_address(), port=0, size=1 + health.workers,
            timeout_s=min(timeout_s, _JOIN_TIMEOUT_S),
        )  # fmt: skip
        try:
            self._channel = Channel(group, 0, device)
            request = replace(group, port=self._channel.port)
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
                check_signature(self._signature, self._answer.result(), self._client)

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

    def _broken(self, trouble: str, error: Exception) -> RolloutError:
        return RolloutError(
            f"the workers of the vLLM server at {self._client.address} {trouble} "
            f"({self._backend}: {error}). Its log: {self._client.log}"
        )
