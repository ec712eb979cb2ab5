from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from grpo_doctor_probes.discover import scan as module
from grpo_doctor_probes.discover.scan import as_seen, glance, parse_environment, scan
from grpo_doctor_probes.procs.procstat import Stat
from tests.unit.probes.discover.fakeproc import FakeProc


def test_a_name_cannot_pretend_to_be_a_state() -> None:
    fields = " ".join(["S", "7", "8", "9", *["0"] * 46])
    process = as_seen(5, Stat(b"5 (x) R 1 (\x1b[31m\xff) " + fields.encode()))
    assert (process.state, process.parent, process.group, process.session) == ("S", 7, 8, 9)
    assert process.name == "x) R 1 (\x1b[31m\ufffd"
    assert process.image is None


def test_only_what_is_wanted_of_an_environment_is_kept() -> None:
    environ = b"RANK=1\0SECRET=x\0RANK\0=3\0WORLD_SIZE=a=b\0\xff=2\0"
    assert parse_environment(environ) == {"RANK": "1", "WORLD_SIZE": "a=b"}


def test_all_of_this_host_is_seen() -> None:
    processes = scan(Path("/proc"))
    own = processes[os.getpid()]
    assert (own.parent, own.python, own.readable) == (os.getppid(), True, True)
    assert own.uid == os.geteuid()


def test_a_process_whose_memory_is_locked_costs_only_itself(
    host: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in (100, 101, 102):
        host.add(pid, 1, "python train.py")
    hangs, goes_on = threading.Event(), threading.Event()

    def read(proc: Path, pid: int, *, details: bool = True) -> module.Process | None:
        if pid == 101 and details:
            hangs.set()
            goes_on.wait()
        return really(proc, pid, details=details)

    really = module.read_process
    monkeypatch.setattr(module, "read_process", read)
    monkeypatch.setattr(module, "_STUCK_AFTER_S", 0.05)
    processes = scan(host.root)
    goes_on.set()
    assert hangs.is_set()
    assert processes[101].problem.startswith("its memory is locked")
    assert [pid for pid, process in processes.items() if process.readable] == [1, 50, 100, 102]


@pytest.mark.parametrize(
    ("program", "title", "python"),
    [
        ("/usr/bin/python3.11", "anything", True),
        ("/opt/pypy3", "anything", True),
        ("/usr/bin/bash", "python", False),
        ("/opt/python/bin/node", "node", False),
        ("", "/v/bin/python3 t.py", True),  # where it is unknown its command says it
        ("", "ray::Trainer", True),
        ("", "VLLM::EngineCore", True),
        ("", "sh", False),
    ],
)
def test_a_program_is_python_by_its_file_or_else_by_its_command(
    host: FakeProc, program: str, title: str, python: bool
) -> None:
    host.add(100, 1, title, {"RANK": 3}, program=program or "gone")
    if not program:
        (host.root / "100" / "exe").unlink()
    process = scan(host.root)[100]
    assert (process.python, process.executable, process.readable) == (python, program, True)
    assert process.environment == ({"RANK": "3"} if python else {})


@pytest.mark.parametrize(("size", "large"), [((256 << 20) - 1, False), (256 << 20, True)])
def test_how_large_one_with_torch_is(size: int, large: bool) -> None:
    fields = ["S", "7", "8", "9", *["0"] * 46]
    fields[20] = str(size)
    assert as_seen(5, Stat(b"5 (x) " + " ".join(fields).encode())).large is large


def test_the_tree_of_a_host_that_was_read_while_it_changed(host: FakeProc) -> None:
    """A number may be used again: what was read first names a parent that is below it now."""
    for pid, parent in ((1000, 50), (400, 1000), (300, 1000), (500, 300), (70, 71), (71, 70)):
        host.add(pid, parent, "sh")
    host.add(80, 9999, "sh")
    tree = module.Tree(scan(host.root))
    assert [child.pid for child in tree.children(1000)] == [400, 300]  # in order of their start
    assert list(tree.ancestors(500)) == [300, 1000, 50, 1]
    assert list(tree.ancestors(70)) == [71]
    assert list(tree.ancestors(80)) == []
    assert tree.descendants(1000) == {300, 400, 500}
    assert tree.descendants(70) == {71}
    assert tree.descendants(500) == set()
    assert tree.nearest(500, [50, 1000]) == 1000
    assert tree.nearest(500, {1: None}) == 1
    assert tree.nearest(500, {500}) is None


def test_a_glance_sees_what_everybody_may_see_of_all_that_is_still_there(host: FakeProc) -> None:
    host.add(100, 50, "python t.py", {"RANK": 3}, state="D")
    host.add(101, 50, "python t.py")
    (host.root / "101" / "stat").unlink()  # it ends just now
    host.add(102, 50, "python t.py")
    (host.root / "102" / "stat").write_text("102 (python) S\n")
    processes = glance(host.root)
    assert {pid: (row.name, row.state, row.parent) for pid, row in processes.items()} == {
        1: ("init", "S", 0), 50: ("bash", "S", 1), 100: ("python", "D", 50),
    }  # fmt: skip
    assert processes[100].environment == {}
