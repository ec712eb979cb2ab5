"""A real process that polls beside a heartbeat: what it does while it waits is no progress."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from grpo_doctor_probes.supervisor.mainthread import MainThreads
from grpo_doctor_probes.supervisor.observe import Moment
from grpo_doctor_probes.supervisor.recovery import StuckRanks
from grpo_doctor_probes.supervisor.standing import Standing
from grpo_doctor_probes.supervisor.suspicion import SILENT

PATIENCE_S = 60
POLLS = """
import sys, threading, time
def beat():
    while True:
        sum(range(1000)); time.sleep(0.001)
threading.Thread(target=beat, daemon=True).start()
print(flush=True)
answered = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), answered.set()), daemon=True).start()
while not answered.is_set():
    time.sleep(0.03)
end = time.thread_time() + {work_s}
while time.thread_time() < end:
    sum(range(1000)); time.sleep(0.001)
time.sleep(1e6)
"""


@contextmanager
def polling(work_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """It polls while another thread of it is at work, works shortly when told to, and sleeps."""
    process = subprocess.Popen(
        [sys.executable, "-c", POLLS.format(work_s=work_s)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    try:
        assert process.stdout
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_real_rank_that_polls_beside_a_heartbeat_moves_when_it_works_and_not_before() -> None:
    threads = MainThreads()

    def now() -> Moment:
        at_ns = time.monotonic_ns()
        standing = Standing(0, pid, SILENT, 0, first=False)
        return Moment((standing,), threads.look([pid], at_ns), at_ns)

    with polling(work_s=0.1) as process:
        pid = process.pid
        earlier = now()
        time.sleep(2)
        ranks = StuckRanks([pid], earlier, now())
        end = time.monotonic() + 3
        while time.monotonic() < end:
            assert ranks.fate(now(), ()) == "still"
            time.sleep(0.2)
        assert ranks.moved_ns is None
        assert process.stdin
        process.stdin.write(b"\n")
        deadline = time.monotonic() + PATIENCE_S
        while ranks.fate(now(), ()) != "moved":
            assert time.monotonic() < deadline
            time.sleep(0.1)
    threads.close()
