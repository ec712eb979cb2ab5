"""`grpo-doctor attach` on a job of Ray's actors, which runs in another environment than the tool.

GRPO_DOCTOR_RAY_PYTHON names a Python with ray and torch; without it they must be installed here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.apart import Apart, apart

SCRIPT = Path(__file__).with_name("ray_job.py")
PYTHON = os.environ.get("GRPO_DOCTOR_RAY_PYTHON", sys.executable)
RANKS, GUILTY = 3, 1
SESSION = "/dev/shm/ray"  # the job's own; a unix socket's path has 107 characters at most


def _has_ray() -> bool:
    command = [
        PYTHON,
        "-c",
        "import importlib.util as u; u.find_spec('ray').name, u.find_spec('torch').name",
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not _has_ray(), reason="needs ray and torch: name their Python in GRPO_DOCTOR_RAY_PYTHON"
    ),
]


@contextmanager
def job(fault: str, folder: Path, *, joins: bool = False) -> Iterator[Apart]:
    """Once the fault is due in every rank. `joins`: the driver joins a cluster that is there."""
    script = folder / "train_ray.py"
    shutil.copy(SCRIPT, script)
    environment = {
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_FOLDER": SESSION,
    }
    command = [PYTHON, str(script), fault, str(folder), str(RANKS)]
    if joins:
        environment["JOINS_CLUSTER"] = "1"
        command = ["sh", "-c", f'{_start()} && "$@"', "sh", *command]
    with apart(command, folder, RANKS, environment) as training:
        yield training


def _start() -> str:
    ray = Path(PYTHON).with_name("ray")
    options = "--head --port=0 --num-cpus=6 --include-dashboard=false --disable-usage-stats"
    return f"{ray} start {options} --temp-dir={SESSION}"


def line_of(text: str) -> str:
    """`train_ray.py:NUMBER` of the first line of the job's script that has this text."""
    lines = SCRIPT.read_text().splitlines()
    return f"train_ray.py:{next(n for n, line in enumerate(lines, 1) if text in line)}"


def stuck(fault: str, folder: Path, *, joins: bool = False) -> dict[str, Any]:
    """The verdict on a job whose actors were all found as ranks."""
    with job(fault, folder, joins=joins) as training:
        document = training.document()
    assert document["job"]["world_size"] == RANKS
    assert document["job"]["ranks_seen"] == list(range(RANKS))
    verdict: dict[str, Any] = document["verdict"]
    assert verdict["state"] == "stuck", verdict["summary"]
    return verdict


@pytest.mark.parametrize(
    ("fault", "cause", "line"),
    [
        ("rank sleeps", "user-code-blocked", "time.sleep(STOPPED)"),
        ("rank stopped", "rank-stopped", "os.kill(os.getpid(), signal.SIGSTOP)"),
        ("rank asks", "user-code-blocked", "ray.get(never_begun())"),
    ],
)
def test_the_actor_that_does_not_get_on_is_named(
    fault: str, cause: str, line: str, tmp_path: Path
) -> None:
    verdict = stuck(fault, tmp_path)
    assert (verdict["class"], verdict["culprits"]) == (cause, [GUILTY])
    assert verdict["victims"] == [0, 2]
    assert line_of(line) in verdict["summary"]


def test_a_method_that_ends_without_the_others_collectives(tmp_path: Path) -> None:
    """Its actor is idle, as healthy ones often are, so that this takes a minute to be sure of."""
    with job("rank skips", tmp_path) as training:
        verdict = training.document(lambda view: view["verdict"]["victims"] == [0, 2])["verdict"]
    assert verdict["state"] in ("slow", "stuck")
    assert (verdict["class"], verdict["culprits"]) == ("collective-skipped", [GUILTY])
    assert verdict["victims"] == [0, 2]


def test_idle_policy_actors_wait_for_the_one_that_generates(tmp_path: Path) -> None:
    verdict = stuck("rollout sleeps", tmp_path)
    assert (verdict["class"], verdict["culprits"]) == ("rollout-engine-stalled", [])
    assert "RolloutActor.generate" in verdict["summary"]
    assert line_of("time.sleep(STOPPED)").partition(":")[0] in verdict["summary"]


def test_a_reward_in_a_thread_of_an_actor_s_pool_is_named_with_its_line(tmp_path: Path) -> None:
    verdict = stuck("reward sleeps", tmp_path)
    assert (verdict["class"], verdict["culprits"]) == ("reward-blocked", [])
    assert verdict["victims"] == [0, 1, 2]
    assert "RewardActor" in verdict["summary"]
    assert "judge)" in verdict["summary"]


def test_a_reward_that_awaits_in_a_coroutine_is_named_by_its_actor(tmp_path: Path) -> None:
    verdict = stuck("reward awaits", tmp_path)
    assert (verdict["class"], verdict["culprits"]) == ("reward-blocked", [])
    assert "RewardActor" in verdict["summary"]


def test_a_driver_that_joined_a_cluster_and_calls_nobody_is_named(tmp_path: Path) -> None:
    verdict = stuck("driver sleeps", tmp_path, joins=True)
    assert verdict["culprits"] == []
    assert verdict["summary"].startswith("The driver")
    assert line_of("time.sleep(STOPPED)").partition(":")[0] in verdict["summary"]


def test_a_driver_that_waits_for_a_task_that_never_begins(tmp_path: Path) -> None:
    """The task may be at work on another host, so it is not called stuck at once."""
    with job("driver asks", tmp_path) as training:
        verdict = training.document(lambda view: "answer" in view["verdict"]["summary"])["verdict"]
    assert verdict["state"] == "slow"
    assert verdict["summary"].startswith("The driver")
    assert "waits for a Ray result" in verdict["summary"]


def test_a_long_rollout_is_healthy(tmp_path: Path) -> None:
    with job("healthy", tmp_path) as training:
        for _ in range(5):
            done = training.attach("--json")
            assert done.returncode == 0, done.stdout
