"""`attach` runs no code in a job and changes nothing of it: seen from the job's side."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpo_doctor_probes.discover.candidates import has_threads
from grpo_doctor_probes.memory.access import Memory, mapped
from tests.integration.test_flight import job
from tests.many_looks import look_often

pytest.importorskip("torch", reason="needs torch to run ranks")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]


def threads_of(pid: int) -> dict[int, tuple[str, str, str]]:
    """By thread: time on a core and stops of it, its system call with its registers, its mask."""
    seen = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        blocked = re.search(r"^SigBlk:.*$", (task / "status").read_text(), re.MULTILINE)
        assert blocked
        ran = (task / "schedstat").read_text().split()[0]
        seen[int(task.name)] = (ran, (task / "syscall").read_text(), blocked[0])
    return seen


def contents_of(pid: int) -> str:
    """A digest of all that the process may write to."""
    digest = hashlib.sha256()
    with Memory(pid) as memory:
        for mapping in mapped(pid):
            if "rw" in mapping.rights and mapping.path != "[vvar]":
                digest.update(memory.read(mapping.start, mapping.end - mapping.start))
    return digest.hexdigest()


def wait_for_group(pid: int) -> None:
    """Wait until the process is in its process group: a thread names itself after it has begun."""
    deadline = time.monotonic() + 60
    while not has_threads(Path("/proc"), pid, ("pt_gloo", "gloo_")):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_rank_that_is_stopped_is_the_same_to_the_last_byte_after_it() -> None:
    with job(("asleep", "asleep"), 50) as ranks:
        stopped = ranks.pids[0]
        wait_for_group(stopped)
        os.kill(stopped, signal.SIGSTOP)
        before = contents_of(stopped), threads_of(stopped)
        command = [sys.executable, "-m", "grpo_doctor", "attach", "--json", str(stopped)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (contents_of(stopped), threads_of(stopped)) == before
        verdict = json.loads(done.stdout)["verdict"]
        assert (verdict["class"], verdict["culprits"]) == ("rank-stopped", [0])
        os.kill(stopped, signal.SIGCONT)
        assert ranks.finish().startswith("0 0 ")


def test_a_job_at_work_does_not_feel_looks() -> None:
    looks = look_often(4)
    assert looks.problems == []
    assert looks.same_results
    assert looks.states == {"healthy": 4}
    assert looks.harmless, looks.growth_kb
