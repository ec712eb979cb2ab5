"""What is printed is read back as the same setting, for every knob of every framework."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from grpo_doctor import knobs
from grpo_doctor.knobs.model import Spelling, version_of
from grpo_doctor.knobs.names import BY_NAME
from grpo_doctor.knobs.syntax import say
from tests.unit.knobs.values_of import values_of

CASES = [
    pytest.param(table, row, id=f"{table}-{row.knob}-{row.since}")
    for table, rows in knobs.TABLES.items()
    for row in rows
]


@pytest.mark.parametrize(("table", "row"), CASES)
def test_a_setting_survives_printing_and_reading(table: str, row: Spelling) -> None:
    kind = BY_NAME[row.knob].kind
    for value in values_of(row, kind):
        text = say(knobs.syntax_of(table), row, kind, value)
        if row.item is not None:
            assert text is None  # only read
            continue
        assert text is not None, (row.knob, value)
        assert knobs.spell(table, row.since, row.knob, value) == text
        assert read_back(table, row.since, text, row) == value, text


@pytest.mark.parametrize(("table", "row"), CASES)
def test_a_version_without_the_name_gets_none(table: str, row: Spelling) -> None:
    kind = BY_NAME[row.knob].kind
    others = [r for r in knobs.TABLES[table] if r.knob == row.knob and r is not row]
    value = values_of(row, kind)[0]
    text = say(knobs.syntax_of(table), row, kind, value)
    if row.until is not None and text is not None:
        after = knobs.spell(table, row.until, row.knob, value)
        assert after is None or others
        assert after != text or any(other.key == row.key for other in others)
    assert knobs.spell(table, "0.0.1", row.knob, value) is None


def read_back(table: str, version: str, text: str, row: Spelling) -> Any:
    """The knob's value once the text is part of a command line or of the JSON."""
    if text.startswith("(leave out "):
        return knobs.from_command(table, version, ["x"]).get(
            row.knob, knobs.default(table, version, row.knob)
        )
    if knobs.syntax_of(table) == "json":
        return knobs.canonical(table, version, nested(text))[row.knob]
    return knobs.from_command(table, version, ["x", *shlex.split(text)])[row.knob]


def nested(text: str) -> dict[str, Any]:
    """`"a.b": 1` as `{"a": {"b": 1}}`."""
    ((path, value),) = json.loads("{" + text + "}").items()
    for level in reversed(path.split(".")):
        value = {level: value}
    found: dict[str, Any] = value
    return found


def everything() -> Iterator[tuple[str, Spelling]]:
    """Each row with its table."""
    for table, rows in knobs.TABLES.items():
        for row in rows:
            yield table, row


def test_every_knob_is_spelled_somewhere_and_named_once() -> None:
    spelled = {row.knob for _, row in everything()}
    assert spelled == set(BY_NAME)
    assert len(BY_NAME) == len(knobs.KNOBS)


def test_rows_of_a_knob_do_not_overlap_and_are_in_order() -> None:
    for table, rows in knobs.TABLES.items():
        for row in rows:
            same = [other for other in rows if other.knob == row.knob]
            assert len([other for other in same if other.covers(first_of(row))]) == 1, (table, row)
            assert [first_of(other) for other in same] == sorted(map(first_of, same))


def first_of(row: Spelling) -> tuple[int, ...]:
    found = version_of(row.since)
    assert found is not None
    return found


TYPES: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float)}


def test_defaults_are_values_that_the_option_has() -> None:
    for table, row in everything():
        kind = BY_NAME[row.knob].kind
        for _, value in row.defaults:
            assert value is None or isinstance(value, TYPES.get(kind, (str,))), (table, row.knob)
            assert kind == "bool" or not isinstance(value, bool), (table, row.knob)
