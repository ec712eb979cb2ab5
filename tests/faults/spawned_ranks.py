"""A job that `torch.multiprocessing.spawn` starts: no RANK in any environment. Argument: SPEC."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.faults.rank import Spec, run_rank


def train(rank: int, text: str) -> None:
    spec = Spec.from_json(text)
    address = f"tcp://127.0.0.1:{spec.port}"
    run_rank(spec, rank, {"init_method": address, "rank": rank, "world_size": spec.world_size})


if __name__ == "__main__":
    from torch.multiprocessing.spawn import spawn

    specification = Path(sys.argv[1]).read_text()
    size = Spec.from_json(specification).world_size
    spawn(train, (specification,), nprocs=size)  # type: ignore[no-untyped-call]
