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
from grpo_doctor_probes.evidence import Job
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


def test_hosts_of_one_name_do_not_replace_the_evidence_of_each_other(tmp_path: Path) -> None:
    first, second = (
        replace(part, job=replace(part.job, host="localhost"))
        for part in on_hosts(EvidenceBuilder(ranks=4).build(), 2)
    )
    for part in (first, first):  # the same host again replaces its own
        bundle.write(tmp_path / "localhost", part, diagnose(part))
    with pytest.raises(OutputError, match="another host that is called localhost too"):
        bundle.write(tmp_path / "localhost", second, diagnose(second))
    assert bundle.read(tmp_path / "localhost") == first


@pytest.mark.parametrize("limit", ["MAX_FILE_BYTES", "MAX_EVIDENCE_BYTES"])
@pytest.mark.parametrize(("more", "read"), [(0, True), (-1, False)])
def test_what_is_as_large_as_the_limit_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, more: int, read: bool
) -> None:
    evidence = EvidenceBuilder(ranks=2).build()
    path = bundle.write(tmp_path / "a", evidence, diagnose(evidence)) / "evidence.json.gz"
    packed = path.read_bytes()
    size = len(packed) if limit == "MAX_FILE_BYTES" else len(gzip.decompress(packed))
    monkeypatch.setattr(bundle, limit, size + more)
    if read:
        assert bundle.read(path).job.members
    else:
        with pytest.raises(TraceError, match=r"it is larger than|unpacks to more than any job"):
            bundle.read(path)
