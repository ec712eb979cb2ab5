"""Whether the kernel killed for memory, by counters of control groups and by its log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor_probes.supervisor import deaths
from grpo_doctor_probes.supervisor.deaths import OomCounters, kernel_line


class Groups:
    """Processes 7 and 8 in one group, whose counts a test sets."""

    def __init__(self, folder: Path, cgroup: str) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        for pid in (7, 8):
            (self.proc / str(pid)).mkdir(parents=True)
            (self.proc / str(pid) / "cgroup").write_text(cgroup)
        (self.sys / "fs/cgroup").mkdir(parents=True)

    def count(self, name: str, text: str | int) -> None:
        path = self.sys / "fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"oom 9\noom_kill {text}\n")

    def counters(self) -> OomCounters:
        return OomCounters(self.proc, self.sys)


@pytest.mark.parametrize(
    ("cgroup", "name"),
    [
        ("0::/job\n", "job/memory.events"),
        ("0::/job\n", "memory.events"),  # a container sees its own group at the top
        ("4:memory:/job\n0::/\n", "memory/job/memory.oom_control"),
        ("4:memory:/host/path\n0::/\n", "memory/memory.oom_control"),
    ],
)
def test_kills_since_a_process_was_noted(tmp_path: Path, cgroup: str, name: str) -> None:
    groups = Groups(tmp_path, cgroup)
    groups.count(name, 3)
    counters = groups.counters()
    counters.note(7)
    groups.count(name, 5)
    assert counters.grown(7) == 2
    assert counters.grown(7) == 0  # its number may be another's by now
    counters.note(99)  # of no group
    assert [counters.grown(pid) for pid in (8, 99)] == [0, 0]


def test_a_kill_counts_for_one_of_a_group(tmp_path: Path) -> None:
    groups = Groups(tmp_path, "0::/job\n")
    groups.count("job/memory.events", 3)
    counters = groups.counters()
    counters.note(7)
    groups.count("job/memory.events", 4)
    counters.note(8)
    assert (counters.grown(8), counters.grown(7)) == (1, 0)


@pytest.mark.parametrize(("before", "after"), [(3, 3), (3, 1), (3, "x"), ("x", "y")])
def test_a_count_that_has_not_grown_is_no_kill(
    tmp_path: Path, before: int | str, after: int | str
) -> None:
    groups = Groups(tmp_path, "0::/job\n")
    groups.count("job/memory.events", before)
    counters = groups.counters()
    counters.note(7)
    groups.count("job/memory.events", after)
    assert counters.grown(7) == 0


def record(at_s: float, text: str) -> bytes:
    return f"3,1,{round(at_s * 1e6)},-;{text}\n".encode()


SAID = "Out of memory: Killed process 77 (python) total-vm:9kB"


@pytest.mark.parametrize(
    ("records", "line"),
    [
        ([record(100, SAID)], SAID),
        ([record(40, SAID)], SAID),
        ([record(39.9, SAID)], ""),  # a minute ago its number may have been another's
        ([record(100, SAID.replace("77", "770"))], ""),
        ([record(100, "Memory cgroup out of memory: Killed process 77 (a)")] * 2, None),
        ([record(98, SAID), record(99, "usb 1-1: new device")], SAID),
        ([record(98, SAID), record(99, SAID + " again")], SAID + " again"),
        ([b"Killed process 77 (python)"], ""),
        ([], ""),
    ],
)
def test_what_the_kernel_said_lately_of_a_process(
    monkeypatch: pytest.MonkeyPatch, records: list[bytes], line: str | None
) -> None:
    monkeypatch.setattr(deaths, "records", lambda _: iter(records))
    monkeypatch.setattr(deaths, "time", SimpleNamespace(monotonic=lambda: 100.0))
    text = kernel_line(77)
    assert text == (records[0].partition(b";")[2].decode().strip() if line is None else line)


def test_a_log_that_is_hidden_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> Iterator[bytes]:
        raise PermissionError

    monkeypatch.setattr(deaths, "records", refuse)
    assert kernel_line(77) == ""
