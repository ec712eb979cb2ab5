"""`run` on two hosts, which are namespaces of this machine: one run directory, one report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from grpo_doctor.trace.model import Trace
from grpo_doctor.trace.read import load
from tests.integration import test_attach_slurm
from tests.integration.namespaced_hosts import cluster, refusal
from tests.integration.test_attach_hosts import NAMES

_REFUSAL = refusal()
pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(600)]
on_hosts = pytest.mark.skipif(bool(_REFUSAL), reason=_REFUSAL or "runs here")
on_slurm = pytest.mark.skipif(
    bool(test_attach_slurm._REFUSAL), reason=test_attach_slurm._REFUSAL or "runs here"
)
_RUN = (sys.executable, "-m", "grpo_doctor", "run", "--no-live", "--no-check")
_STEPS = 3
_FLAGS = ("--max_steps", str(_STEPS))
_LATER = "host 0 writes the report of all hosts"
# A rank of a launcher that starts every rank itself, as srun and mpirun do.
_RANK = """
import os, torch, torch.distributed as dist
from grpo_doctor_probes import phase, step
dist.init_process_group("gloo")
for number in range(3):
    with step(number), phase("reward"):
        dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


def _holds_both_hosts(run: Path, ranks: int) -> Trace:
    """The trace has the ranks and the samples of both hosts, on one clock."""
    trace = load(run)
    assert {process.host for process in trace.processes} == set(NAMES)
    assert sorted({process.rank for process in trace.processes}) == list(range(ranks))
    assert {series.host for series in trace.series if series.scope == "host"} == set(NAMES)
    assert trace.loss.missing_ranks == ()
    assert not [note for note in trace.loss.notes if "hosts are missing" in note]
    return trace


@on_hosts
def test_torchrun_on_two_hosts_is_one_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with cluster(NAMES, tmp_path) as machines:
        master = machines.hosts[0]
        started = [
            host.python(
                *_RUN[1:], "-o", str(run), "--", sys.executable, "-m",
                "torch.distributed.run", "--nnodes=2", f"--node_rank={number}",
                "--nproc_per_node=1", f"--master_addr={master.address}", "--master_port=29521",
                "-m", "grpo_doctor_trainer", "--output_dir", str(tmp_path / "out"), *_FLAGS,
            )
            for number, host in enumerate(machines.hosts)
        ]  # fmt: skip
        answers = [process.communicate(timeout=400) for process in started]
    for process, (_, messages) in zip(started, answers):
        assert process.returncode == 0, messages
    assert (run / "report.html").exists()
    assert _LATER not in answers[0][1]
    assert _LATER in answers[1][1]
    assert not (run / "nodes" / f"00001-{NAMES[1]}" / "report.html").exists()
    trace = _holds_both_hosts(run, ranks=2)
    assert trace.run.framework == "bundled"
    assert len(trace.metrics.steps) == _STEPS


@on_slurm
def test_srun_starts_one_run_on_all_hosts(tmp_path: Path) -> None:
    run, rank = tmp_path / "run", tmp_path / "rank.py"
    with test_attach_slurm.slurm_hosts(tmp_path) as site:
        done = site.on_the_first(
            "srun", "--nodes=2", "--ntasks-per-node=1", *_RUN, "-o", str(run), "--nproc", "1",
            "--", "--output_dir", str(tmp_path / "out"), *_FLAGS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        _holds_both_hosts(run, ranks=2)

        rank.write_text(_RANK)
        each = (
            "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=4 MASTER_PORT=29522 "
            f"MASTER_ADDR={NAMES[0]} GLOO_SOCKET_IFNAME=eth0 exec {sys.executable} {rank}"
        )
        command = ("srun", "--nodes=2", "--ntasks-per-node=2", "--chdir", str(tmp_path))
        done = site.on_the_first(*command, *_RUN, "--", "sh", "-c", each)
        assert done.returncode == 0, done.stderr
        (of_ranks,) = (tmp_path / "grpo-doctor-out").iterdir()
        assert of_ranks.name.startswith("slurm-")
        _holds_both_hosts(of_ranks, ranks=4)
        lines = (line for path in of_ranks.rglob("*.samples.jsonl") for line in path.open())
        sampled = {json.loads(line)["rank"] for line in lines if '"rank.rss"' in line}
        assert sampled == {0, 1, 2, 3}
        assert done.stderr.count(_LATER) == 1
