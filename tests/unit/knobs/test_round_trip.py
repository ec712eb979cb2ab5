"""What is printed is read back as the same setting, for every knob of every framework."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from grpo_doctor import knobs
from grpo_doctor.knobs.model import Spelling, version_of
from grpo_doctor.knobs.syntax import say
from grpo_doctor.knobs.tables import BY_NAME
from tests.unit.knobs.values_of import values_of


@pytest.mark.parametrize("table", knobs.TABLES)
def test_every_setting_survives_printing_and_reading(table: str) -> None:
    assert [line for row in knobs.TABLES[table] for line in losses(table, row)] == []


def losses(table: str, row: Spelling) -> Iterator[str]:
    """Each value of a setting that is not printed, or is read back as another one."""
    kind = BY_NAME[row.knob].kind
    for value in values_of(row, kind):
        text = say(knobs.syntax_of(table), row, kind, value)
        name = f"{row.knob} {value!r} from {row.since}"
        if row.item is not None:
            if text is not None:
                yield f"{name}: only read, yet printed as {text}"
        elif text is None:
            yield f"{name}: not printed"
        elif (spelled := knobs.spell(table, row.since, row.knob, value)) != text:
            yield f"{name}: spelled {spelled}, not {text}"
        elif (answer := read_back(table, row.since, text, row)) != value:
            yield f"{name}: {text} is read as {answer!r}"


@pytest.mark.parametrize("table", knobs.TABLES)
def test_a_version_without_a_name_gets_none(table: str) -> None:
    assert [line for row in knobs.TABLES[table] for line in wrong_versions(table, row)] == []


def wrong_versions(table: str, row: Spelling) -> Iterator[str]:
    """Versions before and after a row that are given its name all the same."""
    kind = BY_NAME[row.knob].kind
    siblings = [r for r in knobs.TABLES[table] if r.knob == row.knob and r is not row]
    value = values_of(row, kind)[0]
    text = say(knobs.syntax_of(table), row, kind, value)
    if row.until is not None and text is not None:
        after = knobs.spell(table, row.until, row.knob, value)
        if after is not None and not siblings:
            yield f"{row.knob}: {after} in {row.until}, which has no such name"
        if after == text and all(sibling.key != row.key for sibling in siblings):
            yield f"{row.knob}: still {after} in {row.until}"
    if (before := knobs.spell(table, "0.0.1", row.knob, value)) is not None:
        yield f"{row.knob}: {before} in 0.0.1, before any version that was read"


def read_back(table: str, version: str, text: str, row: Spelling) -> Any:
    """The knob's value once the text is part of a command line or of the JSON."""
    if text.startswith("(remove "):
        return knobs.from_command(table, version, ["x"]).get(
            row.knob, knobs.default(table, version, row.knob)
        )
    if knobs.syntax_of(table) == "json":
        return knobs.canonical(table, version, nested(text)).get(row.knob)
    return knobs.from_command(table, version, ["x", *shlex.split(text)]).get(row.knob)


def nested(text: str) -> dict[str, Any]:
    """`"a.b": 1` as `{"a": {"b": 1}}`."""
    ((path, value),) = json.loads("{" + text + "}").items()
    levels: dict[str, Any] = {}
    for level in reversed(path.split(".")):
        levels = {level: levels or value}
    return levels


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
            same = [sibling for sibling in rows if sibling.knob == row.knob]
            assert len([sibling for sibling in same if sibling.covers(first_of(row))]) == 1, (
                table,
                row,
            )
            assert [first_of(sibling) for sibling in same] == sorted(map(first_of, same))


def first_of(row: Spelling) -> tuple[int, ...]:
    version = version_of(row.since)
    assert version is not None
    return version


TYPES: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float)}


def test_defaults_are_values_that_the_option_has() -> None:
    for table, row in everything():
        kind = BY_NAME[row.knob].kind
        for value in (row.default, *row.later.values()):
            assert value is None or isinstance(value, TYPES.get(kind, (str,))), (table, row.knob)
            assert kind == "bool" or not isinstance(value, bool), (table, row.knob)
