"""Entry times of collectives from the flight recorders of real gloo ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.document import build_document
from grpo_doctor.trace.load import load
from grpo_doctor.trace.read import read_trace
from grpo_doctor.trace.write import write_trace
from tests.recording import PATIENCE_S, start_job

pytest.importorskip("torch.distributed", reason="torch is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

PROGRAM = """
import os, sys, time
os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
import torch
import torch.distributed as dist
from grpo_doctor_probes import phase, step

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=rank, world_size=2)
for number in range(4):
    with step(number), phase("train"):
        if rank == 1:
            time.sleep(0.5)
        dist.all_reduce(torch.ones(4), async_op=True).wait()
dist.destroy_process_group()
"""


def test_who_entered_last_is_known_without_watching_any_call(tmp_path: Path) -> None:
    run = tmp_path / "run"
    jobs = [
        start_job(
            PROGRAM, run, arguments=[str(tmp_path / "store")],
            env={"RANK": str(rank), "WORLD_SIZE": "2", "GRPO_DOCTOR_FLIGHT": "0"},
        )
        for rank in (0, 1)
    ]  # fmt: skip
    errors = [job.communicate(timeout=PATIENCE_S)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], errors
    trace = load(run)
    assert not trace.loss.notes
    entries = build_document(trace).views.collectives
    (entry,) = [entry for entry in entries if entry.name == "gloo:all_reduce"]
    assert (entry.phase, entry.last_rank) == ("train", 1)
    assert entry.count == 1
    # Rank 0 enters right after the last step, rank 1 0.5 s later.
    assert 0.05 < entry.skew_seconds < PATIENCE_S
    assert entry.transfer_seconds == 0

    write_trace(trace, tmp_path / "trace.json")
    second = build_document(read_trace(tmp_path / "trace.json"))
    assert second.views.collectives == entries
