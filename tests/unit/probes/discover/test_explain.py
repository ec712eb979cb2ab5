"""Every way of finding nothing ends in a sentence that says what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_doctor_probes.discover import NoJobError, NoPermissionError, find_jobs
from grpo_doctor_probes.discover.explain import (
    is_remains,
    no_such_member,
    nothing_found,
    only_remains,
)
from grpo_doctor_probes.discover.scan import Process
from tests.unit.probes.discover.fakeproc import FakeProc

PROC = Path("/proc")


def process(**more: object) -> Process:
    facts = {"pid": 7, "parent": 1, "group": 7, "session": 7, "state": "S", "name": "x\x1b[1m"}
    return Process(**{**facts, "started_ticks": 1, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (process(kernel=True), "process 7 (x?[1m) is a thread of the kernel"),
        (process(state="Z"), "zombie that its parent, process 1,"),
        (process(), "is not a Python process"),
        (process(python=True), "no part of a training job"),
        (None, "there is no process 4194305"),
    ],
)
def test_a_process_that_is_of_no_job(subject: Process | None, words: str) -> None:
    problem = no_such_member(7 if subject else 4194305, subject, PROC)
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


def test_a_proc_that_is_not_of_this_machine_says_nothing_of_its_processes(tmp_path: Path) -> None:
    assert isinstance(no_such_member(os.getppid(), None, tmp_path), NoJobError)


def test_the_first_process_and_a_nameless_one() -> None:
    assert "the parent of all that runs here" in str(no_such_member(1, process(pid=1), PROC))
    assert "process 7 (nameless)" in str(no_such_member(7, process(name=""), PROC))


@pytest.mark.parametrize(
    ("count", "lines"), [(1, 1), (3, 3), (4, 4), (5, 5), (6, 5)], ids="{} left".format
)
def test_what_is_left_is_named_and_then_counted(count: int, lines: int, tmp_path: Path) -> None:
    helpers = [
        process(pid=100 + n, arguments=("/v/bin/python", "w.py"), environment={"RANK": str(n)})
        for n in range(count)
    ]
    head, *listed, last = str(only_remains(helpers, tmp_path)).split("\n")
    assert head.endswith(
        "a helper of its ranks:" if count == 1 else f"{count} helpers of its ranks:"
    )
    assert len(listed) == lines
    assert listed[0] == "  100 of rank 0 (python w.py)"
    assert (listed[-1] == f"  and {count - 4} more") is (count > 4)
    assert last.startswith("End it: kill 100;" if count == 1 else "End them: kill 100 101")
    assert f" {100 + count - 1}" in last


@pytest.mark.parametrize(
    ("rank", "words"),
    [("7", " of rank 7"), ("123456", " of rank 123456"), ("1234567", ""), ("x", "")],
)
def test_a_rank_is_named_where_it_is_one(rank: str, words: str, tmp_path: Path) -> None:
    text = str(is_remains(7, [process(arguments=("a",), environment={"RANK": rank})], tmp_path))
    assert text.startswith("process 7 belongs to no running job. A job that ended")
    assert f"\n  7{words} (a)\n" in text


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ([], ""),
        (["/dev/nvidia1", "/dev/nvidia0", "/dev/nvidiactl"], "holds GPUs 0, 1, whose memory may"),
        (["/dev/nvidia3"], "holds GPU 3, whose memory may be taken until it ends"),
        (["socket:[9]"], "holds port 8000\n"),
        (["socket:[9]", "/dev/nvidia3"], "holds port 8000 and GPU 3, whose"),
        (["socket:[10]"], ""),  # one that is connected listens nowhere
    ],
)
def test_what_is_left_holds(targets: list[str], words: str, host: FakeProc) -> None:
    host.add(7, 1, "python w.py")
    rows = (
        "0: 00000000:1F40 00000000:0000 0A 0:0 0:0 0 0 0 9 1",
        "1: 00000000:1F41 0100007F:9000 01 0:0 0:0 0 0 0 10 1",
        "2: 00000000:1F42 00000000:0000 0A 0:0 0:0 0 0 0 11 1",
    )
    (host.root / "7/net/tcp").write_text("\n".join(["sl", *rows]) + "\n")
    for number, target in enumerate(targets):
        (host.root / "7/fd" / str(number)).symlink_to(target)
    text = str(only_remains([process()], host.root))
    assert (f": {words}" if words else "(nameless)\n") in text
    assert ("holds" in text) is bool(words)
