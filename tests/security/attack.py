"""Hostile inputs: each writes its files for a size, and gives the arguments for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Write = Callable[[Path, int], list[str]]
Texts = dict[str, tuple[int, Callable[[int], str]]]
"""By the name of an attack: the smallest of its three sizes, and the text of a size."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of input; `size` is the smallest of three that double."""

    name: str
    size: int
    write: Write


def in_file(name: str, command: str, texts: Texts) -> list[Attack]:
    """Attacks that are the text of one file, read by one command."""

    def writes(text: Callable[[int], str]) -> Write:
        def write(folder: Path, size: int) -> list[str]:
            (folder / name).write_text(text(size))
            return command.split()

        return write

    return [Attack(attack, size, writes(text)) for attack, (size, text) in texts.items()]


def by_name(sizes: dict[Write, int]) -> list[Attack]:
    """Attacks that are a function each, named as it is."""
    return [
        Attack(write.__name__.strip("_").replace("_", "-"), size, write)
        for write, size in sizes.items()
    ]
