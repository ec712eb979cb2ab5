"""Which files are traces of the profiler, and how files of a folder become one trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_doctor.errors import TraceError
from grpo_doctor.importers.kineto import load as module
from grpo_doctor.importers.kineto.load import files_in, load, recognises
from tests.unit.importers.kineto_files import annotation, kernel, rank_events, text_of, write


@pytest.mark.parametrize(
    ("head", "recognised"),
    [
        (b'{"traceEvents": [', True),
        (b' \n{"deviceProperties": [', True),
        (b'{"x": 1, "distributedInfo": {', True),
        (b'{"x": 1}', False),
        (b'[{"ph": "X"', True),
        (b'[{"name": "X"', False),
        (b'"traceEvents"', False),
        (b'x "ph"', False),
        (b"", False),
    ],
)
def test_a_trace_is_known_by_how_it_begins(head: bytes, recognised: bool, tmp_path: Path) -> None:
    assert recognises(tmp_path / "x.json", head) is recognised
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "x.json").write_bytes(head)
    assert recognises(tmp_path, b"") is recognised


def test_a_folder_without_such_files_is_none(tmp_path: Path) -> None:
    assert not recognises(tmp_path, b"")
    write(tmp_path / "x.txt", text_of([]))
    assert not recognises(tmp_path, b"")
    with pytest.raises(TraceError, match="no file of the profiler is left"):
        load(tmp_path)


def test_files_are_looked_for_three_levels_below(tmp_path: Path) -> None:
    for depth in range(5):
        folder = tmp_path.joinpath(*"abcd"[:depth])
        folder.mkdir(exist_ok=True)
        (folder / "x.json").touch()
        (folder / "x.json.gz").touch()
        (folder / "x.txt").touch()
    names = [path.relative_to(tmp_path).as_posix() for path in files_in(tmp_path)]
    assert names[::2] == ["a/b/c/x.json", "a/b/x.json", "a/x.json", "x.json"]
    assert names[1::2] == [f"{name}.gz" for name in names[::2]]


@pytest.mark.parametrize(("limit", "files"), [(4, 3), (3, 1)])
def test_of_a_folder_of_something_else_not_all_is_looked_at(
    limit: int, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two folders and two files above, of which one is looked for.
    monkeypatch.setattr(module, "_MOST_ENTRIES", limit)
    for path in ("x.json", "x.txt", "a/x.json", "b/x.json"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    assert len(files_in(tmp_path)) == files


def test_files_that_do_not_say_their_rank_get_the_next_that_is_free(tmp_path: Path) -> None:
    for name, rank in (("a", 1), ("b", None), ("c", None), ("d", 0)):
        write(tmp_path / f"{name}.json", text_of(rank_events(), rank=rank))
    trace = load(tmp_path)
    assert trace.ranks == (0, 1, 2, 3)
    assert [p.rank for p in trace.processes] == [0, 1, 2, 3]
    notes = [note for note in trace.run.notes if "does not say its rank" in note]
    assert notes == [
        "b.json does not say its rank; it is shown as rank 2.",
        "c.json does not say its rank; it is shown as rank 3.",
    ]


@pytest.mark.parametrize(
    ("world_size", "ranks", "lacking"),
    [(0, 1, None), (1, 1, None), (2, 2, "1 of 2"), (-3, 1, None), ((1 << 20) + 1, 1, None)],
)
def test_ranks_without_a_file_are_told(
    world_size: int, ranks: int, lacking: str | None, tmp_path: Path
) -> None:
    trace = load(write(tmp_path / "x.json", text_of(rank_events(), world_size=world_size)))
    assert trace.run.world_size == ranks
    assert trace.run.origin is not None
    limits = " ".join(trace.run.origin.limits)
    assert ("Other ranks" in limits) is (lacking is not None)
    assert lacking is None or f"Other ranks: {lacking} have a file here." in limits


def test_two_files_of_one_rank_are_one_rank(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.json", text_of(rank_events(), rank=0, world_size=1))
    trace = load(tmp_path)
    assert (trace.ranks, trace.run.world_size) == ((0,), 1)
    assert trace.run.origin is not None
    assert not any("Other ranks" in limit for limit in trace.run.origin.limits)


@pytest.mark.parametrize(
    ("events", "is_useful"),
    [
        ([annotation("ProfilerStep#1", 1.0, 2.0)], True),
        ([annotation("train", 1.0, 2.0)], True),
        ([kernel("gemm", 1.0, 2.0)], True),
        ([], False),
    ],
)
def test_a_file_with_a_step_a_range_or_a_kernel_is_useful(
    events: list[dict[str, object]], is_useful: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.json", text_of(events))
    if is_useful:
        assert load(path).ranks == (0,)
    else:
        with pytest.raises(TraceError, match="holds 0 events and none of the"):
            load(path)


def test_what_is_left_out_and_lost_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.json", text_of(rank_events()))
    trace = load(tmp_path)
    assert (trace.loss.truncated, trace.loss.dropped_events, trace.loss.notes) == (False, 0, ())
    write(tmp_path / "b.json", json.dumps({"traceEvents": []}))
    write(tmp_path / "c.json", text_of(rank_events(), rank=1)[:-400])
    partly = load(tmp_path)
    assert partly.loss.truncated
    (note,) = partly.loss.notes
    assert note.startswith("1 files are ignored: ")
    assert "b.json" in note


def test_a_version_of_nccl_is_told(tmp_path: Path) -> None:
    content = {"distributedInfo": {"nccl_version": "2.27.3"}, "traceEvents": rank_events()}
    assert load(write(tmp_path / "x.json", json.dumps(content))).run.versions == {"nccl": "2.27.3"}
    assert load(write(tmp_path / "y.json", text_of(rank_events()))).run.versions == {}
