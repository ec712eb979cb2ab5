"""Every way of finding nothing ends in a sentence that says what to do."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.discover import NoJobError, NoPermissionError, find_jobs
from grpo_doctor_probes.discover.explain import no_such_member, nothing_found, only_helpers_left
from grpo_doctor_probes.discover.scan import Process
from tests.unit.probes.discover.fakeproc import FakeProc
from tests.unit.probes.discover.fakeproc import process as any_process

PROC = Path("/proc")


process = partial(any_process, name="x\x1b[1m")


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (process(kernel=True), "process 7 (x?[1m) is no part of a training job: it is a thread"),
        (process(state="Z", readable=False), "it has ended (a zombie)"),
        (process(python=True), "no part of a training job: it has not loaded torch"),
        (process(name=""), "process 7 (nameless) is"),
        (None, "there is no process 4194305"),
    ],
)
def test_a_process_that_is_of_no_job(subject: Process | None, words: str) -> None:
    problem = no_such_member(7 if subject else 4194305, subject, PROC)
    assert isinstance(problem, NoJobError)
    assert words in str(problem)
    assert "\x1b" not in str(problem)


def test_only_what_is_large_enough_for_torch_may_be_a_job_that_is_hidden() -> None:
    """Every host has daemons of root's that are Python."""
    large: dict[str, Any] = {"python": True, "virtual_bytes": 1 << 30}
    hidden, small = process(**large, readable=False), process(python=True, readable=False)
    assert isinstance(nothing_found([small, hidden], PROC), NoPermissionError)
    assert isinstance(nothing_found([small, process(**large)], PROC), NoJobError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_job_of_which_nothing_may_be_read(host: FakeProc) -> None:
    host.add(100, 50, "python /v/bin/torchrun --nproc_per_node 1 t.py")
    host.add(101, 100, "python t.py", {"RANK": 0, "WORLD_SIZE": 1}, torch=True)
    for pid in (100, 101):
        (host.root / str(pid) / "environ").chmod(0)
    with pytest.raises(NoPermissionError, match="it can't be read"):
        find_jobs((), host.root)


@pytest.mark.parametrize(
    ("pid", "shown"),
    [(os.getppid(), True), (0, False), (-5, False), (4194305, False), (1 << 70, False)],
)
def test_whether_a_process_exists_that_is_not_shown(
    pid: int, shown: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With hidepid a signal tells: that of another user is refused, one that is gone is not."""
    (tmp_path / str(os.getppid())).mkdir()
    monkeypatch.setattr(os, "kill", refuses_parent)
    problem = no_such_member(pid, None, tmp_path)
    assert isinstance(problem, NoPermissionError) is shown
    assert ("hidepid" in str(problem)) is shown
    hidden = no_such_member(4194304, None, Path("/proc"))
    assert isinstance(hidden, NoPermissionError)
    assert isinstance(no_such_member(pid, None, Path("/proc")), NoPermissionError) is shown


def refuses_parent(pid: int, signal: int) -> None:
    assert pid > 0
    assert not signal
    if pid == 4194304:
        raise PermissionError
    raise (OverflowError if pid > 1 << 32 else ProcessLookupError)


@pytest.mark.parametrize(("count", "named"), [(1, 1), (4, 4), (5, 4)])
def test_what_is_left_is_named_and_then_counted(count: int, named: int) -> None:
    helpers = [process(pid=100 + n) for n in range(count)]
    text = str(only_helpers_left(helpers))
    assert text.count("(x?[1m)") == named
    assert (", 1 more." in text) is (count > named)
    pids = " ".join(str(helper.pid) for helper in helpers)
    assert text.endswith(f"End them: kill {pids}; after some seconds, kill -9 {pids}")
    assert str(only_helpers_left(helpers, 100)).startswith(
        "process 100 belongs to no running job. A job"
    )
