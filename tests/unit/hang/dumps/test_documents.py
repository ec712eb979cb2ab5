"""Formats, and files that are half there."""

from __future__ import annotations

import gzip
import json
import pickle
from typing import Any

import pytest

from grpo_doctor.hang.dumps import documents
from tests.dumps.cases import BY_NAME
from tests.dumps.formats import as_json, document


def a_dump() -> Any:
    return document(BY_NAME["missing rank"].build(), 0)


def test_json_pickle_and_both_compressed_are_the_same() -> None:
    plain = json.loads(as_json(a_dump()))
    assert documents.load(as_json(a_dump())).data == plain
    assert documents.load(gzip.compress(as_json(a_dump()))).data == plain
    assert documents.load(pickle.dumps(a_dump(), 2)).data == a_dump()
    assert documents.load(gzip.compress(pickle.dumps(a_dump(), 2))).data == a_dump()


@pytest.mark.parametrize("form", ["json", "pickle"])
@pytest.mark.parametrize("packed", [False, True])
def test_half_a_file_gives_its_first_entries_and_says_so(form: str, packed: bool) -> None:
    data = as_json(a_dump()) if form == "json" else pickle.dumps(a_dump(), 2)
    half = gzip.compress(data)[:-400] if packed else data[: len(data) // 2]
    found = documents.load(half)
    assert found.cut
    assert "ends early" in found.problem
    assert len(found.data["entries"]) > 5
    assert found.data["entries"][0]["record_id"] == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        b"\n",
        b"Traceback (most recent call last):",
        b"{",
        b"[",
        b"\x80",
        b"\x1f\x8b\x08",
    ],
)
def test_what_is_no_dump_is_named(data: bytes) -> None:
    found = documents.load(data)
    assert found.data is None
    assert found.problem


def test_bytes_that_are_not_utf8_do_not_cost_the_file() -> None:
    data = as_json(a_dump()).replace(b'"MainThread"', b'"Main\xff\xfeThread"', 1)
    assert len(documents.load(data).data["entries"]) == len(a_dump()["entries"])


def test_nesting_without_end_is_named() -> None:
    assert documents.load(b"[" * 200_000).data is None


def test_a_compressed_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LARGEST_BYTES", 1 << 20)
    found = documents.load(gzip.compress(b" " * (4 << 20)))
    assert found.data is None
    assert "1 MiB" in found.problem
