"""Loaders whose workers do not deliver."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.causes.helpers import data_loader
from grpo_doctor.hang.model.nodes import ProcessNode
from grpo_doctor_probes.evidence import Frame, Role
from tests.evidence import EvidenceBuilder, frames
from tests.unit.hang.causes.proposed import only, proposed
from tests.verdicts import UPDATE

NEXT = frames("__next__ /x/site-packages/torch/utils/data/dataloader.py:5", "main t.py:5")
GETS = frames("_try_get_data /x/site-packages/torch/utils/data/dataloader.py:5", "main t.py:5")
READS = frames("read /home/me/rows.py:3", "next_batch /home/me/train.py:4")
IDLE = frames("get /usr/lib/python3.11/multiprocessing/queues.py:365", "main t.py:5")
DECODES = frames("decode /home/me/rows.py:30", "main t.py:5")


def loading(stack: tuple[Frame, ...], *workers: str) -> EvidenceBuilder:
    """Rank 1 stands there; its loader's workers from pid 300 on: S, T, R, idle or done."""
    build = EvidenceBuilder()
    build.elsewhere(1, stack)
    for pid, how in enumerate(workers, start=300):
        worker = build.child(1, "dataloader", pid=pid)
        worker.stack = IDLE if how == "idle" else DECODES
        if how == "R":
            worker.works(DECODES)
        elif how == "done":
            worker.state, worker.exit_code = "Z", 0
        elif how == "dead":
            worker.state, worker.exit_code = "Z", 9
        elif how == "T":
            worker.state = "T"
    return build


@pytest.mark.parametrize(
    ("workers", "pid", "liveness"),
    [
        (("S",), 300, "unseen"),
        (("idle", "S"), 301, "unseen"),  # who waits for its next task is not to blame
        (("idle", "idle"), 300, "unseen"),
        (("S", "T"), 301, "never-wakes"),
        (("R", "T"), 301, "never-wakes"),
        (("R", "dead"), 301, "never-wakes"),
        (("done", "S"), 301, "unseen"),
        (("done",), None, "unseen"),
    ],
)
def test_which_worker_holds_its_rank_up(
    workers: tuple[str, ...], pid: int | None, liveness: str
) -> None:
    label = only(data_loader, loading(GETS, *workers))
    assert (label.cause, label.liveness) == ("dataload-blocked", liveness)
    assert label.node == (None if pid is None else ProcessNode(pid))
    problem = "none is left" if pid is None else f"pid {pid} (python dataloader.py)"
    assert label.reason.startswith(f"waits for its dataloader workers: {problem}")
    stopped = workers[-1] == "T"
    assert any(line.startswith(f"kill -CONT {pid} ") for line in label.confirm) is stopped


@pytest.mark.parametrize(("stack", "count"), [(NEXT, 0), (GETS, 1)])
def test_a_loader_without_workers_loads_by_itself(stack: tuple[Frame, ...], count: int) -> None:
    assert len(proposed(data_loader, loading(stack))) == count


@pytest.mark.parametrize(
    ("stack", "role", "count"),
    [
        (READS, "dataloader", 1),
        (READS, "helper", 0),
        (UPDATE, "dataloader", 0),
        (NEXT, "dataloader", 1),
    ],
)
def test_who_reads_a_batch_waits_for_the_processes_that_load_for_it(
    stack: tuple[Frame, ...], role: Role, count: int
) -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, stack)
    build.child(1, role, pid=300)
    assert len(proposed(data_loader, build)) == count
