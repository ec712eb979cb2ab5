"""Options of a command line, and Hydra's overrides, each with the words that say it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_doctor.launches.model import Source
from grpo_doctor.launches.tables import TABLES
from grpo_doctor.launches.words import Word

# Short names, and second names of one option.
ALIASES: Mapping[str, Mapping[str, str]] = TABLES["options"]["aliases"]
_NUMBER = re.compile(r"-\.?\d")
_OVERRIDE = re.compile(r"^(\+{0,2}|~)([A-Za-z_][\w.@/:-]*)(?:=(.*))?$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Option:
    """One option as said: its name, the words of its value, and the sign before a Hydra key."""

    name: str
    values: tuple[Word, ...]
    source: Source
    sign: str = ""

    @property
    def value(self) -> Any:
        """Its text; a list where several were given, True where none was."""
        texts = [word.text for word in self.values]
        return True if not texts else texts[0] if len(texts) == 1 else texts

    @property
    def unset(self) -> tuple[str, ...]:
        """Variables without a value in it."""
        return tuple(name for word in self.values for name in word.unset)


@dataclass(slots=True)
class Options:
    """All that a command line says; of an option said twice the last counts."""

    options: dict[str, Option] = field(default_factory=dict)
    twice: list[tuple[Option, Option]] = field(default_factory=list)
    """Options with two different values: the first value, and the one that counts."""
    positional: list[Word] = field(default_factory=list)
    open: list[Word] = field(default_factory=list)
    """Variables without a value that may stand for any options."""

    def add(self, option: Option) -> None:
        """Take one more."""
        before = self.options.get(option.name)
        if before is not None and before.value != option.value:
            self.twice.append((before, option))
        self.options[option.name] = option


def parse(words: Sequence[Word], table: str) -> Options:
    """`--x 1 --y=2 --flag`, as argparse understands it."""
    aliases = ALIASES.get(table, {})
    result = Options()
    parsed: list[tuple[str, Source, list[Word]]] = []
    for word in words:
        if _is_option(word.text, aliases):
            flag, equals, value = word.text.partition("=")
            name = flag.lstrip("-").replace("-", "_")
            source = replace(word.source, text=flag)
            parsed.append(
                (aliases.get(name, name), source, [word.with_text(value)] if equals else [])
            )
        elif is_open(word) and not (parsed and not parsed[-1][2]):
            result.open.append(word)
        elif parsed:
            parsed[-1][2].append(word)
        else:
            result.positional.append(word)
    for name, source, values in parsed:
        text = " ".join([source.text, *(shlex.quote(word.text) for word in values)])
        result.add(Option(name, tuple(values), replace(source, text=text)))
    return result


def is_open(word: Word) -> bool:
    """Return whether nothing but variables without a value stands here, for any number of words."""
    return bool(word.unset) and not word.text and not word.source.text.startswith(('"', "'"))


def _is_option(text: str, aliases: Mapping[str, str]) -> bool:
    if text.startswith("--"):
        return len(text) > 2
    if not text.startswith("-") or _NUMBER.match(text):
        return False
    return text.lstrip("-").partition("=")[0] in aliases


def overrides(words: Sequence[Word]) -> Options:
    """Hydra's `x.y=1`, `+x.y=1`, `++x.y=1`, `~x.y`; its own options, such as `--config-name`."""
    result = Options()
    own: Word | None = None
    for word in words:
        if own is not None:
            result.add(Option(own.text, (word,), own.source, "--"))
            own = None
        elif word.text.startswith("-"):
            flag, equals, value = word.text.partition("=")
            if equals:
                result.add(Option(flag, (word.with_text(value),), word.source, "--"))
            else:
                own = word if flag in _HYDRA_OPTIONS else None
        elif (match := _OVERRIDE.match(word.text)) and (match[3] is not None or match[1] == "~"):
            value = (match[3] or "").strip("'\"")
            result.add(Option(match[2], (word.with_text(value),), word.source, match[1]))
        elif is_open(word):
            result.open.append(word)
        elif word.text:
            result.positional.append(word)
    return result


_HYDRA_OPTIONS = frozenset(
    {"--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd", "--package", "-p"}
)
