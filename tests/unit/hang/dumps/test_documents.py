"""Formats, and files that are half there."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from grpo_doctor.hang.dumps import documents
from tests.dumps.cases import BY_NAME
from tests.dumps.formats import as_json, document


def a_dump() -> Any:
    return document(BY_NAME["missing rank"].build(), 0)


def test_json_and_pickle_are_the_same() -> None:
    assert documents.load(as_json(a_dump())) == json.loads(as_json(a_dump()))
    assert documents.load(pickle.dumps(a_dump(), 2)) == a_dump()


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_half_a_file_is_none_for_its_rank_would_look_behind(form: str) -> None:
    data = as_json(a_dump()) if form == "json" else pickle.dumps(a_dump(), 2)
    with pytest.raises(documents.NotADumpError, match="ends early"):
        documents.load(data[: len(data) // 2])


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
        b"[" * 200_000,
    ],
)
def test_what_is_no_dump_is_named(data: bytes) -> None:
    with pytest.raises(documents.NotADumpError, match="it "):
        documents.load(data)


def test_bytes_that_are_not_utf8_do_not_cost_the_file() -> None:
    data = as_json(a_dump()).replace(b'"MainThread"', b'"Main\xff\xfeThread"', 1)
    assert len(documents.load(data)["entries"]) == len(a_dump()["entries"])
