"""What is read of live processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.placement import placement_of
from grpo_doctor_probes.placement.find import _addresses


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


def test_addresses_that_others_can_reach(tmp_path: Path) -> None:
    net = tmp_path / "7" / "net"
    net.mkdir(parents=True)
    (net / "fib_trie").write_text(
        "Main:\n"
        "  +-- 0.0.0.0/0 3 0 5\n"
        "     |-- 10.0.0.0\n        /24 link UNICAST\n"
        "     |-- 10.0.0.5\n        /32 host LOCAL\n"
        "     |-- 10.0.0.255\n        /32 link BROADCAST\n"
        "     |-- 127.0.0.1\n        /32 host LOCAL\n"
        "Local:\n"
        "     |-- 10.0.0.5\n        /32 host LOCAL\n"
        "     |-- 192.168.1.9\n        /32 host LOCAL\n"
    )
    assert _addresses(tmp_path, 7) == ("10.0.0.5", "192.168.1.9")
    assert _addresses(tmp_path, 8) == ()
