"""Dumps of every version, to one kind of recording."""

from __future__ import annotations

import dataclasses
import pickle
import random

import pytest

from grpo_doctor.hang.dumps import read
from grpo_doctor_probes.evidence import FlightDump
from tests.dumps.cases import BY_NAME, GROUPS, healthy
from tests.dumps.formats import VERSIONS, as_json, document, dumps
from tests.dumps.simulator import Call, Job, job

STUCK = BY_NAME["missing rank"]


@pytest.fixture(scope="module")
def stuck() -> Job:
    return STUCK.build()


def dump_of(data: bytes, **more: object) -> FlightDump:
    return dataclasses.replace(FlightDump("file:/d/x", data=data), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", ["pickle", "json"])
def test_every_version_says_the_same_of_what_it_records(
    stuck: Job, version: str, form: str
) -> None:
    ranks = read(dumps(stuck, version, form=form)).ranks
    newest = read(dumps(stuck)).ranks
    for mine, theirs in zip(ranks, newest):
        assert [(e.op, e.sequence, e.done) for e in mine.entries] == [
            (e.op, e.sequence, e.done) for e in theirs.entries
        ]
        gaps_ns = [
            abs((a.created_ns or 0) - (b.created_ns or 1))
            for a, b in zip(mine.entries, theirs.entries)
        ]
        assert max(gaps_ns) < 1000
    assert len(ranks) == 8


def test_gloo_is_done_when_retired_and_nccl_is_not() -> None:
    base = {
        "pg_id": 0,
        "process_group": ["0", "x"],
        "collective_seq_id": 1,
        "retired": True,
        "state": "scheduled",
    }
    entries = [{**base, "profiling_name": f"{b}:all_reduce"} for b in ("gloo", "nccl")]
    calls = read([dump_of(pickle.dumps({"entries": entries}, 2), rank=0)]).ranks[0].entries
    assert [(e.done, e.timed_out) for e in calls] == [(True, False), (False, True)]


def test_numbers_may_be_texts_and_no_time_may_be_0() -> None:
    entry = {
        "profiling_name": "nccl:all_reduce",
        "collective_seq_id": "7",
        "p2p_seq_id": "0",
        "process_group": ("1", "undefined"),
        "input_sizes": [[4, 4]],
        "input_dtypes": "float32",
        "time_created_ns": 0,
        "time_discovered_completed_ns": 0,
        "state": "scheduled",
    }
    (call,) = read([dump_of(pickle.dumps({"entries": [entry]}, 2), rank=0)]).ranks[0].entries
    assert (call.sequence, call.created_ns, call.done) == (7, None, False)
    assert (call.input_dtypes, call.description) == (("float32",), "")


def test_ranks_of_one_program_share_what_they_have_in_common(stuck: Job) -> None:
    """A thousand full rings would hold the same stacks a thousand times."""
    first, *others = read(dumps(stuck)).ranks
    mine = {e.sequence: e for e in first.entries if e.group == "0"}
    for other in others:
        assert other.groups[0].ranks is first.groups[0].ranks
        for entry in other.entries:
            if entry.group == "0" and entry.sequence in mine:
                assert entry.frames is mine[entry.sequence].frames
                assert entry.input_sizes is mine[entry.sequence].input_sizes


def test_damaged_entries_cost_only_themselves(stuck: Job) -> None:
    dump = document(stuck, 0)
    dump["entries"][3:5] = [None, "text"]
    recordings = read([dump_of(pickle.dumps(dump, 2), rank=0)])
    assert len(recordings.ranks[0].entries) == len(dump["entries"]) - 2
    assert "2 of its" in recordings.problems[0].what


@pytest.mark.parametrize(
    "data", [b"[1, 2", b"{}", b"\x80\x02cos\nsystem\n.", b"hello", b'{"a": 1}', b"7"]
)
def test_what_is_no_dump_is_a_problem_and_not_an_error(data: bytes) -> None:
    recordings = read([dump_of(data, rank=3)])
    assert recordings.ranks == () or not recordings.ranks[0].entries
    assert recordings.problems


def test_a_refused_dump_keeps_its_reason() -> None:
    (problem,) = read([FlightDump("ptrace", 2, 99, problem="no permission")]).problems
    assert (problem.rank, problem.what) == (2, "no permission")


def test_a_dump_without_a_rank_is_of_an_unknown_one(stuck: Job) -> None:
    unknown = read(dumps(stuck, named=False))
    assert {r.rank for r in unknown.ranks} == {None}
    assert "rank" in unknown.problems[0].what


def test_a_host_name_with_numbers_does_not_hide_the_rank(stuck: Job) -> None:
    renamed = [
        dataclasses.replace(d, source=f"file:/d/gpu-17-b200_rank_{d.rank}.v2.json", rank=None)
        for d in dumps(stuck)
    ]
    assert [r.rank for r in read(renamed).ranks] == list(range(8))


def test_two_processes_of_one_rank_are_not_mixed(stuck: Job) -> None:
    first, second = dumps(stuck)[:2]
    recordings = read([first, dataclasses.replace(second, rank=0, source="file:/other/rank_0")])
    assert len(recordings.ranks) == 1
    assert "two processes" in recordings.problems[0].what


def test_the_newest_dump_counts() -> None:
    early = job(GROUPS, {r: healthy(r, 2) for r in range(8)}).run()
    late = job(GROUPS, {r: healthy(r, 3) for r in range(8)}).run()
    first = [dataclasses.replace(d, at_unix_ns=10) for d in dumps(early)]
    second = [dataclasses.replace(d, at_unix_ns=12) for d in dumps(late)]
    assert [len(r.entries) for r in read([*second, *first]).ranks] == [15] * 8


def test_both_recorders_of_a_rank_are_one_recording() -> None:
    pair = job({"0": range(2)}, {r: [Call("all_reduce"), Call("barrier")] for r in range(2)}).run()
    recordings = read(
        [*dumps(pair), *(dataclasses.replace(d, backend="fr") for d in dumps(pair, backend="gloo"))]
    )
    assert len(recordings.ranks) == 2
    assert [e.backend for e in recordings.ranks[0].entries] == ["nccl", "gloo"] * 2


def test_the_order_of_dumps_does_not_matter(stuck: Job) -> None:
    files = [*dumps(stuck), *dumps(stuck, named=False), dump_of(b"junk", rank=3)]
    expected = read(files)
    random.Random(4).shuffle(files)
    assert read(files) == expected


def test_hostile_texts_are_cleaned(stuck: Job) -> None:
    dump = document(stuck, 0)
    dump["entries"][0]["profiling_name"] = "nccl:\x1b[2Jall_reduce\n"
    dump["entries"][0]["thread_name"] = "a) R (\n"
    dump["entries"][0]["frames"][0]["filename"] = "\x1b]0;owned\x07"
    (recording,) = read([dump_of(as_json(dump), rank=0)]).ranks
    assert not any(c in repr(recording) for c in ("\\x1b", "\\x07", "\\n"))


def test_group_counters_are_found_when_the_ring_has_lost_the_group(stuck: Job) -> None:
    dump = document(stuck, 0, ring=2)
    recordings = read([dump_of(pickle.dumps(dump, 2), rank=0)])
    by_name = {group.name: group for group in recordings.ranks[0].groups}
    assert by_name["1"].status.enqueued > 0
    assert by_name["1"].ranks == (0, 1, 2, 3)
