"""GPUs at one moment, through a child on a compiled stand-in for the driver's library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fake_nvml.build import FakeNvml, compiler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(compiler() is None, reason="no C compiler for the stand-in of NVML"),
]

LOOK = """
import dataclasses, json, sys, time
from grpo_doctor_probes.look.gpus import gpus
began = time.monotonic()
rows = [dataclasses.asdict(gpu) for gpu in gpus(answer_s=float(sys.argv[1]))]
print(json.dumps({"rows": rows, "seconds": time.monotonic() - began}))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return FakeNvml.build(tmp_path_factory.mktemp("nvml"))


def look_at(driver: FakeNvml, orders: str, answer_s: float = 30.0) -> tuple[list[Any], float]:
    """The rows of a look, and how many seconds it took."""
    answer = json.loads(driver.run(LOOK, str(answer_s), orders=orders))
    return answer["rows"], answer["seconds"]


def test_what_a_gpu_tells(driver: FakeNvml) -> None:
    orders = (
        "gpus 2\nprocess 0 77 1000\nprocess 0 78 1000\npcie_block_ms 1\ngpm 0\nset util 0 100\n"
        "set power 0 118000\nset ecc 0 2\nset nvlink_errors 0 7\nset sm_active 0 123\n"
    )
    (first, second), _ = look_at(driver, orders)
    assert (first["index"], first["pids"], first["silent_s"]) == (0, [77, 78], 0.0)
    assert first["bus_id"] == "00000000:3B:00.0"
    assert first["uuid"].startswith("GPU-fa4e0000")
    assert (first["utilization_pct"], first["power_w"], first["power_limit_w"]) == (100, 118, 700)
    assert (first["sm_mhz"], first["sm_max_mhz"]) == (1980, 1980)
    assert (first["ecc_uncorrected"], first["nvlink_errors"]) == (2, 7)
    assert first["nvlink_bytes"] == 2**20
    assert first["sm_active_pct"] == 12.3
    assert first["throttled_by"] == ["power cap"]
    assert (second["ecc_uncorrected"], second["nvlink_errors"]) == (None, None)
    assert second["sm_active_pct"] is None


def test_a_gpu_that_hangs_in_the_driver_keeps_the_rows_before_it(driver: FakeNvml) -> None:
    rows, _ = look_at(driver, "gpus 3\nhang nvmlDeviceGetPowerUsage 1 8 D\n", 1.0)
    assert [row["index"] for row in rows] == [0, 1]
    assert rows[0]["silent_s"] == 0
    assert rows[1]["silent_call"] == "GPU 1"
    assert rows[1]["silent_state"] == "D"
    assert rows[1]["silent_s"] >= 1


def test_who_hangs_in_the_driver_is_left_alone_and_ends_by_itself(driver: FakeNvml) -> None:
    program = """
import sys
import grpo_doctor_probes.look.gpus
module = sys.modules["grpo_doctor_probes.look.gpus"]
class Seen(module.Child):
    def __init__(self, name):
        super().__init__(name)
        print(self.pid)
module.Child = Seen
module.gpus(answer_s=1.0)
"""
    pid = int(driver.run(program, orders="gpus 1\nhang nvmlInitWithFlags -1 6 D"))
    deadline = time.monotonic() + 60
    while _lives(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(pid)


def test_ctrl_c_does_not_wait_for_a_driver(driver: FakeNvml) -> None:
    """The process that looks is interrupted while the driver hangs."""
    program = """
import os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from grpo_doctor_probes.look.gpus import gpus
with ThreadPoolExecutor() as pool:
    future = pool.submit(gpus)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        future.result()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(future.result()[0].silent_call)
"""
    output = driver.run(program, orders="gpus 1\nhang nvmlInitWithFlags -1 0")
    assert output.split() == ["interrupted", "nvmlInit"]


def test_a_child_ends_with_the_process_that_asked_it(driver: FakeNvml) -> None:
    program = """
import os, signal
from grpo_doctor_probes.gpu.process import CHILD, Child
child = Child(CHILD)
child.ask("sample 1")
assert child.line(60)
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver.folder)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=False
    )
    pid = int(done.stdout)
    deadline = time.monotonic() + 60
    while _lives(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
