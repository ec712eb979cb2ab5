"""Collectives between the trainer's rank 0 and the engine's workers, and weights sent over them.

The group is apart from the trainer's own process group and from the engine's: torch's process group
classes are used directly on a store of their own. Rank 0 is the sender; it tells ahead of each part
which tensors come, so that nothing about the model has to be agreed on before.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as _c10d

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LARGEST_HEADER_BYTES = 64 * 2**20


class Channel:
    """One end of the group.

    Over NCCL this has not been run: it needs two GPUs. Over gloo it is part of the tests; the two
    differ in the lines of `_group` alone.

    Args:
        backend: `nccl` between GPUs, else `gloo`.
        host: where rank 0 is reached.
        port: of rank 0's store; 0 takes a free one, on rank 0 only.
        rank: 0 for the trainer.
        size: the trainer and the workers.
        timeout_s: until a broadcast that the others do not join is an error.
        device: where tensors are sent from, or received to.
    """

    def __init__(  # noqa: PLR0913 - what a group is made of, by name
        self,
        *,
        backend: str,
        host: str,
        port: int,
        rank: int,
        size: int,
        timeout_s: float,
        device: torch.device,
    ) -> None:
        self.device = device
        self._timeout = timedelta(seconds=timeout_s)
        self._store: Any = _c10d.TCPStore(
            host, port, size, is_master=rank == 0, timeout=self._timeout, wait_for_workers=False
        )
        self._rank, self._size, self._backend = rank, size, backend
        self._made: Any = None

    @property
    def port(self) -> int:
        """The port of rank 0's store."""
        port: int = self._store.port
        return port

    def join(self) -> None:
        """Waits until all have joined; every rank calls it."""
        self._made = _group(self._backend, self._store, self._rank, self._size, self._timeout)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Sends a contiguous tensor of rank 0's, or receives into it.

        Raises:
            RuntimeError: another end has gone, or did not join in time.
        """
        options = _c10d.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        options.timeout = self._timeout
        work = self._made.broadcast([tensor], options)
        work.wait(self._timeout)

    def close(self) -> None:
        """Leaves the group, also in the middle of a broadcast. Can be called twice."""
        made, self._made, self._store = self._made, None, None
        if made is not None and hasattr(made, "abort"):
            made.abort()


def _group(backend: str, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    prefixed = _c10d.PrefixStore("weights", store)
    if backend == "nccl":
        options = _c10d.ProcessGroupNCCL.Options()
        options._timeout = timeout  # noqa: SLF001 - it has no public name
        return _c10d.ProcessGroupNCCL(prefixed, rank, size, options)
    return _c10d.ProcessGroupGloo(prefixed, rank, size, timeout)


def send_part(channel: Channel, part: list[tuple[str, torch.Tensor]]) -> None:
    """Sends some tensors; an empty part says that there are no more."""
    told = [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in part]
    header = torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)
    channel.broadcast(torch.tensor([header.numel()], device=channel.device))
    channel.broadcast(header.to(channel.device))
    for _, tensor in part:
        channel.broadcast(tensor.detach().to(channel.device).contiguous())


def receive(
    channel: Channel, seen: Callable[[str, torch.Tensor], None]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Receives tensors one at a time until the sender says that there are no more.

    Args:
        channel: a joined end.
        seen: is called with each tensor before it is handed on, whatever becomes of it then.

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
        told = json.loads(bytes(header.cpu().tolist()))
        if not told:
            return
        for name, dtype, shape in told:
            tensor = torch.empty(shape, dtype=_dtype(dtype), device=channel.device)
            channel.broadcast(tensor)
            seen(name, tensor)
            yield name, tensor


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"the trainer announced a tensor of type {name!r}")
    return found
