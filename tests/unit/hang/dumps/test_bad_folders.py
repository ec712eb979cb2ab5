"""What `attach --dumps` says of folders with bad files: no verdict rests on what is unknown, each
file that is not used is named, and nothing ends in a traceback.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.cli import main
from tests.dumps import spoiled as spoiled_folders
from tests.dumps.real_nccl import recordings
from tests.dumps.spoiled import (
    NOT_A_DUMP,
    SECOND_NS,
    Folder,
    as_version,
    at_moments,
    mixed,
    moved_in_time,
    packed,
    plain,
)
from tests.nccl_rules import cases
from tests.nccl_rules.cases import DEVELOPMENT, Case

KINDS = ("host stalled", "GPU hung", "process dead", "order swapped", "wrong size", "healthy")
Said = pytest.CaptureFixture[str]
drawn = functools.cache(cases.drawn)
steps = functools.cache(spoiled_folders.steps)


def attach(folder: Folder, path: Path, capsys: Said) -> tuple[int, dict[str, Any]]:
    folder.write(path)
    code = main(["attach", "--json", "--dumps", str(path)])
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    return code, json.loads(output.out)


def named_files(document: dict[str, Any]) -> dict[str, str]:
    problems = (problem["what"].partition(": ") for problem in document["problems"])
    return {Path(file).name: reason for file, _, reason in problems}


def healthy_ranks(case: Case, folder: Folder) -> list[int]:
    return sorted(key for key in folder.files if isinstance(key, int) and key not in case.culprits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_versions_may_be_mixed(kind: str, seed: int, tmp_path: Path, capsys: Said) -> None:
    case = drawn(kind, seed, DEVELOPMENT)
    code, document = attach(mixed(case.files, seed), tmp_path, capsys)
    culprits = set(document["verdict"]["culprits"])
    assert case.needed <= culprits <= case.culprits
    assert code == 3 if kind != "healthy" else code in (0, 2)  # nothing was active: not judged


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), list(zip(KINDS, (0, 1, 1, 1, 0, 0), strict=True)))
@pytest.mark.parametrize("spoiled", ["empty", "cut", "not a dump", "another job", "another day"])
def test_a_rank_whose_file_cannot_be_used_is_named_and_not_blamed(
    kind: str, seed: int, spoiled: str, tmp_path: Path, capsys: Said
) -> None:
    case = drawn(kind, seed, DEVELOPMENT)
    folder = mixed(case.files, seed)
    rank = healthy_ranks(case, folder)[seed]
    own = plain(next(dump.data for dump in case.files if dump.rank == rank))
    if spoiled == "empty":
        folder.files[rank] = b""
    elif spoiled == "cut":
        folder.cut(rank)
    elif spoiled == "not a dump":
        folder.files[rank] = NOT_A_DUMP
    elif spoiled == "another day":
        folder.files[rank] = packed(as_version(moved_in_time(own, -86_400 * SECOND_NS), "2.4"))
    else:
        aliens = (drawn("healthy", 500 + n, DEVELOPMENT) for n in range(20))
        other = next(alien for alien in aliens if alien.world not in (case.world, rank))
        folder.files[rank] = other.files[0].data
    code, document = attach(folder, tmp_path, capsys)
    if spoiled == "another day" and not own["entries"]:
        return  # no time is in it
    assert named_files(document)[f"trace_rank_{rank}"]
    verdict = document["verdict"]
    assert set(verdict["culprits"]) <= case.culprits
    assert verdict["state"] != "healthy"
    if kind == "healthy":
        assert (code, verdict["state"], verdict["class"]) == (2, "slow", "unknown")
        assert f"rank {rank}" in verdict["summary"]
    elif not verdict["culprits"]:
        assert (verdict["state"], verdict["class"], verdict["certainty"]) == (
            "stuck",
            "unknown",
            "",
        )
        assert f"rank {rank}, whose recording can't be used" in verdict["summary"]


def test_of_two_that_left_nothing_usable_only_the_one_without_a_file_is_named(
    tmp_path: Path, capsys: Said
) -> None:
    case = drawn("process dead", 1, DEVELOPMENT)
    folder = mixed(case.files, 1)
    folder.files[min(healthy_ranks(case, folder))] = b""
    _, document = attach(folder, tmp_path, capsys)
    assert set(document["verdict"]["culprits"]) == case.culprits


@pytest.mark.parametrize("recorded", recordings(), ids=lambda recording: recording.name)
def test_real_recordings_with_an_empty_a_cut_and_a_strange_file(
    recorded: Any, tmp_path: Path, capsys: Said
) -> None:
    folder = Folder({dump.rank: dump.data for dump in recorded.files})
    first, second, third = sorted(set(range(16)) - recorded.culprits)[:3]
    folder.files |= {first: b"", third: NOT_A_DUMP, "core.17": NOT_A_DUMP}
    folder.cut(second)
    _, document = attach(folder, tmp_path, capsys)
    assert set(document["verdict"]["culprits"]) == recorded.culprits
    names = {f"trace_rank_{rank}" for rank in (first, second, third)} | {"core.17"}
    assert names <= named_files(document).keys()


@pytest.mark.parametrize("ranks", [2, 3, 6])
@pytest.mark.parametrize("ring", [60, 2000])
@pytest.mark.parametrize("newer", ["one", "half", "all but one"])
def test_a_job_that_goes_on_while_its_dumps_are_written_has_no_culprit(
    ranks: int, ring: int, newer: str, tmp_path: Path, capsys: Said
) -> None:
    job = steps(ranks)
    begin = min(rank.records[0].created_ns for rank in job.ranks.values())
    count = {"one": 1, "half": ranks // 2, "all but one": ranks - 1}[newer]
    when = {r: begin + (280 if r < count else 100) * SECOND_NS for r in range(ranks)}
    code, document = attach(at_moments(job, when, ring=ring), tmp_path, capsys)
    verdict = document["verdict"]
    assert (verdict["state"], verdict["class"], verdict["culprits"]) == ("slow", "unknown", [])
    assert code == 2
    few = range(count) if 2 * count < ranks else range(count, ranks)
    assert named_files(document).keys() == {f"trace_rank_{rank}" for rank in few}


@pytest.mark.parametrize("ring", [60, 2000])
@pytest.mark.parametrize("older", [0, 3, 5])
def test_a_dump_from_before_the_job_stood_does_not_make_its_rank_look_behind(
    ring: int, older: int, tmp_path: Path, capsys: Said
) -> None:
    job = steps(6, halts=5)
    end = max(rank.now_ns for rank in job.ranks.values())
    when = dict.fromkeys(range(6), end + 90 * SECOND_NS) | {older: end - 80 * SECOND_NS}
    code, document = attach(at_moments(job, when, ring=ring), tmp_path, capsys)
    assert code == 3
    assert document["verdict"]["culprits"] == ([] if older == 5 else [5])
    assert "before the last calls" in named_files(document)[f"trace_rank_{older}"]


@pytest.mark.parametrize("newer", [0, 3, 5])
def test_a_newer_dump_of_a_job_that_stands_says_the_same(
    newer: int, tmp_path: Path, capsys: Said
) -> None:
    job = steps(6, halts=5)
    end = max(rank.now_ns for rank in job.ranks.values())
    when = dict.fromkeys(range(6), end + 90 * SECOND_NS) | {newer: end + 600 * SECOND_NS}
    _, document = attach(at_moments(job, when), tmp_path, capsys)
    assert document["verdict"]["culprits"] == [5]
    assert document["problems"] == []


def test_without_a_word_in_any_recording_nothing_is_judged(tmp_path: Path, capsys: Said) -> None:
    folder = Folder({rank: packed({"version": "2.10", "entries": []}) for rank in range(4)})
    code, document = attach(folder, tmp_path, capsys)
    assert (code, document["verdict"]["class"]) == (2, "unknown")


def test_where_no_file_can_be_used_each_is_named(tmp_path: Path, capsys: Said) -> None:
    files: dict[int | str, bytes] = {
        0: b"",
        1: b"[1, 2",
        2: NOT_A_DUMP,
        3: b"\x80\x02cos\nsystem\n.",
    }
    Folder(files).write(tmp_path)
    assert main(["attach", "--dumps", str(tmp_path)]) == 2
    error_text = capsys.readouterr().err
    assert [f"trace_rank_{rank}" in error_text for rank in files] == [True] * 4
    assert "Traceback" not in error_text
