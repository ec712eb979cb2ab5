"""Recorders of real ranks that nobody prepared, read at work and stuck, and the ranks after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.evidence import FlightDump, Member
from grpo_doctor_probes.flight import read_recorders
from grpo_doctor_probes.procs.procstat import state_of

pytest.importorskip("torch", reason="needs torch to run ranks")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]
ROOT = Path(__file__).parents[2]
DONE = 200  # collectives before a rank gets stuck
STUCK = ("working", "asleep", "holding_the_gil", "busy")


@dataclass
class Ranks:
    """A running job: the process numbers by rank."""

    process: subprocess.Popen[str]
    pids: list[int]

    def finish(self) -> str:
        """Lets the ranks go. Returns their exit codes and a digest of what they computed."""
        return self.process.communicate("go\n", timeout=120)[0].strip()


@contextmanager
def job(acts: tuple[str, ...], steps: int) -> Iterator[Ranks]:
    command = [sys.executable, "-m", "tests.integration.flight_ranks", ",".join(acts), str(steps)]
    process = subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    pids = [int(pid) for pid in process.stdout.readline().split()]
    try:
        yield Ranks(process, pids)
    finally:
        for pid in pids:
            if process.poll() is None:
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()


def member(pid: int, rank: int) -> Member:
    return Member(pid, 0, 0, "rank", "python", "train.py", rank=rank)


def dump_of(ranks: Ranks, rank: int) -> FlightDump:
    (dump,) = read_recorders(member(ranks.pids[rank], rank), at_most_s=20)
    return dump


def entries(dump: FlightDump) -> list[dict[str, Any]]:
    assert not dump.problem
    rows: list[dict[str, Any]] = json.loads(dump.data).get("entries", [])
    return rows


def dumps_until_stuck(ranks: Ranks) -> int:
    """Takes dumps until every rank is stuck. Returns how many of them came out of working ranks."""
    deadline = time.monotonic() + 120
    count = 0
    for rank in range(len(ranks.pids)):
        expected = DONE + 1 if rank == 0 else DONE
        while True:
            dump = dump_of(ranks, rank)
            rows = entries(dump) if dump.data else []
            if len(rows) == expected and sum(e["retired"] for e in rows) == DONE:
                break
            count += bool(rows)
            assert time.monotonic() < deadline, dump.problem
            time.sleep(0.01)
    return count


def test_ranks_hand_over_their_recorder_at_work_and_stuck_and_compute_the_same() -> None:
    with job(STUCK, DONE) as ranks:
        undisturbed = ranks.finish()
    with job(STUCK, DONE) as ranks:
        assert dumps_until_stuck(ranks) >= 1
        os.kill(ranks.pids[0], signal.SIGSTOP)
        for _ in range(3):
            recordings = [entries(dump_of(ranks, rank)) for rank in range(len(STUCK))]
        assert [len(of_rank) for of_rank in recordings] == [DONE + 1, DONE, DONE, DONE]
        assert recordings[0][-1]["profiling_name"] == "gloo:all_reduce"
        assert [of_rank[-1]["retired"] for of_rank in recordings] == [False, True, True, True]
        assert state_of(f"/proc/{ranks.pids[0]}") == "T"
        os.kill(ranks.pids[0], signal.SIGCONT)
        two_at_once(ranks)
        assert ranks.finish() == undisturbed
    assert undisturbed.startswith("0 0 0 0 ")


def two_at_once(ranks: Ranks) -> None:
    """Nobody is in the way of another reader."""
    dumps: list[FlightDump] = []
    threads = [
        threading.Thread(target=lambda: dumps.extend(dump_of(ranks, 1) for _ in range(10)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({dump.data for dump in dumps}) == 1
    assert [dump.problem for dump in dumps] == [""] * 20
