"""torch's side of a rank: a process group whose collectives return at once, and a CUDA that spins.

Waits are C functions without a Python frame of their own, as `Work.wait` and `Tensor.item` are, so
that the innermost line of a stack is torch's or the user's.
"""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.spinning.stand_ins import World

NAME = "spinning"


class Device:
    """The libraries of one rank, opened under the names of CUDA's driver and NCCL."""

    def __init__(self, folder: Path, world: Path, rank: int, proxies: int, named: bool) -> None:
        self.rank = rank
        self.cuda = ctypes.CDLL(str(folder / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
        self.holding = ctypes.PyDLL(str(folder / "libcuda.so.1"))  # keeps the GIL meanwhile
        self.nccl = ctypes.CDLL(str(folder / "libnccl.so.2"), mode=ctypes.RTLD_GLOBAL)
        self.user = ctypes.CDLL(str(folder / "solver.so"))
        path = str(world).encode()
        self.cuda.spinning_open(path, rank)
        self.nccl.spinning_start(path, rank, proxies, named)
        self.holding.cuStreamSynchronize.argtypes = ()
        self.cuda.cuLaunchKernel.argtypes = (ctypes.c_uint64,)
        with world.open("r+b") as file:
            import mmap

            self._mapped = mmap.mmap(file.fileno(), 0)
        self.world = World.from_buffer(self._mapped)

    def launch(self, seconds: float) -> None:
        """A kernel; returns at once."""
        self.cuda.cuLaunchKernel(int(seconds * 1e6))

    def launch_hung(self) -> None:
        """A kernel that never ends."""
        self.cuda.cuLaunchHungKernel()

    def value(self) -> Any:
        """A tensor on the device."""
        return _Value(self.cuda.cuStreamSynchronize)


class _Value:
    """`item()`, `tolist()` and `cpu()` wait for the device in C."""

    def __init__(self, synchronize: Any) -> None:
        self.item = self.tolist = self.cpu = synchronize


class _Enqueued:
    """The work of a collective: its `wait` lets a stream wait, not the host."""

    wait = staticmethod(lambda *_: True)


class SpinningGroup(dist.ProcessGroup):
    """One communicator."""

    def __init__(self, rank: int, size: int, number: int, device: Device) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._rank, self._size, self._number, self._device = rank, size, number, device
        self._barrier = type("_Barrier", (), {"wait": device.cuda.cuStreamSynchronize})

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return NAME

    @property
    def pg_name(self) -> str:
        return str(dist.distributed_c10d._world.pg_names[self])

    @property
    def group_name(self) -> str:  # type: ignore[override]
        return self.pg_name

    def _enqueue(self, *_: Any, **__: Any) -> Any:
        self._device.nccl.ncclAllReduce(self._number)
        return _Enqueued()

    allreduce = broadcast = allgather = _allgather_base = reduce = _enqueue

    def barrier(self, opts: Any = None) -> Any:
        """Ends in cudaStreamSynchronize, under torch's line that waits."""
        self._enqueue()
        return self._barrier()


def install(device: Device) -> None:
    """Registers the backend, and lets torch.cuda's Python code run on the device."""
    numbers = itertools.count()

    def create(store: Any, rank: int, size: int, timeout: Any) -> SpinningGroup:
        return SpinningGroup(rank, size, next(numbers), device)

    dist.Backend.register_backend(NAME, create, devices=["cpu", "cuda"])
    cuda: Any = torch.cuda
    cuda._lazy_init = lambda: None
    cuda._exchange_device = cuda._maybe_exchange_device = lambda _index: -1
    core: Any = torch._C
    core._cuda_synchronize = device.cuda.cuStreamSynchronize


def members_of(device: Device, groups: list[list[int]]) -> None:
    """Tells the device who is in which group, in the order in which groups are made."""
    for number, ranks in enumerate(groups):
        device.world.members[number] = sum(1 << rank for rank in ranks)
