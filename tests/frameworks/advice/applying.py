"""Puts a printed fix into a command line, as a user would: nothing is known of what it means."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_LEFT_OUT = re.compile(r"\(remove (--[\w.-]+)\)")
_KEPT = "(in addition to its existing keys)"


class NotAFlagError(ValueError):
    """The fix is no option of this command; its text says what it is instead."""


def apply(command: Sequence[str], spelling: str) -> list[str]:
    """The command with the options that `spelling` prints, each in the place of the old one.

    Raises:
        NotAFlagError: where it prints anything but options of a command line.
    """
    words = list(command)
    for name in _LEFT_OUT.findall(spelling):
        words = _without(words, name)[0]
    text = _LEFT_OUT.sub("", spelling).strip()
    if _KEPT in text or (text and not text.startswith("--")):
        raise NotAFlagError(spelling)
    for option in _options(shlex.split(text)):
        name, *values = option
        words, index = _without(words, name)
        words[index:index] = [name, *values]
    return words


def _options(words: Sequence[str]) -> list[list[str]]:
    """Each option with its values: `--a 1 --b` as [[--a, 1], [--b]]."""
    options: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            options.append(word.split("=", 1))
        else:
            options[-1].append(word)
    return options


def _without(words: Sequence[str], name: str) -> tuple[list[str], int]:
    """The command without an option and its values, and where it stood; else its end."""
    for index, word in enumerate(words):
        if word == name or word.startswith(f"{name}="):
            end = index + 1
            while end < len(words) and not words[end].startswith("--"):
                end += 1
            end = end if word == name else index + 1
            return [*words[:index], *words[end:]], index
    return list(words), len(words)
