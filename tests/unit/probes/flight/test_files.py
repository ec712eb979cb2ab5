"""Dump files, damaged ones and what is none, read without executing anything."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path, PurePath

import pytest

from grpo_doctor_probes.flight import dump_files
from grpo_doctor_probes.flight import files as files_module
from grpo_doctor_probes.flight.files import checked, rank_of

DUMP = json.dumps({"version": "2.10", "entries": [], "pg_config": {}}).encode()
PICKLED = pickle.dumps({"version": "2.10", "entries": []}, protocol=2)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3),
        ("trace_rank3.json", 3),
        ("tracerank7", 7),
        ("host-1_rank_00003.pkl", 3),
        ("gpu-node-17.cluster.local_nccl_trace_rank_4.json.gz", 4),
        ("nccl_trace_rank_3_20261121T103000", 3),
        ("nccl_trace_rank_3_1763720000123", 3),
        ("local_rank_1_rank_9", 9),
        ("dump_3", 3),
        ("trace_12345.json", 12_345),
        ("crank1_rank_2", 2),
        ("job/rank_3/dump.json", 3),
        ("dump.json", None),
        ("gpu-17_trace_4", None),  # which of them?
        ("local_rank_1", None),  # of some host
        ("node_rank_2.pkl", None),
        ("rank_1_of_rank_2", None),
        ("v2_trace.json", None),
        ("trace_rank_x7", None),
        ("rank_3/gpu-17_trace_4", None),  # its folder does not settle a name that is contradictory
    ],
)
def test_which_rank_is_named(name: str, rank: int | None) -> None:
    assert rank_of(PurePath(name)) == rank


def test_a_folder_of_every_kind_and_of_names_made_to_harm_a_terminal(tmp_path: Path) -> None:
    hostile = tmp_path / "rank_3\x1b[2J\n\udcff"
    hostile.write_bytes(DUMP)
    (dump,) = dump_files([tmp_path])
    assert (dump.source, dump.rank) == (f"file:{tmp_path}/rank_3?[2J?", 3)
    hostile.unlink()
    (tmp_path / "nccl_trace_rank_0").write_bytes(PICKLED)
    (tmp_path / "host-1_rank_00001.json").write_bytes(DUMP)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "rank_2.json.gz").write_bytes(gzip.compress(DUMP))
    (tmp_path / "notes.txt").write_text("see host 3")
    os.mkfifo(tmp_path / "rank3.pipe")  # opening it would wait for ever
    os.utime(tmp_path / "nccl_trace_rank_0", ns=(5, 7))
    dump_of = {Path(dump.source[5:]).name: dump for dump in dump_files([tmp_path])}
    assert {name: dump.rank for name, dump in dump_of.items()} == {
        "nccl_trace_rank_0": 0,
        "host-1_rank_00001.json": 1,
        "rank_2.json.gz": 2,
        "notes.txt": None,
    }
    assert dump_of["nccl_trace_rank_0"].data == PICKLED
    assert dump_of["nccl_trace_rank_0"].at_unix_ns == 7
    assert dump_of["rank_2.json.gz"].data == DUMP
    assert dump_of["notes.txt"].data == b""
    assert "not a flight-recorder dump" in dump_of["notes.txt"].problem


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (DUMP[:-2], "half-written"),
        (PICKLED[:-3], "half-written"),
        (gzip.compress(DUMP, mtime=0)[:-9], "ends in the middle"),
        (b"\x1f\x8bnothing", "is damaged"),
        (b'{"a": 1}', "none of its fields"),
        (pickle.dumps([1, 2]), "none of its fields"),
        (b"\x7fELF entries", "neither JSON nor a pickle"),
    ],
)
def test_what_is_no_whole_dump(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        checked(data)


@pytest.mark.parametrize(("size", "complete"), [(1000, True), (1001, False)])
def test_a_dump_may_be_as_large_as_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, complete: bool
) -> None:
    monkeypatch.setattr(files_module, "MAX_DUMP_BYTES", 1000)
    data = DUMP[:-1] + b"}".rjust(size - len(DUMP) + 1)
    assert len(data) == size
    (tmp_path / "rank_0").write_bytes(data)
    (tmp_path / "rank_1.gz").write_bytes(gzip.compress(data))
    plain, packed = dump_files([tmp_path])
    assert (plain.data == data, packed.data == data) == (complete, complete)
    assert ("larger than" in plain.problem, "unpacks to more" in packed.problem) == (
        not complete, not complete,
    )  # fmt: skip


@pytest.mark.parametrize("count", [3, 5])
def test_files_beyond_those_that_are_read_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(files_module, "MAX_FILES", 3)
    for rank in range(count):
        (tmp_path / f"trace_rank_{rank}").write_bytes(DUMP)
    dumps = dump_files([tmp_path, tmp_path / "trace_rank_0"])
    assert [(dump.rank, dump.problem) for dump in dumps[:3]] == [(0, ""), (1, ""), (2, "")]
    problems = [(dump.source[-12:], dump.problem[:29]) for dump in dumps[3:]]
    assert problems == [("trace_rank_3", "2 more files were not read, a")] * (count > 3)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    harmful = b"cos\nsystem\n(S'touch " + str(tmp_path / "harm").encode() + b"'\ntR."
    (tmp_path / "rank_0").write_bytes(b"\x80\x02" + harmful[:-1] + b"X\x07\0\0\0entries.")
    dump_files([tmp_path])
    assert not (tmp_path / "harm").exists()
