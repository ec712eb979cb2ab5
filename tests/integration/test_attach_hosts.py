"""`attach` on jobs over several hosts: namespaces with their own name, network and processes.

Each host is looked at from inside, all at the same time, as pdsh or srun would; then the bundles
are joined. One host alone must never blame its own ranks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration import hosts_job
from tests.integration.namespaced_hosts import Cluster, Host, cluster, refusal

_REFUSAL = refusal()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(_REFUSAL), reason=_REFUSAL or "runs here"),
]

NAMES = ("node-a", "node-b")
PER_HOST = 2
RANKS = PER_HOST * len(NAMES)
CULPRIT = hosts_job.CULPRIT
_STARTED_S = 240.0
_ENDED_S = 200.0
_STUCK_AFTER_S = 90.0
_MOMENT_S = 15.0
_PORT = "29511"
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "TMPDIR": "/dev/shm"}


@dataclass(frozen=True)
class Job:
    """A job over the hosts of a cluster."""

    hosts: list[Host]
    cluster: Cluster
    folder: Path

    def look(self, name: str) -> dict[str, dict[str, Any]]:
        """Looks at all hosts at the same time; the verdict of each alone, by host."""
        out = self.folder / name / "{host}"
        looking = {
            host.name: host.python("-m", "grpo_doctor", "attach", "--json", "--out", str(out))
            for host in self.hosts
        }
        documents = {}
        for host, process in looking.items():
            text, error = process.communicate(timeout=_ENDED_S)
            if text:
                documents[host] = json.loads(text)
            else:
                assert process.returncode == 5, error  # there is no job on that host
        return documents

    def joined(self, name: str) -> dict[str, Any]:
        """The verdict on what the last look has kept, read from the folder of all bundles."""
        attach = [sys.executable, "-m", "grpo_doctor", "attach", "--json"]
        done = subprocess.run(
            [*attach, "--replay", self.folder / name],
            capture_output=True, text=True, check=False, timeout=_ENDED_S,
        )  # fmt: skip
        assert done.stdout, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (3 if document["verdict"]["state"] in ("stuck", "dead") else 0)
        return document

    def judged(
        self, at_most_s: float = _STUCK_AFTER_S
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """The joined verdict, and that of each host alone, once both are old enough to be judged: a
        wait of a second is no hang yet, whatever it is for.
        """
        start_s = time.monotonic()
        number = 0
        while True:
            number += 1
            alone = self.look(f"look{number}")
            joint = self.joined(f"look{number}")
            late = time.monotonic() - start_s > at_most_s
            young = [
                view for view in alone.values() if "not unusual yet" in view["verdict"]["summary"]
            ]
            if late or (joint["verdict"]["state"] in ("stuck", "dead") and not young):
                return joint, alone


@contextmanager
def running(
    fault: str,
    folder: Path,
    *,
    started: tuple[int, ...] = (0, 1),
    torchrun: bool = True,
    names: tuple[str, ...] = NAMES,
    per_host: int = PER_HOST,
) -> Iterator[Job]:
    """A job whose ranks have come to the step of the fault."""
    marks = folder / "marks"
    marks.mkdir()
    with cluster(names, folder) as machines:
        for number in started:
            for command, more in _commands(
                machines, number, fault, marks, torchrun=torchrun, per_host=per_host
            ):
                log = folder / f"log-{number}"
                machines.hosts[number].start(command, log, {**_ENVIRONMENT, **more})
        if len(started) == len(names):
            _wait_until(lambda: len(list(marks.iterdir())) == per_host * len(names), folder)
        yield Job(machines.hosts, machines, folder)


def _commands(
    machines: Cluster, number: int, fault: str, marks: Path, *, torchrun: bool, per_host: int
) -> Iterator[tuple[list[str], dict[str, str]]]:
    master = machines.hosts[0].address
    script = [hosts_job.__file__, fault, str(marks)]
    if torchrun:
        yield (
            [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(machines.hosts)}",
             f"--nproc-per-node={per_host}", f"--node-rank={number}", f"--master-addr={master}",
             f"--master-port={_PORT}", *script],
            {},
        )  # fmt: skip
        return
    for local in range(per_host):
        yield [sys.executable, *script], {
            "RANK": str(number * per_host + local), "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(per_host),
            "GROUP_RANK": str(number), "MASTER_ADDR": master, "MASTER_PORT": _PORT,
            "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "node-[a,b]", "SLURM_NNODES": "2",
        }  # fmt: skip


def _wait_until(done: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + _STARTED_S
    while not done():
        logs = "\n".join(log.read_text()[-3_000:] for log in folder.glob("log-*"))
        assert time.monotonic() < deadline, logs
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("fault", "causes", "words"),
    [
        ("stopped", {"rank-stopped"}, "hosts_job.py:32, stop"),
        ("reward", {"reward-blocked"}, "hosts_job.py:36, sleep"),
        ("skipped", {"collective-skipped", "collective-mismatch"}, ""),
    ],
)
def test_the_rank_of_the_other_host_is_named_with_its_host(
    fault: str, causes: set[str], words: str, tmp_path: Path
) -> None:
    with running(fault, tmp_path) as job:
        joint, alone = job.judged()
        verdict = joint["verdict"]
        assert verdict["state"] == "stuck", verdict["summary"]
        assert verdict["class"] in causes, verdict["summary"]
        assert verdict["culprits"] == [CULPRIT]
        assert f"Rank {CULPRIT} on {NAMES[1]}" in verdict["summary"]
        assert words in verdict["summary"]
        assert joint["job"]["hosts"] == [
            {"name": NAMES[0], "ranks": [0, 1]},
            {"name": NAMES[1], "ranks": [2, 3]},
        ]
        _blames_nobody_here(alone[NAMES[0]])


def _blames_nobody_here(document: dict[str, Any]) -> None:
    """The host without a culprit: its ranks wait for those that are not on it."""
    assert not set(document["verdict"]["culprits"]) & {0, 1}, document["verdict"]["summary"]
    assert "not on this host" in document["verdict"]["summary"]
    last = document["verdict"]["confirm"][-1]
    assert last.startswith(("grpo-doctor attach --ssh ", "grpo-doctor attach --slurm 4711"))


def test_a_link_that_is_cut_between_the_hosts(tmp_path: Path) -> None:
    with running("none", tmp_path) as job:
        job.cluster.cut(job.hosts[1])
        joint, alone = job.judged()
        assert joint["verdict"]["class"] == "network-silent", joint["verdict"]["summary"]
        for host, own in zip(NAMES, ({0, 1}, {2, 3}), strict=True):
            blamed = set(alone[host]["verdict"]["culprits"])
            assert not blamed & own or alone[host]["verdict"]["class"] == "network-silent"


def test_a_host_that_is_gone(tmp_path: Path) -> None:
    with running("none", tmp_path) as job:
        job.cluster.cut(job.hosts[1])
        for process in job.hosts[1].processes:
            process.kill()
        job.hosts[1].run("sh", "-c", "kill -9 -1 || true")
        joint, alone = job.judged(at_most_s=_MOMENT_S)  # what is gone may be slow for minutes
        assert list(alone) == [NAMES[0]]
        assert joint["job"]["ranks_missing"] == [2, 3]
        assert not set(joint["verdict"]["culprits"]) & {0, 1}, joint["verdict"]["summary"]


def test_a_host_that_was_never_started(tmp_path: Path) -> None:
    with running("none", tmp_path, started=(0,), torchrun=False) as job:
        _wait_until(lambda: _ranks_seen(job) == [0, 1], tmp_path)
        verdict = _once_both_wait(job)
        assert verdict["class"] == "rank-missing", verdict["summary"]
        assert not set(verdict["culprits"]) & {0, 1}
        assert "ranks 2, 3" in verdict["summary"]
        assert verdict["confirm"] == ["grpo-doctor attach --slurm 4711"]


def _once_both_wait(job: Job) -> dict[str, Any]:
    """What is said when no rank still imports; none is lost on the way, nor called stuck."""
    start_s = time.monotonic()
    while True:
        document = job.look("joining")[NAMES[0]]
        verdict: dict[str, Any] = document["verdict"]
        assert document["job"]["ranks_seen"] == [0, 1], verdict["summary"]
        if verdict["class"] == "rank-missing" or time.monotonic() - start_s > _STUCK_AFTER_S:
            return verdict
        assert verdict["state"] in ("healthy", "slow"), verdict["summary"]


def _ranks_seen(job: Job) -> list[int]:
    documents = job.look("waiting")
    ranks: list[int] = documents.get(NAMES[0], {"job": {"ranks_seen": []}})["job"]["ranks_seen"]
    return ranks


def test_a_healthy_job_is_healthy_on_each_host_and_on_both(tmp_path: Path) -> None:
    with running("none", tmp_path) as job:
        for number in range(3):
            alone = job.look(f"look{number}")
            states = [job.joined(f"look{number}")["verdict"]["state"]]
            states += [document["verdict"]["state"] for document in alone.values()]
            assert set(states) <= {"healthy", "slow"}
