"""All samplers beside a real job, with the real clock."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from grpo_doctor_probes.samplers.sampler import Sampling

if TYPE_CHECKING:
    from pathlib import Path

# A launcher with two ranks; rank 0 computes, and has a worker that computes too. It says that it
# has started when rank 1 waits: until then that computes as well, for seconds on a busy machine.
JOB = """
import os, subprocess, sys
burn = "while True: pass"
rank0 = f"import subprocess, sys\\nsubprocess.Popen([sys.executable, '-c', {burn!r}])\\n{burn}"
wait = "import sys; print('waits', flush=True); sys.stdin.read()"
for rank, program in enumerate([rank0, wait]):
    environ = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    started = subprocess.Popen([sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE)
started.stdout.readline()
print("started", flush=True)
sys.stdin.read()
os.killpg(0, 9)
"""


def test_a_job_is_sampled_and_the_file_is_whole(tmp_path: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", JOB],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert job.stdout is not None
    job.stdout.readline()
    sampling = Sampling(tmp_path, "a", job.pid, hz=20)
    begun_ns = time.monotonic_ns()
    try:
        sampling.start()
        assert sampling.wait_for_ticks(60, timeout_s=60)
        latest = sampling.latest()
    finally:
        job.communicate()
        sampling.stop()
    assert sampling.problem is None
    assert latest["host.memory_available"] > 0
    rows = [json.loads(line) for line in sampling.path.read_text().splitlines()]
    header, end = rows[0], rows[-1]
    assert (header["host"], header["hz"]) == ("a", 20)
    assert begun_ns <= header["t_ns"] <= end["t"] <= time.monotonic_ns()
    assert abs(header["unix_ns"] - time.time_ns()) < 3600 * 10**9
    assert end["ticks"] >= 60
    names = {row["name"] for row in rows if "track" in row}
    assert {"host.cpu", "host.psi_io", "host.shm_used", "host.swap_used"} <= names
    assert _usual(rows, "rank.cpu", 0) > 10 * _usual(rows, "rank.cpu", 1)
    assert _usual(rows, "rank.threads", 1) == 1


def _usual(rows: list[dict[str, Any]], name: str, rank: int) -> float:
    """The median of a rank's track: of a rank that waits, its start is not the usual."""
    (number,) = [
        str(row["track"]) for row in rows if (row.get("name"), row.get("rank")) == (name, rank)
    ]
    values: list[float | None] = [row["v"][number] for row in rows if number in row.get("v", {})]
    return statistics.median(value for value in values if value is not None)


def test_the_file_of_a_killed_supervisor_holds_whole_lines(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "from grpo_doctor_probes.samplers.sampler import Sampling\n"
        "s = Sampling(Path(sys.argv[1]), 'a', os.getpid(), hz=50); s.start()\n"
        "s.wait_for_ticks(20, 60); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == -9
    lines = (tmp_path / "hosts" / "a.samples.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert sum("v" in row for row in rows) >= 1
    assert "end" not in rows[-1]


def test_sampling_costs_little(tmp_path: Path) -> None:
    """The measured cost is under 1% of a core; the limit leaves room for a busy machine."""
    sampling = Sampling(tmp_path, "a", os.getpid())
    sampling.start()
    assert sampling.wait_for_ticks(2, timeout_s=60)
    begun_s, cpu_s = time.monotonic(), time.process_time()
    assert sampling.wait_for_ticks(32, timeout_s=60)
    share = (time.process_time() - cpu_s) / (time.monotonic() - begun_s)
    sampling.stop()
    assert share < 0.05
