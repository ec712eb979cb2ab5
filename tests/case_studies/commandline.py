"""A launch as its user typed it, and what becomes of it when a printed fix is followed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

Flags = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Launch:
    """A command line: variables set before it, the program's own words, flags with their values."""

    variables: dict[str, str]
    program: tuple[str, ...]
    flags: Flags


class NotFlagsError(Exception):
    """A fix that is advice to a person, and nothing that a command line can be changed by."""


def launch(text: str) -> Launch:
    """Reads a shell command, with lines continued by a backslash."""
    words = shlex.split(text.replace("\\\n", " "))
    variables: dict[str, str] = {}
    while words and "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    first = next((n for n, word in enumerate(words) if word.startswith("--")), len(words))
    return Launch(variables, tuple(words[:first]), flags_in(words[first:]))


def flags_in(words: list[str]) -> Flags:
    """Flags with the words up to the next flag.

    Raises:
        NotFlagsError: words before the first flag, or a flag without a value.
    """
    flags: Flags = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word.removeprefix("--")
            flags[name] = ()
        elif name:
            flags[name] += (word,)
        else:
            raise NotFlagsError(" ".join(words))
    if not flags or not all(flags.values()):
        raise NotFlagsError(" ".join(words))
    return flags


def followed(flags: Mapping[str, tuple[str, ...]], spelling: str) -> Flags:
    """The flags after a fix, as it was printed: no other knowledge goes into it.

    Raises:
        NotFlagsError: it was printed in words.
    """
    return {**flags, **flags_in(shlex.split(spelling))}


def spelled(flags: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The words of a command line."""
    return [word for name, values in flags.items() for word in (f"--{name}", *values)]
