"""Reads `settings.json`: every setting, and its names in the versions of each framework.

A name has the versions that `options/` lists for it. Only where the option was there before it did
this, or is still there and does something else, its row has `since` and `until`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from grpo_doctor.knobs.model import Kind, Knob, Needs, Spelling, Syntax, version_of
from grpo_doctor.knobs.option_lists import option_list


class _Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`options` names its list; without one all names are of the versions from `first` on, before
    `end`. What it does not name itself it takes from `base`. `renamed` has options that are not a
    setting here, with what they are called now."""

    about: str
    syntax: Syntax = "flags"
    options: str = ""
    first: str = ""
    end: str | None = None
    base: str = ""
    renamed: dict[str, str] = {}

    def dated(self, row: Spelling) -> Spelling:
        """Return the row with its versions."""
        listed = option_list(self.options)
        since, until = listed.span(row.key, row.since) if listed else (self.first, self.end)
        return replace(row, since=row.since or since, until=row.until or until)


class _Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`rows` are by framework; no row: it has no such setting, though its base has."""

    name: str
    kind: Kind
    meaning: str
    rows: dict[str, tuple[Spelling, ...]] = msgspec.field(name="in")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    frameworks: dict[str, _Framework]
    settings: tuple[_Setting, ...]
    needs: tuple[Needs, ...]

    def table(self, name: str) -> Iterator[Spelling]:
        """Yield the rows of one framework, of its base those whose options it has, while it has
        them."""
        listed = option_list(self.frameworks[name].options)
        for setting in self.settings:
            owner = name if name in setting.rows else self.frameworks[name].base
            for row in setting.rows.get(owner, ()):
                dated = self.frameworks[owner].dated(replace(row, knob=setting.name))
                if owner == name or listed is None:
                    yield dated
                elif listed.ever(row.key):
                    both = (dated.since, listed.span(row.key, "")[0])
                    since = max(both, key=lambda text: version_of(text) or ())
                    if dated.covers(version_of(since) or ()):
                        yield replace(dated, since=since)


_FILE = msgspec.json.decode(Path(__file__).with_name("settings.json").read_bytes(), type=_File)

KNOBS = tuple(Knob(each.name, each.kind, each.meaning) for each in _FILE.settings)
BY_NAME: Mapping[str, Knob] = {knob.name: knob for knob in KNOBS}
TABLES: Mapping[str, tuple[Spelling, ...]] = {
    name: tuple(_FILE.table(name)) for name in _FILE.frameworks
}
"""The trainers, and what runs with them: DeepSpeed's JSON, servers for rollouts."""
FRAMEWORKS: Mapping[str, tuple[Spelling, ...]] = {
    name: TABLES[name] for name in ("bundled", "ms-swift", "trl", "verl", "openrlhf")
}
"""The trainers."""
NEEDS = _FILE.needs
"""A setting is active only if none of these takes its effect away."""
RENAMED: Mapping[str, Mapping[str, str]] = {
    name: framework.renamed for name, framework in _FILE.frameworks.items()
}


def syntax_of(framework: str) -> Syntax:
    """Return how this framework's settings are written."""
    known = _FILE.frameworks.get(framework)
    return known.syntax if known else "flags"
