"""Real gloo ranks that do what a case says, and the dumps of all of them once they are stuck.

    python -m tests.dumps.real FOLDER [CASE ...]

Every case is a new set of forked ranks of this process. A dump is taken by a second thread of each
rank, as the main thread may be stuck: `FOLDER/CASE/trace_rank_N` (pickle) and `trace_rank_N.json`.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch._inductor.codecache  # what a dump's stacks import: 3 s of a processor in each rank
import torch.distributed as dist
from torch._C import _distributed_c10d

from tests.dumps.cases import CASES, Case, slug
from tests.dumps.simulator import WORLD, Call, Halt, Job

POLL_S = 0.2
AT_MOST_POLLS = 300
TYPES = {"Float": torch.float32, "Double": torch.float64}
# gloo aborts the process at sizes that differ, and records no send and receive
NOT_A_HANG = ("other", "barrier", "uneven", "extra, then", "send", "receive")
REAL = tuple(case for case in CASES if not case.name.startswith(NOT_A_HANG))
recorder: Any = _distributed_c10d  # its functions are not in torch's stubs


def record(folder: Path, cases: Sequence[Case]) -> None:
    """Runs the cases, one after the other."""
    for case in cases:
        target = folder / slug(case.name)
        target.mkdir(parents=True, exist_ok=True)
        _record(case.build(), target)


def _record(job: Job, target: Path) -> None:
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as store:
        pipes = {rank: context.Pipe() for rank in job.ranks}
        ranks = [
            context.Process(target=_rank, args=(rank, job, store, pipes[rank][1], target))
            for rank in job.ranks
        ]
        for process in ranks:
            process.start()
        try:
            _until_stuck({rank: ours for rank, (ours, _) in pipes.items()}, job)
            for ours, _ in pipes.values():
                ours.send("dump")
            for ours, _ in pipes.values():
                ours.recv()
        finally:
            for process in ranks:
                process.kill()
            for process in ranks:
                process.join()


def _until_stuck(ranks: dict[int, Connection], job: Job) -> None:
    """Returns once every rank has recorded all that the simulated one has, and nothing moves."""
    expected = {rank: len(own.records) for rank, own in job.ranks.items()}
    clock = threading.Event()
    before: dict[int, tuple[int, int]] = {}
    for _ in range(AT_MOST_POLLS):
        for ours in ranks.values():
            ours.send("count")
        now = {rank: ours.recv() for rank, ours in ranks.items()}
        if now == before and all(now[rank][0] >= expected[rank] for rank in ranks):
            return
        before = now
        clock.wait(POLL_S)
    raise TimeoutError(f"ranks recorded {now} (of them done), and should record {expected}")


def _rank(rank: int, job: Job, store: str, orders: Connection, target: Path) -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_answer, args=(orders, rank, target), daemon=True).start()
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}/rendezvous",
        rank=rank,
        world_size=len(job.ranks),
        timeout=timedelta(minutes=5),
    )
    groups: dict[str, Any] = {WORLD: dist.group.WORLD}
    for name in sorted(set(job.groups) - {WORLD}, key=int):  # gloo names groups 1, 2, ...
        groups[name] = dist.new_group(list(job.groups[name]))
    for call in job.ranks[rank].program:
        if isinstance(call, Halt):
            break
        _LINES.get(call.line, _usual)(call, groups[call.group])
    threading.Event().wait()


def _answer(orders: Connection, rank: int, target: Path) -> None:
    while True:
        if orders.recv() == "count":
            entries = json.loads(recorder._dump_fr_trace_json(True, False)).get("entries", [])
            orders.send((len(entries), sum(entry["retired"] for entry in entries)))
            continue
        pickled = recorder._dump_fr_trace(True, True, False)
        (target / f"trace_rank_{rank}").write_bytes(pickled)
        as_json = recorder._dump_fr_trace_json(True, False)
        (target / f"trace_rank_{rank}.json").write_bytes(as_json)
        orders.send("done")


def _usual(call: Call, group: Any) -> None:
    data = torch.ones(call.elements, dtype=TYPES[call.dtype])
    if call.op == "all_reduce":
        dist.all_reduce(data, group=group)
    elif call.op == "all_gather":
        parts = [torch.empty_like(data) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, data, group=group)
    elif call.op == "broadcast":
        dist.broadcast(data, group_src=0, group=group)
    elif call.op == "reduce":
        dist.reduce(data, group_dst=0, group=group)
    else:
        dist.barrier(group)


def _elsewhere(call: Call, group: Any) -> None:
    dist.all_reduce(torch.ones(call.elements), group=group)


# Calls from a line of code that no healthy round has.
_LINES: dict[int, Callable[[Call, Any], None]] = dict.fromkeys((22, 62, 63, 80, 93, 94), _elsewhere)


if __name__ == "__main__":
    names = sys.argv[2:]
    record(Path(sys.argv[1]), [case for case in REAL if not names or case.name in names])
