"""`attach` beside a port that answers as NCCL's RAS does. No real NCCL: there is no GPU here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

pytest.importorskip("torch", reason="needs torch to run ranks")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]
ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("ras_ranks.py")
SERVER = ROOT / "tests/unit/probes/flight/ras_server.py"
RANKS, GUILTY = 4, 2
PATIENCE_S = 120
STILL_S = 4.0
SOURCE = "NCCL RAS"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@contextmanager
def job(port: int, folder: Path, entries: int) -> Iterator[list[int]]:
    """Ranks that have stood for some seconds, with room for so many entries in their recorders."""
    own = {"NCCL_RAS_ADDR": f"127.0.0.1:{port}", "TORCH_FR_BUFFER_SIZE": str(entries)}
    started = subprocess.Popen(
        [sys.executable, str(JOB), str(RANKS), str(folder)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, **own},
    )  # fmt: skip
    assert started.stdout
    pids = [int(pid) for pid in started.stdout.readline().split()]
    try:
        wait_until_still(pids)
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        started.communicate()


@pytest.fixture(scope="module")
def stuck(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    """The ranks of a job without recorders."""
    with job(port, tmp_path_factory.mktemp("job"), 0) as pids:
        yield pids


def wait_until_still(pids: list[int]) -> None:
    deadline, last, since = time.monotonic() + PATIENCE_S, "", time.monotonic()
    while time.monotonic() - since < STILL_S:
        assert time.monotonic() < deadline
        now = " ".join(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text() for pid in pids)
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.1)


@contextmanager
def answering(port: int, kind: str, *pids: int) -> Iterator[None]:
    command = [sys.executable, str(SERVER), str(port), kind, *map(str, pids)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        assert server.stdout.readline()
        yield
    finally:
        server.kill()
        server.communicate()


def verdict(pids: list[int]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "grpo_doctor", "attach", "--json", str(pids[0])],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    ruling: dict[str, Any] = json.loads(done.stdout)["verdict"]
    return ruling


def ras_texts(ruling: dict[str, Any]) -> list[str]:
    return [item["text"] for item in ruling["evidence"] if item["source"] == SOURCE]


def test_without_recorders_the_launches_tell_who_is_behind(stuck: list[int], port: int) -> None:
    with answering(port, "behind", *stuck):
        ruling = verdict(stuck)
    assert ruling["culprits"] == [GUILTY], ruling
    assert ruling["class"] == "collective-skipped"
    (text,) = ras_texts(ruling)
    assert text.startswith("launched 9 AllReduce where most of the 4 ranks of the communicator")
    assert text.endswith("launched 10; the same in both samples")


def test_equal_launches_blame_nobody(stuck: list[int], port: int) -> None:
    with answering(port, "even", *stuck):
        ruling = verdict(stuck)
    assert (ruling["class"], ruling["culprits"]) == ("unknown", []), ruling
    assert "RAS does not show a hang inside one" in "".join(ras_texts(ruling))


def test_the_mesh_of_another_job_at_the_same_port_is_not_believed(
    stuck: list[int], port: int
) -> None:
    strangers = [pid + 10**6 for pid in stuck]
    with answering(port, "behind", *strangers):
        ruling = verdict(stuck)
    assert (ruling["class"], ruling["culprits"]) == ("unknown", []), ruling


def test_a_rank_that_nccl_cannot_reach_is_named(stuck: list[int], port: int) -> None:
    """As 2.28.9 says it, in JSON that lacks a comma."""
    with answering(port, "lost", stuck[1], stuck[GUILTY]):
        ruling = verdict(stuck)
    assert ruling["culprits"] == [GUILTY], ruling
    assert ruling["class"] == "network-silent"
    assert ras_texts(ruling) == [f"process {stuck[GUILTY]} on 127.0.0.1: unresponsive"]


def test_the_recorders_and_nccl_agree(port: int, tmp_path: Path) -> None:
    with job(port, tmp_path, 2000) as recorded:
        alone = verdict(recorded)
        with answering(port, "behind", *recorded):
            together = verdict(recorded)
    assert alone["culprits"] == together["culprits"] == [GUILTY]
