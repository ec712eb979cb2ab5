"""The ranks: who this process is, the process group, and the two collectives of the loop."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Ranks:
    """This process among the others.

    Attributes:
        rank: its number over all machines.
        world_size: the number of all.
        local_rank: its number on this machine, which is also its GPU.
        device: where it computes.
        threads: the CPU threads of its tensor operations.
    """

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    threads: int

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that writes."""
        return self.rank == 0


def join_ranks(timeout_s: int) -> Ranks:
    """Start the process group: NCCL on GPUs, gloo without. Works without torchrun as one rank."""
    _stand_in_for_torchrun()
    # DeepSpeed's launcher calls it LOCAL_SIZE.
    ranks_here = os.environ.get("LOCAL_SIZE", os.environ["WORLD_SIZE"])
    os.environ.setdefault("LOCAL_WORLD_SIZE", ranks_here)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ["LOCAL_RANK"])
    threads = _limit_threads(int(os.environ["LOCAL_WORLD_SIZE"]))
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
        # Read at the first import of deepspeed, which accelerate and peft cause too.
        os.environ["DS_ACCELERATOR"] = "cpu"
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        timeout=timedelta(seconds=timeout_s),
        device_id=device if device.type == "cuda" else None,
    )
    return Ranks(rank, world_size, local_rank, device, threads)


def settle(device: torch.device) -> None:
    """Wait until the device has done what it was asked to.

    At the end of a phase whose last kernels nothing else waits for: their time would be counted to
    the next phase. Almost nothing is lost, for the next phase needs the result.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def leave_ranks() -> None:
    """Destroy the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def gather_rows(rows: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """Join the rows of all ranks in the order of ranks; every rank has the same number of them.

    Args:
        rows: [rows, columns] on the CPU.
        ranks: the ranks of this job.

    Returns:
        [ranks x rows, columns] on the CPU.
    """
    if ranks.world_size == 1:
        return rows
    mine = rows.to(ranks.device).contiguous()
    every = [torch.empty_like(mine) for _ in range(ranks.world_size)]
    dist.all_gather(every, mine)
    return torch.cat(every).cpu()


def sum_over_ranks(values: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """Add up one vector over all ranks; the result is on the CPU."""
    if ranks.world_size > 1:
        dist.all_reduce(values)
    return values.cpu()


def from_main(text: str | None, ranks: Ranks) -> str | None:
    """Return the text of rank 0 on every rank; files may show up later on other machines."""
    texts = [text]
    if ranks.world_size > 1:
        dist.broadcast_object_list(texts, src=0, device=ranks.device)
    return texts[0]


def worst_on_any_rank(failed: bool, ranks: Ranks) -> bool:
    """Return on every rank whether something failed on one of them."""
    return bool(sum_over_ranks(torch.tensor([float(failed)], device=ranks.device), ranks)[0])


def _stand_in_for_torchrun() -> None:
    if "RANK" in os.environ:
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _limit_threads(ranks_here: int) -> int:
    # torchrun sets OMP_NUM_THREADS=1 itself, but only for several ranks and if the user did not.
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks_here))
    return torch.get_num_threads()
