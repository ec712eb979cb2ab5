"""`attach --slurm` on a real Slurm of two nodes, which are namespaces of this machine.

Needs root and Debian's packages slurmctld, slurmd, slurm-client and munge.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration import hosts_job
from tests.integration.namespaced_hosts import Cluster, cluster, refusal
from tests.integration.test_attach_hosts import NAMES, PER_HOST, RANKS

_PROGRAMS = ("slurmctld", "slurmd", "srun", "squeue", "scancel", "munged")
_MISSING = [name for name in _PROGRAMS if shutil.which(name) is None]
_REFUSAL = f"needs {', '.join(_MISSING)}" if _MISSING else refusal()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(_REFUSAL), reason=_REFUSAL or "runs here"),
]
_SECONDS = 100.0
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={first}({address})
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={place}/state
SlurmctldPidFile={place}/ctld.pid
SlurmctldLogFile={place}/ctld.log
SlurmdSpoolDir={place}/%n
SlurmdPidFile={place}/%n.pid
SlurmdLogFile={place}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""
_RANK = (
    f"RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE={RANKS} LOCAL_WORLD_SIZE={PER_HOST} "
    "GROUP_RANK=$SLURM_NODEID OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 MASTER_PORT=29517 "
)


@dataclass(frozen=True)
class Slurm:
    """The cluster, with one job of four ranks on it; `place` has its configuration and logs."""

    machines: Cluster
    environment: dict[str, str]
    job: str
    place: Path

    def on_the_first(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command on the first node."""
        return subprocess.run(
            self.machines.hosts[0].inside(*command),
            env=self.environment, capture_output=True, text=True, check=False, timeout=_SECONDS,
        )  # fmt: skip

    def attach(self) -> tuple[int, dict[str, Any], str]:
        """Exit code, document and messages of one look at all nodes of the job."""
        command = (sys.executable, "-m", "grpo_doctor", "attach", "--json", "--slurm", self.job)
        done = self.on_the_first(*command)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@contextmanager
def slurm_hosts(folder: Path) -> Iterator[Slurm]:
    """A Slurm of two nodes without a job."""
    Path("/run/munge").mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as name,
        cluster(NAMES, folder) as machines,
    ):
        place, first = Path(name), machines.hosts[0]
        rows = [f"NodeName={h.name} NodeAddr={h.address} CPUs=4" for h in machines.hosts]
        text = _CONFIGURATION.format(
            first=first.name, address=first.address, place=place, nodes="\n".join(rows)
        )
        (place / "slurm.conf").write_text(text)
        mount = f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={place}/cgroup\n"
        (place / "cgroup.conf").write_text(mount)
        environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf")}
        key = place / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = ["munged", "--foreground", "--force", f"--key-file={key}"]
        munge += [f"--pid-file={place}/m.pid", f"--seed-file={place}/seed"]
        log = folder / "log"
        first.start([*munge, f"--log-file={place}/munge.log"], log, environment)
        first.start(["slurmctld", "-D"], log, environment)
        for host in machines.hosts:
            host.start(["slurmd", "-D", "-N", host.name], log, environment)
        yield Slurm(machines, environment, "", place)


@contextmanager
def slurm(fault: str, folder: Path) -> Iterator[Slurm]:
    """A job with this fault, once it is due."""
    marks = folder / "marks"
    marks.mkdir()
    with slurm_hosts(folder) as site:
        first, log = site.machines.hosts[0], folder / "log"
        script = f"{_RANK} MASTER_ADDR={first.address} exec {sys.executable} {hosts_job.__file__}"
        start = ["srun", f"--nodes={len(NAMES)}", f"--ntasks-per-node={PER_HOST}", "sh", "-c"]
        first.start([*start, f"{script} {fault} {marks}"], log, site.environment)
        ends_s = time.monotonic() + _SECONDS
        while len(list(marks.iterdir())) < RANKS:
            logs = [path.read_text()[-2_000:] for path in (log, *site.place.glob("*.log"))]
            assert time.monotonic() < ends_s, "\n".join(logs)
            time.sleep(0.1)
        (job,) = site.on_the_first("squeue", "--noheader", "--format=%A").stdout.split()
        yield replace(site, job=job)
        site.on_the_first("scancel", job)


def test_one_command_names_the_rank_of_the_other_node(tmp_path: Path) -> None:
    with slurm("reward", tmp_path) as site:
        ends_s = time.monotonic() + _SECONDS
        code, document, words = site.attach()
        while code != 3 and time.monotonic() < ends_s:
            code, document, words = site.attach()
        assert code == 3, words
        verdict = document["verdict"]
        assert (verdict["state"], verdict["class"]) == ("stuck", "reward-blocked")
        assert verdict["culprits"] == [hosts_job.CULPRIT]
        assert f"Rank {hosts_job.CULPRIT} on {NAMES[1]}" in verdict["summary"]
        steps = site.on_the_first("squeue", "--noheader", "--steps", f"--jobs={site.job}")
        assert len(steps.stdout.split("\n")) <= 3  # the job's own: none of the looks is left
        site.on_the_first("scancel", site.job)
        while site.on_the_first("squeue", "--noheader").stdout.strip():
            time.sleep(0.2)
        code, _, words = site.attach()
        assert code == 2
        assert "there is no node to inspect" in words or "Invalid job id" in words
