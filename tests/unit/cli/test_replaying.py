"""`attach --replay` with bundles of several hosts, as a user calls it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from grpo_doctor.hang.collection import bundle
from grpo_doctor.hang.diagnose import diagnose
from tests.evidence import EvidenceBuilder
from tests.several_hosts import on_hosts
from tests.unit.cli.attached import Captured


@pytest.fixture
def bundles(tmp_path: Path) -> list[Path]:
    """Of four hosts with two ranks each; rank 5 on node2 is stopped."""
    build = EvidenceBuilder(ranks=8)
    build.rank(5).state = "T"
    places = []
    for host in on_hosts(build.build(), 2):
        path = tmp_path / "shared" / host.job.host
        places.append(bundle.write(path, host, diagnose(host)))
    return places


def replay(*arguments: object) -> int:
    return main(["attach", "--replay", *map(str, arguments)])


def test_all_hosts_give_one_verdict(bundles: list[Path], capsys: Captured) -> None:
    assert replay(*bundles) == 3
    output = capsys.readouterr().out
    assert output.startswith("Rank 5 on node2 is stopped")
    assert "node3  ranks 6-7" in output


def test_the_folder_above_them_and_json(bundles: list[Path], capsys: Captured) -> None:
    assert replay(bundles[0].parent, "--json") == 3
    document = json.loads(capsys.readouterr().out)
    names = [host["name"] for host in document["job"]["hosts"]]
    assert names == ["node0", "node1", "node2", "node3"]
    assert document["verdict"]["culprits"] == [5]
    assert {row["rank"]: row["host"] for row in document["ranks"]}[5] == "node2"


def test_one_that_cant_be_read_is_named_and_the_rest_is_used(
    bundles: list[Path], capsys: Captured
) -> None:
    (bundles[0] / "evidence.json.gz").write_bytes(b"no bundle")
    assert replay(*bundles) == 3
    output = capsys.readouterr()
    assert output.out.startswith("Rank 5 on node2 is stopped")
    assert "What could not be inspected" in output.out
    assert "node0" in output.err


@contextmanager
def as_plain_user() -> Iterator[None]:
    """Root may read everything; nobody may not."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_one_of_another_user_is_named_and_the_rest_is_used(
    bundles: list[Path], capsys: Captured
) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folder is closed to others
        shared = Path(name) / "shared"
        bundles[0].parent.rename(shared)
        for path in (Path(name), shared, *shared.rglob("*")):
            path.chmod(0o755)
        (shared / "node0").chmod(0)
        try:
            with as_plain_user():
                assert replay(shared) == 3
                assert replay(shared / "node0") == 2
        finally:
            (shared / "node0").chmod(0o755)
    output = capsys.readouterr()
    assert output.out.startswith("Rank 5 on node2 is stopped")
    assert output.err.count("node0: Permission denied") == 2


def test_nothing_that_can_be_read_is_wrong_usage(bundles: list[Path], capsys: Captured) -> None:
    for path in bundles:
        (path / "evidence.json.gz").write_bytes(b"no bundle")
    assert replay(*bundles) == 2
    output = capsys.readouterr().err
    assert all(path.name in output for path in bundles)


def test_bundles_of_different_jobs_are_wrong_usage(bundles: list[Path], capsys: Captured) -> None:
    from dataclasses import replace

    strange = bundle.read(bundles[0])
    strange = replace(strange, job=replace(strange.job, address="node9:1234"))
    bundle.write(bundles[0], strange, diagnose(strange))
    assert replay(*bundles) == 2
    output = capsys.readouterr().err
    assert "node9:1234" in output
    assert "node0:29500" in output


def test_the_joined_verdict_can_be_kept_beside_them(bundles: list[Path], capsys: Captured) -> None:
    template = bundles[0].parent / "{host}"
    assert replay(*bundles, "--out", template) == 3
    first = capsys.readouterr().out
    assert (bundles[0].parent / "all-hosts" / "hang.html").exists()
    assert replay(bundles[0].parent) == 3
    assert capsys.readouterr().out == first
    assert replay(bundles[0].parent / "all-hosts") == 3
    assert capsys.readouterr().out == first
