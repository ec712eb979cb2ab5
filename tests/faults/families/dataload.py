"""DataLoader workers that stop delivering."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.faults.registry import Scene, fault


class Prompts:
    """Rows of which one cannot be had: its worker `waits` for it."""

    def __init__(self, path: str = "") -> None:
        self.path = path

    def __len__(self) -> int:
        return 64

    def __getitem__(self, row: int) -> int:
        if row == 8 and self.path:
            os.close(os.open(self.path, os.O_RDONLY))
        return row


def _loader(rows: Prompts) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(rows, batch_size=4, num_workers=2)  # type: ignore[arg-type]


@fault("DataLoader worker reads a hung file", "dataload-blocked", phase="rollout")
def next_batch(scene: Scene) -> None:
    path = str(scene.folder / "shard-00001")
    os.mkfifo(path)
    batches = iter(_loader(Prompts(path)))
    next(batches)
    scene.takes_effect()
    for _ in batches:
        pass


@fault("DataLoader worker stopped", "dataload-blocked", phase="rollout")
def next_prompts(scene: Scene) -> None:
    batches = iter(_loader(Prompts()))
    next(batches)
    for worker in batches._workers:
        os.kill(worker.pid, signal.SIGSTOP)
    scene.takes_effect()
    for _ in batches:
        pass
