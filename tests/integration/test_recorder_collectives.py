"""Collectives of real gloo ranks: matching sequence numbers, waits, groups, forks."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from grpo_doctor.trace.model import Kind
from grpo_doctor.trace.read import load
from grpo_doctor_probes.procs import live
from grpo_doctor_probes.record import layout
from tests.recording import PATIENCE_S, Row, read_rows, spans_file, start_job

pytest.importorskip("torch.distributed", reason="torch is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

START = """
import inspect, os, sys, threading, time
import torch
import torch.distributed as dist
from grpo_doctor_probes import phase, step, watch_collectives

rank = int(os.environ["RANK"])
store = dist.FileStore(sys.argv[1], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
assert watch_collectives()
assert not watch_collectives(), "a second time does nothing"
"""
# Each part of the program is one phase, by which its collectives are found again.
PROGRAM = """
both, alone = dist.new_group([0, 1]), dist.new_group([0])
groups = [dist.new_group([0, 1]) for _ in range(4)]
dist.barrier()

with phase("in order"):
    with phase("train"):
        if rank == 1:
            time.sleep(3.0)  # the one that the other waits for
        dist.all_reduce(torch.ones(4))
    dist.broadcast(torch.ones(4), 0)
    dist.all_gather_object([None, None], {"rank": rank})
    dist.all_reduce(torch.ones(4), group=dist.group.WORLD)

with phase("asynchronous"):
    a = dist.all_reduce(torch.ones(4), async_op=True)
    b = dist.all_reduce(torch.ones(4), dist.ReduceOp.SUM, None, True)  # by position
    b.wait()
    a.wait()
    dropped = dist.all_reduce(torch.ones(4), async_op=True)
    while not dropped.is_completed():
        time.sleep(0.001)
    del dropped
    for _ in range(50):  # ids of operations that are gone are used again
        dist.all_reduce(torch.ones(4))

with phase("groups"):
    for group in (both, alone, both, None):
        dist.all_reduce(torch.ones(1), group=group)  # outside of `alone` torch does nothing
    dist.all_reduce(torch.ones(1), dist.ReduceOp.SUM, both)

def work(group):
    for _ in range(20):
        dist.all_reduce(torch.ones(1), group=group)

with phase("threads"):
    threads = [threading.Thread(target=work, args=(g,)) for g in groups]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

with phase("results"):
    value = torch.full((2,), float(rank + 1))
    assert dist.all_reduce(value) is None
    assert value.tolist() == [3.0, 3.0]
    assert "async_op" in inspect.signature(dist.all_reduce).parameters
    assert dist.all_reduce.__name__ == "all_reduce"
    try:
        dist.all_reduce("no tensor")
    except TypeError as error:
        assert "tensor" in str(error).lower(), error
    else:
        raise SystemExit("no error")
dist.destroy_process_group()
"""
FORKED = """
import os, sys
import torch
import torch.distributed as dist
from grpo_doctor_probes import phase, watch_collectives
with phase("init"):
    watch_collectives()
children = []
for rank in (0, 1):
    pid = os.fork()
    if pid == 0:
        store = dist.FileStore(sys.argv[1], 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        dist.all_reduce(torch.ones(4))  # before the child's first span
        dist.barrier()
        dist.destroy_process_group()
        sys.exit()
    children.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
"""
HANGING = """
dist.all_reduce(torch.ones(4))
with step(1), phase("train"):
    if rank == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        print("launched", flush=True)
        work.wait()
    time.sleep(600)
"""
WORLD = '{"group": "world"}'


def start(folder: Path, code: str, rank: int) -> subprocess.Popen[str]:
    env = {"RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    return start_job(code, folder, env=env, arguments=[str(folder / "store")])


@dataclass(frozen=True)
class Ranks:
    """What two ranks recorded."""

    rows: tuple[list[Row], list[Row]]

    def part(self, name: str) -> list[list[Row]]:
        """Per rank, the collectives and waits within a phase."""
        parts = []
        for rows in self.rows:
            (phase,) = (r for r in rows if r.name == name)
            parts.append(
                [
                    r
                    for r in rows
                    if r.kind in {"collective", "wait"}
                    and phase.start_ns <= r.start_ns <= phase.end_ns
                ]
            )
        return parts


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """Two ranks that ran PROGRAM to its end."""
    folder = tmp_path_factory.mktemp("ranks")
    jobs = [start(folder, START + PROGRAM, rank) for rank in (0, 1)]
    for job in jobs:
        out, err = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 0, out + err
    for rank in (0, 1):
        header = live.read_header(spans_file(folder, rank))
        assert (header.errors, header.open_spans) == (0, ())
    return Ranks((read_rows(spans_file(folder, 0)), read_rows(spans_file(folder, 1))))


def identities(rows: list[Row], first: int = 0) -> list[tuple[str, str, str, float]]:
    """Kind, name, group and sequence number, counted from the part's first."""
    return [(r.kind, r.name, r.args, r.value - first) for r in rows]


def test_each_rank_numbers_the_same_collectives_alike(ranks: Ranks) -> None:
    first, second = ranks.part("in order")
    assert identities(first) == identities(second)
    assert identities(first, first=1) == [
        ("collective", "all_reduce", WORLD, 1.0),  # after the barrier
        ("collective", "broadcast", WORLD, 2.0),
        ("collective", "all_gather_object", WORLD, 3.0),  # and not the two that it is made of
        ("collective", "all_reduce", WORLD, 4.0),
    ]
    assert [r.depth for r in first] == [2, 1, 1, 1]
    waited_ms = [(r.end_ns - r.start_ns) / 1e6 for r in (first[0], second[0])]
    assert waited_ms[0] > 1_500 > waited_ms[1]


def test_asynchronous_operations_have_a_launch_and_a_wait(ranks: Ranks) -> None:
    first, second = ranks.part("asynchronous")
    assert identities(first)[:5] == [
        ("collective", "all_reduce", WORLD, 6.0),
        ("collective", "all_reduce", WORLD, 7.0),
        ("wait", "wait", WORLD, 7.0),
        ("wait", "wait", WORLD, 6.0),
        ("collective", "all_reduce", WORLD, 8.0),
    ]
    assert [r.kind for r in first[5:]] == ["collective"] * 50
    assert identities(first) == identities(second)


def test_groups_are_counted_apart_and_those_outside_do_not_count(ranks: Ranks) -> None:
    groups: list[dict[str, list[float]]] = [{}, {}]
    for values, rows in zip(groups, ranks.part("groups")):
        for row in rows:
            values.setdefault(row.args, []).append(row.value)
    first, second = groups
    assert len(second) == 2
    assert [1.0, 2.0, 3.0] in second.values()
    assert first.items() > second.items()
    (alone,) = first.keys() - second.keys()
    assert first[alone] == [1.0]


def test_threads_do_not_hide_each_others_collectives(ranks: Ranks) -> None:
    first, second = ranks.part("threads")
    assert len(first) == len(second) == 80
    assert sorted((r.args, r.value) for r in first) == sorted((r.args, r.value) for r in second)
    assert {r.value for r in first} == set(map(float, range(1, 21)))


def test_an_operation_that_raises_has_its_number_too(ranks: Ranks) -> None:
    first, _ = ranks.part("results")
    assert [r.value - first[0].value for r in first] == [0.0, 1.0]


def test_children_forked_after_the_wrapping_record_too(tmp_path: Path) -> None:
    job = start(tmp_path, FORKED, 0)
    out, err = job.communicate(timeout=PATIENCE_S)
    assert job.returncode == 0, out + err
    assert [r.name for r in read_rows(spans_file(tmp_path))] == ["init"]
    children = sorted((tmp_path / "ranks").glob("00000.*.spans"))
    expected = [("all_reduce", 1.0), ("barrier", 2.0)]
    assert [[(r.name, r.value) for r in read_rows(f)] for f in children] == [expected] * 2


def test_a_collective_that_hangs_is_open_with_its_number(tmp_path: Path) -> None:
    jobs = [start(tmp_path, START + HANGING, rank) for rank in (0, 1)]
    try:
        assert jobs[0].stdout is not None
        assert jobs[0].stdout.readline() == "launched\n"
        open_spans = live.read_header(spans_file(tmp_path)).open_spans
        while open_spans[-1].name != "wait":  # it is about to wait
            open_spans = live.read_header(spans_file(tmp_path)).open_spans
        assert (open_spans[-1].kind, open_spans[-1].sequence) == (layout.COLLECTIVE_WAIT, 2)
        check_hang(tmp_path)
    finally:
        for job in jobs:
            job.send_signal(signal.SIGKILL)
            job.communicate(timeout=PATIENCE_S)


def check_hang(run_dir: Path) -> None:
    trace = load(run_dir)
    mine = trace.spans.select(trace.spans.process == 0)
    open_spans = mine.select(mine.open)
    assert [Kind(k) for k in open_spans.kind] == [Kind.STEP, Kind.SPAN, Kind.COLLECTIVE_WAIT]
    assert open_spans.value.tolist() == [1.0, 0.0, 2.0]
    assert trace.args[open_spans.args[-1]] == {"group": "world"}
    launches = mine.select(mine.kind == Kind.COLLECTIVE)
    assert launches.value.tolist() == [1.0, 2.0]
