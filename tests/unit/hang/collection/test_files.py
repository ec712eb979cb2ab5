"""Where bundles of several hosts are, and what their folders are called."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor.errors import OutputError, TraceError
from grpo_doctor.hang.collection import bundle
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.multihost.join import joined
from grpo_doctor_probes.evidence import Evidence, Job
from tests.evidence import EvidenceBuilder
from tests.several_hosts import on_hosts


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("node-7.cluster", "node-7.cluster"),
        ("../../etc", "_.._etc"),
        ("a/b\n;c", "a_b_c"),
        ("", "host"),
        ("..", "host"),
        ("x" * 300, "x" * 64),
        ("\udcff", "_"),
    ],
)
def test_a_host_gives_its_name_to_its_bundle_and_leads_nowhere_else(host: str, name: str) -> None:
    assert bundle.with_host(Path("/s/{host}.tar.gz"), Job(host, ())) == Path(f"/s/{name}.tar.gz")
    assert bundle.with_host(Path("/s/out"), Job(host, ())) == Path("/s/out")


def test_what_was_joined_is_no_host() -> None:
    job = joined(on_hosts(EvidenceBuilder(ranks=4).build(), 2)).job
    assert bundle.with_host(Path("/s/{host}"), job) == Path("/s/all-hosts")


def test_a_folder_of_bundles_is_all_of_them(tmp_path: Path) -> None:
    parts = on_hosts(EvidenceBuilder(ranks=6).build(), 2)
    paths = [tmp_path / "a", tmp_path / "b.tar.gz", tmp_path / "c"]
    for part, path in zip(parts, paths, strict=True):
        bundle.write(path, part, diagnose(part))
    (tmp_path / "notes.txt").write_text("of an operator")
    (tmp_path / "empty").mkdir()
    assert bundle.bundles_in([tmp_path]) == tuple(paths)
    assert bundle.bundles_in([*paths, paths[0]]) == tuple(paths)
    assert bundle.bundles_in([tmp_path / "empty"]) == (tmp_path / "empty",)


def test_placement_and_host_survive_the_bundle(tmp_path: Path) -> None:
    joint = joined(on_hosts(EvidenceBuilder(ranks=4).build(), 2))
    evidence = bundle.read(bundle.write(tmp_path / "all", joint, diagnose(joint)))
    assert evidence == joint


def test_a_bundle_of_before_several_hosts_is_read(tmp_path: Path) -> None:
    old = replace(EvidenceBuilder(ranks=2).build())
    path = bundle.write(tmp_path / "old", old, diagnose(old))
    evidence: Evidence = bundle.read(path)
    assert evidence.job.placements == ()


def hosts_of_one_name() -> list[Evidence]:
    """Two containers that call themselves alike, each with half of the ranks."""
    parts = on_hosts(EvidenceBuilder(ranks=4).build(), 2)
    for number, evidence in enumerate(parts):
        members = tuple(
            replace(member, started_ticks=member.started_ticks + 1000 * number)
            for member in evidence.job.members
        )
        placements = tuple(
            replace(placement, host="localhost") for placement in evidence.job.placements
        )
        job = replace(evidence.job, host="localhost", members=members, placements=placements)
        parts[number] = replace(evidence, job=job)
    return parts


def written(path: Path, evidence: Evidence) -> Path:
    own_path = bundle.own_place(path, evidence.job)
    return bundle.write(own_path, evidence, diagnose(evidence))


@pytest.mark.parametrize("end", ["", ".tar.gz", ".tgz"])
def test_hosts_of_one_name_keep_a_bundle_each(tmp_path: Path, end: str) -> None:
    template = tmp_path / f"{{host}}{end}"
    paths = [written(template, evidence) for evidence in hosts_of_one_name()]
    assert [path.name for path in paths] == [f"localhost{end}", f"localhost-2{end}"]
    joint = joined([bundle.read(path) for path in bundle.bundles_in([tmp_path])])
    assert {member.rank for member in joint.job.ranks()} == {0, 1, 2, 3}


def test_two_that_write_at_the_same_time_take_two_places(tmp_path: Path) -> None:
    first, second = hosts_of_one_name()
    template = tmp_path / "{host}"
    assert bundle.own_place(template, first.job) != bundle.own_place(template, second.job)


def test_another_look_at_the_same_host_replaces_its_bundle(tmp_path: Path) -> None:
    first_host, second_host = hosts_of_one_name()
    template = tmp_path / "{host}"
    first, second = written(template, first_host), written(template, second_host)
    assert (written(template, first_host), written(template, second_host)) == (first, second)


def test_the_bundle_of_an_earlier_job_is_replaced(tmp_path: Path) -> None:
    first, second = hosts_of_one_name()
    before = replace(second, job=replace(second.job, address="node0:29999"))
    assert written(tmp_path / "{host}", before) == written(tmp_path / "{host}", first)


def test_a_place_without_a_host_s_name_is_as_given(tmp_path: Path) -> None:
    first, second = hosts_of_one_name()
    assert bundle.own_place(tmp_path / "out", first.job) == tmp_path / "out"
    assert not (tmp_path / "out").exists()
    assert written(tmp_path / "out", first) == written(tmp_path / "out", second)


def test_a_place_that_cannot_be_made_is_said_when_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (evidence, _) = hosts_of_one_name()
    with pytest.raises(OutputError):
        written(tmp_path / "file" / "{host}", evidence)


@pytest.mark.parametrize("limit", ["MAX_FILE_BYTES", "MAX_EVIDENCE_BYTES"])
@pytest.mark.parametrize(("more", "read"), [(0, True), (-1, False)])
def test_what_is_as_large_as_the_limit_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, more: int, read: bool
) -> None:
    path = written(tmp_path / "a", hosts_of_one_name()[0]) / "evidence.json.gz"
    packed = path.read_bytes()
    size = len(packed) if limit == "MAX_FILE_BYTES" else len(gzip.decompress(packed))
    monkeypatch.setattr(bundle, limit, size + more)
    if read:
        assert bundle.read(path).job.members
    else:
        with pytest.raises(TraceError, match=r"it is larger than|unpacks to more than any job"):
            bundle.read(path)
