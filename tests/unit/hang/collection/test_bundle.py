"""Bundles: private, small, redacted, the same when read again, and never believed."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.errors import OutputError, TraceError
from grpo_doctor.hang.collection import bundle
from grpo_doctor.hang.verdict import SCHEMA, Cost, Diagnosis, JobSeen, Verdict
from grpo_doctor_probes.evidence import (
    Evidence,
    FlightDump,
    Frame,
    HostFacts,
    Job,
    Limits,
    LogTail,
    Look,
    Member,
    Placement,
    ProcessLook,
    PythonThread,
    Stack,
    Thread,
)

SECRET = "hf_abcdefghijklmnopqrstuvwx"


def member(rank: int, command: str = "python train.py") -> Member:
    return Member(4_700 + rank, 1, 10, "rank", "python", command, rank=rank)


def make_evidence(ranks: int = 2, **fields: Any) -> Evidence:
    job = Job("node-7", tuple(map(member, range(ranks))), ranks)
    looks = tuple(
        Look(at, tuple(ProcessLook(m.pid, at, "S", threads=(Thread(m.pid, "python", "S"),))
                       for m in job.members))
        for at in (10, 20)
    )  # fmt: skip
    frame = Frame("reward_fn", "train.py", 31)
    stacks = tuple(Stack(m.pid, 10, (PythonThread(m.pid, "MainThread", (frame,)),))
                   for m in job.members)  # fmt: skip
    evidence = Evidence(job, 1_795_000_000_000_000_000, looks=looks, stacks=(stacks, stacks))
    return replace(evidence, **fields)


def make_diagnosis(summary: str = "Rank 1 is stopped.") -> Diagnosis:
    verdict = Verdict(
        state="stuck", cause="rank-stopped", culprits=(1,), confidence=0.9, summary=summary
    )
    return Diagnosis(
        schema=SCHEMA,
        job=JobSeen(host="node-7", framework="unknown", world_size=2, ranks_seen=(0, 1)),
        verdict=verdict, ranks=(), cost=Cost(seconds=2.0, max_pause_ms=0.5),
    )  # fmt: skip


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    evidence = make_evidence(
        dumps=(FlightDump("ptrace", 0, 4_700, "fr", 5, b'{"entries": []}' * 1_000),),
        limits=((Limits(4_700, frozen=True, quota_cores=1.5),),),
        host=HostFacts("node-7", 2, kernel=((3.0, "Out of memory"),)),
    )
    written = bundle.write(tmp_path / "hang", evidence, make_diagnosis(), b"<!doctype html>")
    assert bundle.read(written) == evidence
    assert sorted(path.name for path in written.iterdir()) == sorted(
        [bundle.EVIDENCE, bundle.VERDICT, bundle.PAGE, bundle.README]
    )
    assert json.loads((written / bundle.VERDICT).read_bytes())["verdict"]["culprits"] == [1]
    assert "Rank 1 is stopped." in (written / bundle.README).read_text()


@pytest.mark.parametrize("name", ["hang", "hang.tar.gz", "hang.tgz"])
def test_a_folder_and_an_archive_hold_the_same(tmp_path: Path, name: str) -> None:
    evidence = make_evidence()
    path = bundle.write(tmp_path / "new" / name, evidence, make_diagnosis())
    assert bundle.read(path) == evidence
    assert path.is_dir() == (name == "hang")


def test_only_the_user_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = bundle.write(tmp_path / "hang", make_evidence(), make_diagnosis())
        archive = bundle.write(tmp_path / "hang.tar.gz", make_evidence(), make_diagnosis())
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in [archive, *folder.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(archive) as tar:
        assert {entry.mode for entry in tar} == {0o600}


def test_secrets_are_taken_out(tmp_path: Path) -> None:
    job = Job("node-7", (member(0, f"python train.py --hub_token={SECRET}"),), 1)
    log = LogTail(4_700, "/log", 1.0, (f"login with {SECRET}", "step 3"))
    host = HostFacts("node-7", 2, kernel=((1.0, f"oom {SECRET}"),))
    job = replace(job, placements=(Placement("node-7", run_id=f"run-{SECRET}"),))
    evidence = make_evidence(job=job, logs=(log,), host=host)
    path = bundle.write(tmp_path / "hang", evidence, make_diagnosis())
    assert SECRET.encode() not in gzip.decompress((path / bundle.EVIDENCE).read_bytes())
    assert bundle.read(path).logs[0].lines[1] == "step 3"


def test_run_ids_with_secrets_still_tell_jobs_apart(tmp_path: Path) -> None:
    ids = []
    for number, run_id in enumerate(["plain", SECRET, f"{SECRET}x", SECRET]):
        job = Job("node-7", (member(0),), 1, placements=(Placement("node-7", run_id=run_id),))
        path = bundle.write(tmp_path / str(number), make_evidence(job=job), make_diagnosis())
        ids.append(bundle.read(path).job.placements[0].run_id)
    assert ids[0] == "plain"
    assert ids[1] == ids[3] != ids[2]


def test_names_that_are_no_unicode_can_be_kept(tmp_path: Path) -> None:
    evidence = make_evidence(job=Job("node-\udcff", (member(0),), 1))
    path = bundle.write(tmp_path / "hang", evidence, make_diagnosis("Rank \udcff"))
    assert bundle.read(path).job.host == "node-?"


def test_a_full_recorder_of_each_rank_stays_under_a_megabyte(tmp_path: Path) -> None:
    entries = [
        {
            "record_id": at,
            "profiling_name": "gloo:all_reduce",
            "collective_seq_id": at,
            "time_created_ns": 1_795_000_000_000_000_000 + at * 977_311,
            "input_sizes": [[at, 1024]],
            "state": "scheduled",
        }
        for at in range(6_000)
    ]
    data = json.dumps({"version": "2.10", "entries": entries}).encode()
    assert len(data) > 900_000
    dumps = tuple(FlightDump("ptrace", rank, 4_700 + rank, "fr", 5, data) for rank in range(4))
    archive = bundle.write(tmp_path / "h.tar.gz", make_evidence(4, dumps=dumps), make_diagnosis())
    assert archive.stat().st_size < 4 * 1_000_000
    assert bundle.read(archive).dumps == dumps


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "damaged"),
        (b"no gzip", "Not a gzipped file"),
        (gzip.compress(b"no json", mtime=0), "damaged"),
        (gzip.compress(b'{"schema": 2, "evidence": {}}', mtime=0), "schema 2"),
        (gzip.compress(b'{"schema": 1, "tool": "x", "evidence": {"job": 3}}', mtime=0), "damaged"),
        (gzip.compress(b'{"schema": 1, "tool": "\x80", "evidence": {}}', mtime=0), "damaged"),
        (gzip.compress(b'{"schema": 1}', mtime=0)[:-9], "damaged"),
        (gzip.compress(b"[" * 100_000, mtime=0), "damaged"),
    ],
)
def test_a_damaged_file_is_named_with_the_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / bundle.EVIDENCE).write_bytes(content)
    with pytest.raises(TraceError, match=reason) as caught:
        bundle.read(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_no_bundle_at_all(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="there is no"):
        bundle.read(tmp_path / name)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / bundle.EVIDENCE)
    with pytest.raises(TraceError, match="neither a folder nor a file"):
        bundle.read(tmp_path)


def archive_of(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for entry, content in entries:
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def test_an_archive_is_not_unpacked_wherever_it_points(tmp_path: Path) -> None:
    evidence = make_evidence()
    good = (
        bundle.write(tmp_path / "good", evidence, make_diagnosis()) / bundle.EVIDENCE
    ).read_bytes()
    link = tarfile.TarInfo("x/evidence.json.gz")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    outside = tarfile.TarInfo("../../../../outside/evidence.json.gz")
    hostile = archive_of(tmp_path / "hostile.tar.gz", (link, b""), (outside, good))
    before = sorted(tmp_path.rglob("*"))
    assert bundle.read(hostile) == evidence  # the link is passed over, the name's folders ignored
    assert sorted(tmp_path.rglob("*")) == before


def test_an_archive_of_only_a_link_has_no_evidence(tmp_path: Path) -> None:
    link = tarfile.TarInfo("x/evidence.json.gz")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(TraceError, match="there is no evidence"):
        bundle.read(archive_of(tmp_path / "link.tar.gz", (link, b"")))


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_EVIDENCE_BYTES", 1_000_000)
    monkeypatch.setattr(bundle, "MAX_FILE_BYTES", 1_000_000)
    zeros = gzip.compress(bytes(3_000_000))
    (tmp_path / bundle.EVIDENCE).write_bytes(zeros)
    with pytest.raises(TraceError, match="unpacks to more"):
        bundle.read(tmp_path)
    big = archive_of(tmp_path / "b.tar.gz", (tarfile.TarInfo("big"), bytes(3_000_000)))
    with pytest.raises(TraceError, match="unpacks to more"):
        bundle.read(big)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Choose another"):
        bundle.write(tmp_path / "file" / "hang", make_evidence(), make_diagnosis())


def test_the_readme_has_no_control_characters(tmp_path: Path) -> None:
    where = bundle.write(tmp_path / "b", make_evidence(), make_diagnosis("rank 1 \x1b[2J\x07 is"))
    assert "\x1b" not in (where / bundle.README).read_text()
