"""Words of a command line, each with where it stands, and commands made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grpo_doctor.launches.model import Source


@dataclass(frozen=True, slots=True)
class Word:
    """One word, variables replaced; `unset` names those that have no value here."""

    text: str
    source: Source
    unset: tuple[str, ...] = ()

    def with_text(self, text: str) -> Word:
        """Return another text at the same place."""
        return replace(self, text=text)


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words, and the environment that it or its script sets.

    `not_exported` are variables that its script sets for itself alone, and uses nowhere; `files`
    are the texts that it has written before, by name.
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Word] = field(default_factory=dict)
    not_exported: Mapping[str, Word] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def from_arguments(arguments: Sequence[str]) -> tuple[Word, ...]:
    """Words that a shell has already divided."""
    return tuple(Word(text, Source(text, argument=index)) for index, text in enumerate(arguments))
