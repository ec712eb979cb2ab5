"""Every way of finding nothing ends in a sentence that says what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_doctor_probes.discover import NoJobError, NoPermissionError, find_jobs
from grpo_doctor_probes.discover.explain import no_such_member, nothing_found
from grpo_doctor_probes.discover.scan import Process
from tests.unit.probes.discover.fakeproc import FakeProc

PROC = Path("/proc")


def process(**more: object) -> Process:
    facts = {"pid": 7, "parent": 1, "group": 7, "session": 7, "state": "S", "name": "x\x1b[1m"}
    return Process(**{**facts, "started_ticks": 1, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (process(kernel=True), "process 7 (x?[1m) is a thread of the kernel"),
        (process(state="Z"), "zombie that its parent, process 1,"),
        (process(), "is not a Python process"),
        (process(python=True), "no part of a training job"),
        (None, "there is no process 4194305"),
    ],
)
def test_a_process_that_is_of_no_job(found: Process | None, words: str) -> None:
    problem = no_such_member(7 if found else 4194305, found, PROC)
    assert isinstance(problem, NoJobError)
    assert words in str(problem)
    assert "\x1b" not in str(problem)


def test_a_process_that_may_not_be_read() -> None:
    problem = no_such_member(7, process(python=True, readable=False), PROC)
    assert isinstance(problem, NoPermissionError)


def test_only_what_is_large_enough_for_torch_may_be_a_job_that_is_hidden() -> None:
    """Every host has daemons of root's that are Python."""
    large = {"python": True, "virtual_bytes": 1 << 30}
    hidden, small = process(**large, readable=False), process(python=True, readable=False)
    assert isinstance(nothing_found([small, hidden], PROC), NoPermissionError)
    assert isinstance(nothing_found([small, process(**large)], PROC), NoJobError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_job_of_which_nothing_may_be_read(host: FakeProc) -> None:
    host.add(100, 50, "python /v/bin/torchrun --nproc_per_node 1 t.py")
    host.add(101, 100, "python t.py", {"RANK": 0, "WORLD_SIZE": 1}, torch=True)
    for pid in (100, 101):
        (host.root / str(pid) / "environ").chmod(0)
    with pytest.raises(NoPermissionError, match="nothing of it may be read"):
        find_jobs((), host.root)
