"""All recorded jobs through today's `diagnose`, in two processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.corpus import store
from tests.corpus.items import Item, folders_in, read_items
from tests.corpus.score import Answer, answer
from tests.corpus.truth import current

BATCH = 12
JOBS = 2
_T = TypeVar("_T")
_Part = TypeVar("_Part")


def replay_folders(
    places: Sequence[Path], only: Sequence[str], seed: int, jobs: int = JOBS
) -> list[Answer]:
    """What is said of the bundles in these folders."""
    return _ordered(over_folders(answer, places, only, seed, jobs))


def replay_stored(only: Sequence[str] = (), jobs: int = JOBS) -> list[Answer]:
    """What is said of the jobs in the repository."""
    return _ordered(over_stored(answer, only, jobs))


def over_folders(
    ask: Callable[[Item], _T], places: Sequence[Path], only: Sequence[str], seed: int, jobs: int
) -> list[_T]:
    """What `ask`, a function of a module, says of each bundle in these folders."""
    folders = folders_in(places)
    parts = [folders[begin : begin + BATCH] for begin in range(0, len(folders), BATCH)]
    return _together(partial(_of_folders, ask=ask, only=tuple(only), seed=seed), parts, jobs)


def over_stored(ask: Callable[[Item], _T], only: Sequence[str] = (), jobs: int = JOBS) -> list[_T]:
    """What `ask`, a function of a module, says of each job in the repository."""
    largest_first = sorted(store.archives(), key=lambda path: -path.stat().st_size)
    return _together(partial(_of_archive, ask=ask, only=tuple(only)), largest_first, jobs)


def _of_folders(
    folders: Sequence[Path], ask: Callable[[Item], _T], only: Sequence[str], seed: int
) -> list[_T]:
    return [ask(item) for item in _today(read_items(folders, seed), only)]


def _of_archive(archive: Path, ask: Callable[[Item], _T], only: Sequence[str]) -> list[_T]:
    return [ask(item) for item in _today(store.items_of(archive), only)]


def _today(items: Iterable[Item], only: Sequence[str]) -> Iterator[Item]:
    """Those wanted, with their truth as it is declared today."""
    for item in items:
        now = Item(item.name, current(item.truth), item.evidences)
        if _wanted(now, only):
            yield now


def _wanted(item: Item, only: Sequence[str]) -> bool:
    """By a part of its name or its fault's, its family, its source or one of its classes."""
    truth = item.truth
    exact = {truth.family, truth.source, *truth.classes}
    names = (item.name, truth.fault)
    return not only or any(w in exact or any(w in name for name in names) for w in only)


def _together(work: Callable[[_Part], list[_T]], parts: Sequence[_Part], jobs: int) -> list[_T]:
    if jobs == 1 or len(parts) < 2:
        return [result for part in parts for result in work(part)]
    with ProcessPoolExecutor(jobs) as pool:
        return [result for results in pool.map(work, parts) for result in results]


def _ordered(answers: list[Answer]) -> list[Answer]:
    return sorted(answers, key=lambda answer: (answer.source, answer.family, answer.name))
