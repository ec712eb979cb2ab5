from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from grpo_doctor_probes.samplers import RankSampler

S = 1_000_000_000
# Burns half a second of processor time on each line that it reads, in a thread beside the main one.
BURNER = """
import sys, threading, time
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass
    print("burnt", flush=True)
"""

_VARIABLES = ("RANK", "LOCAL_RANK")


def start(rank: int | None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BURNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **({} if rank is None else dict.fromkeys(_VARIABLES, str(rank)))},
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def burn(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()


def test_ranks_are_measured_and_end_as_null(tmp_path: Path) -> None:
    busy, idle = start(0), start(1)
    with busy, idle:
        sampler = RankSampler(os.getpid(), run_dir=tmp_path, host="a")
        first = sampler.read(0)
        assert {(t.name, t.rank, t.pid) for t in first.values if t.rank is not None} == {
            (name, rank, process.pid)
            for name in ("rank.rss", "rank.threads", "rank.processors")
            for rank, process in ((0, busy), (1, idle))
        }
        burn(busy)
        second = {(t.name, t.rank): v for t, v in sampler.read(1 * S).values.items()}
        # 0.5 s in what the sampler takes for 1 s; the kernel counts in steps of 10 ms.
        assert 45 <= (second["rank.cpu", 0] or 0) <= 70
        assert (second["rank.cpu", 1] or 0) <= 5
        assert second["rank.threads", 0] == 2
        assert second["rank.processors", 0] == len(os.sched_getaffinity(busy.pid))
        assert 0 <= (second["rank.cpu_wait", 1] or 0) <= 5
        assert (second["rank.rss", 0] or 0) > 2**20
        assert second["rank.major_faults", 1] == 0
        assert sampler.read(1 * S + S // 20).values == {}
        busy.communicate("")
        third = {(t.name, t.rank): v for t, v in sampler.read(2 * S).values.items()}
        assert [third[name, 0] for name in ("rank.cpu", "rank.rss", "rank.threads")] == [None] * 3
        assert third["rank.threads", 1] == 2
        assert {t.rank for t in sampler.read(3 * S).values} == {1, None}
        sampler.close()
        idle.communicate("")


def test_two_ranks_on_one_processor_wait_for_it(tmp_path: Path) -> None:
    first, second = start(0), start(1)
    with first, second:
        alone = min(os.sched_getaffinity(0))
        for process in (first, second):
            os.sched_setaffinity(process.pid, {alone})
        sampler = RankSampler(os.getpid(), run_dir=tmp_path, host="a")
        begun_ns = time.monotonic_ns()
        sampler.read(begun_ns)
        for process in (first, second):  # both burn half a second at once
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in (first, second):
            assert process.stdout is not None
            process.stdout.readline()
        values = sampler.read(time.monotonic_ns()).values
        waits = [v for t, v in values.items() if t.name == "rank.cpu_wait"]
        # Each needs 0.5 s and gets a processor half of the time, until the other is done.
        assert len(waits) == 2
        assert sum(wait or 0 for wait in waits) >= 50
        assert [v for t, v in values.items() if t.name == "rank.processors"] == [1, 1]
        sampler.close()
        for process in (first, second):
            process.communicate("")
