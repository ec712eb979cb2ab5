"""What is read of live processes."""

from __future__ import annotations

import os
import subprocess
import sys

from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.placement import placement_of


def test_a_ranks_environment_and_addresses() -> None:
    told = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODEID": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **told},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        member = Member(process.pid, os.getpid(), 1, "rank", "python", "python", rank=0)
        found = placement_of(Job("n2", (member,), 2))
        process.kill()
    assert (found.host, found.launcher, found.job_id) == ("n2", "slurm", "4711")
    assert (found.hosts, found.node) == (("n1", "n2"), 1)
    assert not [one for one in found.addresses if one.startswith("127.")]


def test_a_process_that_has_gone_tells_nothing() -> None:
    gone = Member(2**22 - 3, 1, 1, "rank", "python", "python", rank=0)
    found = placement_of(Job("n2", (gone,), 2, 1))
    assert (found.host, found.world_size, found.local_ranks) == ("n2", 2, 1)
    assert found.hosts == ()
