"""`attach --ray` and `report --ray` on a real Ray cluster of two nodes: namespaces of this machine.

Needs Ray and root; the environment is that of `test_phases_openrlhf`, or of `test_phases_verl`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.many_ranks import write_run
from tests.frameworks import environments
from tests.frameworks.recorded_jobs import ENVIRONMENTS
from tests.integration.namespaced_hosts import Host, cluster, refusal

_PYTHONS = [environments.python_of(ENVIRONMENTS / f"env-{name}") for name in ("openrlhf", "verl")]
PYTHON = next((path for path in _PYTHONS if path.exists()), _PYTHONS[0])
ROOT = Path(__file__).parents[2]
_PATHS = os.pathsep.join(str(ROOT / name) for name in (".", "probes", "reports"))
NAMES, CULPRIT, STARTED_S, JUDGED_S = ("node-a", "node-b"), 3, 240.0, 120.0
JOB = f"""
import datetime, os, sys, time
from pathlib import Path
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tests.integration import hosts_job

class PolicyWorker:
    def join(self, rank, address):
        import torch, torch.distributed as dist
        self.rank = rank
        os.environ.update(RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank % 2),
                          LOCAL_WORLD_SIZE="2", MASTER_ADDR=address, MASTER_PORT="29622")
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=900))

    def compute_rewards(self, step):
        if self.rank == {CULPRIT} and step == 5:
            Path(MARK).touch()
            hosts_job.FAULTS["reward"]()

    def update_policy(self, step):
        import torch, torch.distributed as dist
        self.compute_rewards(step)
        dist.all_reduce(torch.ones(1000))

ray.init(address="auto", log_to_driver=False)
nodes = sorted((n for n in ray.nodes() if n["Alive"]), key=lambda n: n["NodeManagerAddress"])
on = [NodeAffinitySchedulingStrategy(nodes[r // 2]["NodeID"], soft=False) for r in range(4)]
worker = ray.remote(num_cpus=0)(PolicyWorker)
workers = [worker.options(scheduling_strategy=strategy).remote() for strategy in on]
ray.get([w.join.remote(r, nodes[0]["NodeManagerAddress"]) for r, w in enumerate(workers)])
for step in range(1_000):
    ray.get([w.update_policy.remote(step) for w in workers])
"""
HEALTHY = JOB.replace('hosts_job.FAULTS["reward"]()', "pass").replace(
    "self.compute_rewards(step)\n", "self.compute_rewards(step)\n        time.sleep(0.5)\n"
)
PENDING = """
import ray
from pathlib import Path
from ray.util.placement_group import placement_group
ray.init(address="auto", log_to_driver=False)
group = placement_group([{"CPU": 1, "GPU": 1}] * 4, strategy="PACK", name="policy_pool")
Path(MARK).touch()
ray.get(group.ready())
"""
BEHIND_A_QUEUE = """
import os, ray, time
from pathlib import Path
from ray.util.queue import Empty, Queue
ray.init(address="auto", log_to_driver=False)
queue = Queue(maxsize=4, actor_options={"num_cpus": 0})

@ray.remote(num_cpus=0)
class RolloutActor:
    def run(self, queue):
        queue.put(0)
        os.kill(os.getpid(), 9)

def next_rollout():
    while True:
        try:
            return queue.get(timeout=1)
        except Empty:
            continue

actor = RolloutActor.remote()
running = actor.run.remote(queue)
next_rollout()
Path(MARK).touch()
next_rollout()
"""
IDLE = """
import ray, time
from pathlib import Path
ray.init(address="auto", log_to_driver=False)
Path(MARK).touch()
time.sleep(1_000)
"""
LOOKS = 3

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON.exists(), reason="no environment with Ray"),
    pytest.mark.skipif(bool(refusal()), reason=refusal() or "runs here"),
]


@contextmanager
def stuck_job(folder: Path, job: str = JOB) -> Iterator[tuple[list[Host], dict[str, str]]]:
    """Two nodes of Ray, with two ranks each, of which the last sleeps in its reward: or `job`."""
    environment = {
        **os.environ, "PYTHONPATH": _PATHS, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
        # Else a token that another cluster left in ~/.ray is asked for by the head alone.
        "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    script, mark = folder / "train_ray.py", folder / "due"
    script.write_text(job.replace("MARK", repr(str(mark))))
    # A socket's path has at most 107 bytes: not below pytest's folder.
    with tempfile.TemporaryDirectory(prefix="ray-") as place, cluster(NAMES, folder) as machines:
        head, other = machines.hosts
        start = [str(PYTHON), "-m", "ray.scripts.scripts", "start", "--num-cpus=2"]
        start += ["--object-store-memory=100000000"]
        own = [f"--node-ip-address={head.address}", "--include-dashboard=false"]
        own += ["--head", "--port=6379", f"--temp-dir={place}"]
        join = [f"--node-ip-address={other.address}", f"--address={head.address}:6379"]
        for host, options in ((head, own), (other, join)):
            subprocess.run(
                host.inside(*start, *options), env=environment, check=True, capture_output=True
            )
        head.start([str(PYTHON), str(script)], folder / "log", environment)
        ends_s = time.monotonic() + STARTED_S
        while not mark.exists():
            assert time.monotonic() < ends_s, (folder / "log").read_text()[-3_000:]
            time.sleep(0.1)
        yield machines.hosts, environment


def attached(host: Host, environment: dict[str, str], address: str) -> tuple[int, str, str]:
    done = subprocess.run(
        host.inside(str(PYTHON), "-m", "grpo_doctor", "attach", "--json", "--ray", address),
        env=environment, capture_output=True, text=True, check=False, timeout=JUDGED_S,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_one_command_names_the_rank_of_the_other_node(tmp_path: Path) -> None:
    with stuck_job(tmp_path) as (hosts, environment):
        address = f"{hosts[0].address}:6379"
        ends_s = time.monotonic() + JUDGED_S
        code, text, words = attached(hosts[0], environment, address)
        while code != 3 and time.monotonic() < ends_s:
            code, text, words = attached(hosts[0], environment, address)
        assert code == 3, words
        document: dict[str, Any] = json.loads(text)
        verdict = document["verdict"]
        assert (verdict["state"], verdict["class"]) == ("stuck", "reward-blocked")
        assert verdict["culprits"] == [CULPRIT]
        assert f"Rank {CULPRIT} on {NAMES[1]}" in verdict["summary"]
        assert [host["ranks"] for host in document["job"]["hosts"]] == [[0, 1], [2, 3]]
        assert "FutureWarning" not in words
        code, _, words = attached(hosts[0], environment, f"{hosts[0].address}:6399")
        assert code == 2
        assert f"--ray {hosts[0].address}:6399" in words


def document_of(host: Host, environment: dict[str, str], address: str) -> dict[str, Any]:
    """The document of one look."""
    _, text, words = attached(host, environment, address)
    assert text, words
    document: dict[str, Any] = json.loads(text)
    return document


def _verdict_at(hosts: list[Host], environment: dict[str, str]) -> dict[str, Any]:
    document = document_of(hosts[0], environment, f"{hosts[0].address}:6379")
    verdict: dict[str, Any] = document["verdict"]
    return verdict


def test_a_healthy_job_is_healthy(tmp_path: Path) -> None:
    with stuck_job(tmp_path, HEALTHY) as (hosts, environment):
        for _ in range(LOOKS):
            verdict = _verdict_at(hosts, environment)
            # This machine may be busy with other things.
            assert verdict["state"] == "healthy" or verdict["class"] == "cpu-starved", verdict


def test_a_placement_that_is_pending_is_a_job_and_says_for_want_of_what(tmp_path: Path) -> None:
    with stuck_job(tmp_path, PENDING) as (hosts, environment):
        verdict = _verdict_at(hosts, environment)
    assert (verdict["state"], verdict["class"]) == ("slow", "rank-missing")
    assert "policy_pool" in verdict["summary"]
    assert "wants 4 times 1 CPU + 1 GPU, and the cluster has 0 GPU" in verdict["summary"]


def test_an_actor_that_died_behind_a_queue_is_named_with_its_node(tmp_path: Path) -> None:
    with stuck_job(tmp_path, BEHIND_A_QUEUE) as (hosts, environment):
        ends_s = time.monotonic() + JUDGED_S
        verdict = _verdict_at(hosts, environment)
        while verdict["state"] != "stuck" and time.monotonic() < ends_s:
            verdict = _verdict_at(hosts, environment)
    assert (verdict["state"], verdict["class"]) == ("stuck", "rollout-engine-dead")
    assert "actor RolloutActor" in verdict["summary"]
    assert "next_rollout" in verdict["summary"]


def test_the_address_of_a_cluster_that_has_ended_is_refused_in_seconds(tmp_path: Path) -> None:
    begun_s = time.monotonic()
    done = subprocess.run(
        [str(PYTHON), "-m", "grpo_doctor", "attach", "--ray"],
        env={**os.environ, "PYTHONPATH": _PATHS, "RAY_ADDRESS": "127.0.0.1:1"},
        capture_output=True, text=True, check=False, timeout=JUDGED_S,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--ray 127.0.0.1:1: Connection refused" in done.stderr
    assert time.monotonic() - begun_s < 20


def _reported(
    host: Host, environment: dict[str, str], run: Path, *ray: str
) -> tuple[int, bytes, str]:
    command = [str(PYTHON), "-m", "grpo_doctor", "report", str(run), "--json", *ray]
    done = subprocess.run(
        host.inside(*command), env=environment, capture_output=True, check=False, timeout=JUDGED_S
    )
    return done.returncode, done.stdout, done.stderr.decode()


def _processes(host: Host) -> set[str]:
    listed = subprocess.run(host.inside("ps", "-eo", "args="), capture_output=True, check=True)
    return {line for line in listed.stdout.decode().splitlines() if "grpo_doctor" in line}


def test_a_report_of_all_nodes_is_that_of_one_machine(tmp_path: Path) -> None:
    """On a shared disk, and where each node has half of the ranks at one path on its own."""
    run, apart = tmp_path / "a" / "run", tmp_path / "run"
    write_run(run, ranks=16, steps=20)
    halves = [tmp_path / name / "run" for name in ("left", "right")]
    for half, ranks in zip(halves, (range(7), range(7, 16))):
        (half / "ranks").mkdir(parents=True)
        for path in (p for rank in ranks for p in (run / "ranks").glob(f"{rank:05d}.*")):
            shutil.copy(path, half / "ranks")
    for half, path in zip(halves, sorted((run / "hosts").iterdir())):
        (half / "hosts").mkdir()
        shutil.copy(path, half / "hosts")
    for name in ("run.json", "metrics.jsonl"):
        shutil.copy(run / name, halves[0])
    apart.mkdir()
    with stuck_job(tmp_path, IDLE) as (hosts, environment):
        _, alone, words = _reported(hosts[0], environment, run, "--read-only")
        files = sorted(tmp_path.rglob("*"))
        for host, half in zip(hosts, halves):
            host.run("mount", "--bind", str(half), str(apart))
        ray = ("--ray", f"{hosts[0].address}:6379")
        for path, how in ((run, ()), (apart, ("--remote", f"{PYTHON} -m grpo_doctor"))):
            code, document, words = _reported(hosts[0], environment, path, *ray, *how)
            assert (code, document == alone) == (0, True), words
        assert sorted(tmp_path.rglob("*")) == files
        assert [_processes(host) for host in hosts] == [set(), set()]
        stop = hosts[1].inside(str(PYTHON), "-m", "ray.scripts.scripts", "stop", "--force")
        subprocess.run(stop, env=environment, check=True, capture_output=True)
        ends_s = time.monotonic() + JUDGED_S
        while f"node {NAMES[1]} is dead for Ray; what only this node has is missing" not in words:
            assert time.monotonic() < ends_s, words
            code, document, words = _reported(hosts[0], environment, apart, *ray)
        assert code == 0
        assert len(json.loads(document)["run"]["loss"]["missing_ranks"]) == 9
