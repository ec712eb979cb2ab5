"""Documents of strangers: what is refused, what is tamed, and what stays as it is."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec import field

from grpo_doctor_reports.errors import DocumentError
from grpo_doctor_reports.formatting import NAME_LIMIT, PROSE_LIMIT
from grpo_doctor_reports.schema.part import Block, Name, Numbers, Part, Prose, read

LARGEST = 2**63


class Inner(Part, frozen=True):
    name: Name = "unnamed"
    maybe: Name | None = None


class Document(Part, frozen=True):
    schema: int
    inner: Inner = field(default_factory=Inner)
    inners: list[Inner] = field(default_factory=list)
    count: int = 7
    counts: list[int] = field(default_factory=list)
    number: float = 0.5
    numbers: list[float] = field(default_factory=list)
    gaps: Numbers = field(default_factory=list)
    named: dict[Name, float] = field(default_factory=dict)
    gaps_named: dict[Name, float | None] = field(default_factory=dict)
    anything: Any = None


class Texts(Part, frozen=True):
    schema: int
    name: Name = ""
    prose: Prose = ""
    block: Block = ""
    maybe: Prose | None = None
    pair: tuple[Name, ...] = ()
    named: dict[Name, float] = field(default_factory=dict)


def document(**members: Any) -> Document:
    return read({"schema": 3, **members}, Document, 3, "make it")


@pytest.mark.parametrize(("value", "message"), [
    ([], "is not a JSON object. Write it with `make it`."),
    ({}, "has no schema number"),
    ({"schema": "3"}, "has no schema number"),
    ({"schema": True}, "has no schema number"),
    ({"schema": 4}, "has schema 4; this grpo-doctor draws schema 3. Upgrade grpo-doctor"),
    ({"schema": 2}, "has schema 2; this grpo-doctor draws schema 3. Write it again with"),
    ({"schema": 3, "inner": 4}, "is damaged: inner: Expected `object`, got `int`"),
    ({"schema": 3, "counts": [1, "2"]}, "is damaged: counts[1]: Expected `int`, got `str`"),
    ({"schema": 3, "count": 1.5}, "is damaged: count: "),
    ({"schema": 3, "number": True}, "is damaged: number: Expected `float`, got `bool`"),
    ({"schema": 3, "named": {"a": []}}, "is damaged: named[...]: "),
])  # fmt: skip
def test_what_is_no_such_document_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(DocumentError) as error:
        read(value, Document, 3, "make it")
    assert message in str(error.value)


def test_a_part_is_read_as_what_it_is_written_as() -> None:
    written = document(inner={"name": "a"}, gaps=[1.0, None])
    assert read(written, Document, 3, "make it") == written


def test_what_is_absent_or_null_has_its_default() -> None:
    read_back = document(inner={"name": None, "maybe": None}, number=None, count=None, inners=None)
    assert read_back == document(inner={}) == document()
    assert read_back.inner == Inner(name="unnamed", maybe=None)
    assert (read_back.number, read_back.count, read_back.inners) == (0.5, 7, [])
    assert document(unknown=[object()]) == document()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**64, -(2**64), 1e300])
def test_a_number_that_cannot_be_shown_is_none(value: float) -> None:
    read_back = document(
        number=value, numbers=[1.0, value], gaps=[value, 1], named={"a": value, "b": 1.0},
        gaps_named={"a": value},
    )  # fmt: skip
    assert read_back.number == 0.5
    assert read_back.numbers == [1.0]
    assert read_back.gaps == [None, 1.0]
    assert read_back.named == {"b": 1.0}
    assert read_back.gaps_named == {"a": None}


@pytest.mark.parametrize("value", [float(LARGEST), -float(LARGEST), 0.0, 1, -2.5])
def test_any_other_stays(value: float) -> None:
    read_back = document(
        number=value, numbers=[value, value], gaps=[value, None], named={"a": value}
    )
    assert (read_back.number, read_back.numbers, read_back.gaps) == (
        value,
        [value] * 2,
        [value, None],
    )
    assert read_back.named == {"a": value}


def test_rows_whose_sum_is_too_large_keep_their_numbers() -> None:
    assert document(numbers=[float(LARGEST)] * 3).numbers == [float(LARGEST)] * 3
    assert document(numbers=[]).numbers == []
    assert document(numbers=[0.5, math.nan, 1.0]).numbers == [0.5, 1.0]
    assert document(numbers=[math.inf, -math.inf]).numbers == []


def test_whole_numbers_may_be_written_as_floats() -> None:
    read_back = document(count=3.0, counts=[1, 2.0, math.inf, -4.0])
    assert (read_back.count, read_back.counts) == (3, [1, 2, -4])
    assert [type(value) for value in (read_back.count, *read_back.counts)] == [int] * 4
    assert document(counts=[LARGEST - 1, -LARGEST]).counts == [LARGEST - 1, -LARGEST]
    with pytest.raises(DocumentError, match=r"counts\[1\]"):
        document(counts=[1, True])


def texts(**members: Any) -> Texts:
    return read({"schema": 3, **members}, Texts, 3, "make it")


def test_text_is_made_printable_and_cut_by_its_kind() -> None:
    raw = "a\x1b[31m\nb"
    read_back = texts(name=raw, prose=raw, block=raw, maybe=raw, pair=[raw], named={raw: 1.0})
    assert read_back.maybe is not None
    for text in (
        read_back.name,
        read_back.prose,
        read_back.maybe,
        read_back.pair[0],
        *read_back.named,
    ):
        assert "\x1b" not in text
        assert "\n" not in text
    assert "\x1b" not in read_back.block
    assert read_back.block.splitlines()[1] == "b"
    long = texts(**dict.fromkeys(("name", "prose", "block", "maybe"), "x" * 9_999))
    assert long.maybe is not None
    assert len(long.name) <= NAME_LIMIT
    for text in (long.prose, long.block, long.maybe):
        assert NAME_LIMIT < len(text) <= PROSE_LIMIT


def test_keys_are_texts_whatever_they_were() -> None:
    assert document(named={1: 2.0}).named == {"1": 2.0}


def test_what_may_be_anything_is_left_alone() -> None:
    assert document(anything={"a": [None, "\x1b"]}).anything == {"a": [None, "\x1b"]}
