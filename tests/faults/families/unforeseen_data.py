"""Data sets that stop in the middle.

Held out: written by someone who had not read the causes, labelled before the first attach.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.faults.host import (
    http_server,
)
from tests.faults.registry import MAY_ANSWER, Scene, fault

BUSY = ("stuck", "slow")  # a loop that tries again may succeed the next time


class Prompts:
    """Rows of a data set; `fetch` is called before every one but the first."""

    def __init__(self, fetch: Callable[[], object]) -> None:
        self.fetch = fetch

    def __len__(self) -> int:
        return 64

    def __getitem__(self, row: int) -> int:
        if row > 8:
            self.fetch()
        return row


def _load(scene: Scene, rows: Any, **options: Any) -> None:
    from torch.utils.data import DataLoader

    batches: Iterator[object] = iter(DataLoader(rows, batch_size=4, **options))
    next(batches)
    scene.takes_effect()
    for _ in batches:
        pass


def _read_stream(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as source:
        source.sendall(b"GET /shard-00002.jsonl HTTP/1.1\r\n\r\n")
        source.recv(65536)


@fault("a streamed data set stalls in a loader's worker", "dataload-blocked", phase="rollout",
       needs=http_server, states=MAY_ANSWER)  # fmt: skip
def stream_rows(scene: Scene) -> None:
    fetch = partial(_read_stream, scene.facts["port"])
    _load(scene, Prompts(fetch), num_workers=2, persistent_workers=True)


@fault("a streamed data set stalls in the rank", "dataload-blocked", phase="rollout",
       needs=http_server, world_size=2, states=MAY_ANSWER)  # fmt: skip
def stream_rows_here(scene: Scene) -> None:
    _load(scene, Prompts(partial(_read_stream, scene.facts["port"])))


def _fetch_with_retries() -> None:
    while True:
        try:
            raise ConnectionError("bucket is not reachable")
        except ConnectionError:
            time.sleep(1.0)


@fault("loader's worker tries the same row again and again", "dataload-blocked", phase="rollout",
       states=BUSY)  # fmt: skip
def read_bucket(scene: Scene) -> None:
    _load(scene, Prompts(_fetch_with_retries), num_workers=1)


def _collate(rows: list[int]) -> list[int]:
    if rows[0] > 0:
        time.sleep(3600)
    return rows


@fault("a collator that sleeps", "dataload-blocked", phase="rollout", world_size=8)
def collate(scene: Scene) -> None:
    _load(scene, Prompts(lambda: None), collate_fn=_collate)
