"""A run that several hosts read, each what it has: the trace is that of one folder with all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from grpo_doctor.trace import parts
from grpo_doctor.trace.merge import merge, merged
from grpo_doctor.trace.model import Trace
from grpo_doctor.trace.parts import (
    MAIN,
    Folder,
    Wanted,
    folders,
    packed,
    read_part,
    shares,
    unpacked,
)
from grpo_doctor.trace.write import write_trace
from grpo_doctor_probes.record import layout
from tests.recording import write_recording
from tests.unit.trace.test_joined import sampled, server_in
from tests.unit.trace.test_merge import UNIX, S, end, facts, run_json

SPANS = [("step", 5 * S, 9 * S), ("rollout", 5 * S, 8 * S)]


def run_in(folder: Path) -> Path:
    """A run with all that a folder can hold: two hosts, a server, trajectories, samples, damage."""
    run_json(folder, nodes=2, end=end(), huge=[1 << 70, float("1e300")])
    for rank in range(3):
        write_recording(
            folder, rank, SPANS, start_ns=S, closed_ns=10 * S, pid=4000 + rank,
            facts=facts(world_size=5, config={"huge": 1 << 70, "nested": [{"a": None}]}),
        )  # fmt: skip
    row = bytearray(write_recording(folder, 8, SPANS[:1], closed_ns=10 * S).read_bytes())
    row[layout.HEADER_BYTES + layout.SEGMENT_HEADER_BYTES + layout.RECORD_BYTES - 1] = (
        layout.TRAJECTORY  # the kind, which is the last byte of a record
    )
    (folder / "ranks" / "00008.spans").unlink()
    (folder / "ranks" / "00001.trajectories").write_bytes(row)
    other = folder / "nodes" / "00001-b"
    run_json(other, host="b", end=end(), ended=["rank 4 was killed"])
    for rank in (3, 4):
        write_recording(
            other, rank, SPANS, start_ns=S, closed_ns=rank * 4 * S if rank == 3 else 0,
            pid=4000 + rank, facts=facts("b", "boot-b", UNIX - 2 * S),
        )  # fmt: skip
    (other / "ranks" / "00009.spans").write_bytes(b"no recording")
    server_in(folder, end={"state": "interrupted", "code": 143, "ended_ns": 30 * S})
    sampled(folder, "a", "host.cpu_percent")
    sampled(other, "b", "host.cpu_percent")
    rows = [{"step": n, "metrics": {"reward": n / 3, "kl": "nan"}} for n in range(4)]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"step":')
    (folder / "errors.jsonl").write_text('{"text": "boom", "rank": 4, "at_ns": 1}\n')
    return folder


def text_of(trace: Trace, path: Path) -> bytes:
    """All of a trace."""
    write_trace(trace, path)
    return path.read_bytes()


def read_by(run: Sequence[Path], hosts: Sequence[str]) -> tuple[Trace, list[str]]:
    """The run as hosts read it that see it at these paths, and what is left out."""
    here = [folders(path) if path.exists() else [] for path in run]
    wanted, notes = shares(hosts, here)
    read = [
        part
        for path, each in zip(run, wanted)
        for part in unpacked(
            packed([read_part(path, w.place, w.files, facts=w.facts) for w in each])
        )
    ]
    return merged(str(run[0]), read), notes


@pytest.mark.parametrize("hosts", [["a"], ["b", "a"], ["x", "y", "z"]])
def test_hosts_with_one_disk_read_each_file_once(tmp_path: Path, hosts: list[str]) -> None:
    run = run_in(tmp_path / "run")
    trace, notes = read_by([run] * len(hosts), hosts)
    assert trace.trajectories is not None
    assert text_of(trace, tmp_path / "1.json") == text_of(merge(run), tmp_path / "2.json")
    assert not notes
    wanted, _ = shares(hosts, [folders(run)] * len(hosts))
    files = [(w.place, name) for each in wanted for w in each for name in w.files]
    assert len(files) == len(set(files)) == 3 + 1 + 3 + 1 + 1
    assert sum(w.facts for each in wanted for w in each) == 3


def test_hosts_without_a_common_disk_read_what_only_they_have(tmp_path: Path) -> None:
    run = run_in(tmp_path / "run")
    expected = text_of(merge(run), tmp_path / "1.json")
    first, second = (tmp_path / place / "run" for place in "ab")
    shutil.copytree(run, first)
    (second / "nodes").mkdir(parents=True)
    (first / "nodes" / "00001-b").rename(second / "nodes" / "00001-b")
    trace, notes = read_by([first, second], ["a", "b"])
    text = text_of(trace, tmp_path / "2.json")
    for path in (first, second):  # hosts call it by one path
        text = text.replace(str(path).encode(), str(run).encode())
    assert text == expected
    assert not notes


def test_workers_that_something_else_started_are_read_without_a_run_json(tmp_path: Path) -> None:
    """As those of Ray on a disk of their own, of which one is a copy on a third host."""
    run, local, copy = (tmp_path / place / "run" for place in "abc")
    run_json(run, end=end(), world_size=3)
    write_recording(run, 0, SPANS, start_ns=S, closed_ns=10 * S, facts=facts(world_size=3))
    for rank in (1, 2):
        write_recording(
            local, rank, SPANS, start_ns=S, closed_ns=10 * S, pid=4000 + rank,
            facts=facts("b", "boot-b", UNIX, world_size=3),
        )  # fmt: skip
    (local / "errors.jsonl").write_text('{"text": "boom", "rank": 2, "at_ns": 1}\n')
    shutil.copytree(local, copy)
    trace, _ = read_by([run, local], ["a", "b"])
    assert trace.ranks == (0, 1, 2)
    assert [error.text for error in trace.run.uncaught] == ["boom"]
    assert trace.run.id == "r1"
    (copy / "errors.jsonl").unlink()
    again, _ = read_by([run, local, copy], ["a", "b", "c"])
    assert text_of(again, tmp_path / "1.json") == text_of(trace, tmp_path / "2.json")
    assert read_by([tmp_path / "none", run, local], ["x", "a", "b"])[0].ranks == (0, 1, 2)


def test_a_rank_that_was_started_again_on_another_host_counts_twice(tmp_path: Path) -> None:
    run, local = (tmp_path / place / "run" for place in "ab")
    run_json(run, end=end())
    write_recording(run, 0, SPANS, start_ns=S, closed_ns=10 * S, facts=facts())
    later = [(name, begin + 20 * S, finish + 20 * S) for name, begin, finish in SPANS]
    write_recording(local, 0, later, start_ns=20 * S, closed_ns=30 * S, pid=5000, facts=facts())
    trace, _ = read_by([run, local], ["a", "b"])
    assert [process.os_pid for process in trace.processes] == [4000, 5000]


def test_another_run_at_the_same_path_is_left_out_and_named(tmp_path: Path) -> None:
    run, other = (tmp_path / place / "run" for place in "ab")
    run_json(run, end=end())
    write_recording(run, 0, SPANS, start_ns=S, closed_ns=10 * S, facts=facts())
    run_json(other, id="r2", end=end())
    write_recording(other, 1, SPANS, start_ns=S, closed_ns=10 * S, facts=facts())
    trace, notes = read_by([run, other, run], ["a", "b", "c"])
    assert notes == ["b has another run at this path; it is left out"]
    assert trace.ranks == (0,)


@pytest.mark.slow
def test_samples_that_other_processes_read_are_the_same(tmp_path: Path) -> None:
    run = run_in(tmp_path / "run")
    assert text_of(merge(run, 2), tmp_path / "1.json") == text_of(merge(run), tmp_path / "2.json")


def test_other_processes_read_from_as_many_samples_on_as_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should they end, as where memory is short, this one reads alone."""
    run = run_in(tmp_path / "run")
    started: list[int] = []

    def broken(count: int) -> None:
        started.append(count)
        raise BrokenProcessPool

    monkeypatch.setattr(parts, "_workers", broken)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    expected = text_of(merge(run), tmp_path / "1.json")
    assert text_of(merge(run, None), tmp_path / "2.json") == expected
    assert not started
    monkeypatch.setattr(parts, "_PAYS_BYTES", 100)
    assert text_of(merge(run, None), tmp_path / "2.json") == expected
    assert started == [2]  # files


def folder(*files: str, place: str = MAIN, run: str = "r", host: str = "a") -> Folder:
    return Folder(place, run, host, itself="", files=files)


def test_the_many_files_of_a_shared_run_are_divided_and_a_hosts_own_are_its_own() -> None:
    ranks = tuple(f"{rank:05d}.spans" for rank in range(6))
    own = folder("00009.spans", place="nodes/00001-c", host="c")
    wanted, _ = shares("abc", [[folder(*ranks), own]] * 3)
    assert wanted == [
        [Wanted(MAIN, ranks[0::3], facts=True)], [Wanted(MAIN, ranks[1::3], facts=False)],
        [Wanted(MAIN, ranks[2::3], facts=False),
            Wanted("nodes/00001-c", ("00009.spans",), facts=True)],
    ]  # fmt: skip


def test_of_a_copy_that_lacks_a_file_the_others_read_it() -> None:
    wanted, _ = shares("ab", [[folder("1.spans")], [folder("1.spans", "2.spans", "3.spans")]])
    assert wanted == [
        [Wanted(MAIN, ("1.spans",), facts=True)],
        [Wanted(MAIN, ("2.spans", "3.spans"), facts=False)],
    ]


@pytest.mark.parametrize("data", [b"", b"x", packed([])[:-3]])
def test_what_is_no_part_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpacked(data)
