"""Runs in pairs: two plain ones for the noise, and a plain one beside what is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

Run = TypeVar("Run")


def paired(
    pairs: int, parent: Path, run: Callable[[Path, bool], Run]
) -> Iterator[tuple[int, str, Run, Run]]:
    """The pair's number, its kind (`off_off` or `on_off`), and what its two runs gave.

    Args:
        pairs: how many of each kind.
        parent: where each run gets a folder of its own.
        run: one run, with what is measured switched on or not.

    Yields:
        The second of the results is the plain run's. Which of the two goes first alternates, so
        that drift does not favour one.
    """
    for pair in range(pairs):
        for kind, switched_on in (("off_off", False), ("on_off", True)):
            order = (switched_on, False) if pair % 2 else (False, switched_on)
            results = []
            for number, on in enumerate(order):
                folder = parent / f"{kind}-{pair}-{number}"
                folder.mkdir()
                results.append(run(folder, on))
            first, second = results
            yield (pair + 1, kind, first, second) if pair % 2 else (pair + 1, kind, second, first)
