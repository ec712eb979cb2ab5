"""What a bundle may hold at most."""

from __future__ import annotations

import gzip
import zlib
from contextlib import nullcontext
from dataclasses import replace

import pytest

from grpo_doctor.hang.collection import bundle
from grpo_doctor_probes.evidence import Evidence, FlightDump
from tests.evidence import EvidenceBuilder


def dumped(*contents: bytes) -> Evidence:
    dumps = tuple(FlightDump("memory", rank, data=data) for rank, data in enumerate(contents))
    return replace(EvidenceBuilder(ranks=2).build(), dumps=dumps)


def restored(content: bytes) -> Evidence:
    return bundle.unpacked(gzip.decompress(content))


@pytest.mark.parametrize(("more", "fits"), [(0, True), (-1, False)])
def test_a_job_of_as_many_ranks_as_there_may_be(
    monkeypatch: pytest.MonkeyPatch, more: int, fits: bool
) -> None:
    evidence = dumped()
    monkeypatch.setattr(bundle, "MAX_RANKS", 2 + more)
    with nullcontext() if fits else pytest.raises(bundle.UnreadableError, match="has 2 ranks"):
        assert restored(bundle.packed(evidence)).job.world_size == 2


@pytest.mark.parametrize(("more", "fits"), [(0, True), (-1, False)])
def test_a_dump_as_large_as_a_bundle_takes(
    monkeypatch: pytest.MonkeyPatch, more: int, fits: bool
) -> None:
    data = bytes(2_500_000)
    monkeypatch.setattr(bundle, "MAX_PACKED_DUMP_BYTES", len(zlib.compress(data, 6)) + more)
    (dump,) = restored(bundle.packed(dumped(data))).dumps
    assert dump.data == (data if fits else b"")
    assert dump.problem == (
        "" if fits else ("its 2.5 MB were too large for the bundle and were left out")
    )


@pytest.mark.parametrize(
    ("of_one", "of_all", "fits"), [(5, 10, True), (4, 10, False), (10, 10, True), (10, 9, False)]
)
def test_dumps_that_unpack_to_more_than_there_is(
    monkeypatch: pytest.MonkeyPatch, of_one: int, of_all: int, fits: bool
) -> None:
    content = bundle.packed(dumped(b"12345", b"", b"67890"))
    monkeypatch.setattr(bundle, "MAX_DUMP_BYTES", of_one)
    monkeypatch.setattr(bundle, "MAX_ALL_DUMPS_BYTES", of_all)
    with nullcontext() if fits else pytest.raises(bundle.UnreadableError, match="unpacks to more"):
        assert [d.data for d in restored(content).dumps] == [b"12345", b"", b"67890"]
