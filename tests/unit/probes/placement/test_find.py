"""What is read of live processes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

from grpo_doctor_probes.evidence import Job, Member
from grpo_doctor_probes.placement import placement_of
from grpo_doctor_probes.placement.find import _addresses


def test_a_ranks_environment_and_addresses() -> None:
    variables = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODEID": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **variables},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        member = Member(process.pid, os.getpid(), 1, "rank", "python", "python", rank=0)
        result = placement_of(Job("n2", (member,), 2))
        process.kill()
    assert (result.host, result.launcher, result.job_id) == ("n2", "slurm", "4711")
    assert (result.hosts, result.node) == (("n1", "n2"), 1)
    assert not [address for address in result.addresses if address.startswith("127.")]


def test_a_process_that_has_gone_tells_nothing() -> None:
    absent = Member(2**22 - 3, 1, 1, "rank", "python", "python", rank=0)
    result = placement_of(Job("n2", (absent,), 2, 1))
    assert (result.host, result.world_size, result.local_ranks) == ("n2", 2, 1)
    assert result.hosts == ()


def test_the_hosts_are_told_by_the_command_of_a_launcher(tmp_path: Path) -> None:
    """And by no other command: what a helper is called with is its own affair."""
    for pid, hosts in ((7, ["w-0", "w-1"]), (8, ["x"]), (9, ["y"])):
        world = base64.urlsafe_b64encode(
            json.dumps({host: [0] for host in hosts}).encode()
        ).decode()
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_text(f"python\0--world_info={world}\0")
    launcher = Member(7, 1, 1, "launcher", "python", "deepspeed")
    rank = Member(8, 7, 1, "rank", "python", "python", rank=0)
    helper = Member(9, 8, 1, "helper", "python", "python")
    result = placement_of(Job("w-0", (helper, rank, launcher), 2), tmp_path)
    assert (result.launcher, result.hosts) == ("deepspeed", ("w-0", "w-1"))
    assert placement_of(Job("w-0", (helper, rank), 2), tmp_path).hosts == ()


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
