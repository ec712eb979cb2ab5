"""All recorded jobs through today's `diagnose`, in two processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
Ask = Callable[[Item], Answer]
_T = TypeVar("_T")


def replay_folders(
    places: Sequence[Path], only: Sequence[str], seed: int, jobs: int = JOBS, ask: Ask = answer
) -> list[Answer]:
    """What is said of the bundles in these folders."""
    folders = folders_in(places)
    parts = [folders[begin : begin + BATCH] for begin in range(0, len(folders), BATCH)]
    return _together(partial(_of_folders, only=tuple(only), seed=seed, ask=ask), parts, jobs)


def replay_stored(only: Sequence[str] = (), jobs: int = JOBS, ask: Ask = answer) -> list[Answer]:
    """What is said of the jobs in the repository."""
    largest_first = sorted(store.archives(), key=lambda path: -path.stat().st_size)
    return _together(partial(_of_archive, only=tuple(only), ask=ask), largest_first, jobs)


def _of_folders(folders: Sequence[Path], only: Sequence[str], seed: int, ask: Ask) -> list[Answer]:
    return _answers(read_items(folders, seed), only, ask)


def _of_archive(archive: Path, only: Sequence[str], ask: Ask) -> list[Answer]:
    return _answers(store.items_of(archive), only, ask)


def _answers(items: Iterable[Item], only: Sequence[str], ask: Ask) -> list[Answer]:
    today = (Item(one.name, current(one.truth), one.evidences) for one in items)
    return [ask(one) for one in today if _wanted(one, only)]


def _wanted(item: Item, only: Sequence[str]) -> bool:
    """By a part of its name or its fault's, its family, its source or one of its classes."""
    truth = item.truth
    exact = {truth.family, truth.source, *truth.classes}
    names = (item.name, truth.fault)
    return not only or any(w in exact or any(w in name for name in names) for w in only)


def _together(work: Callable[[_T], list[Answer]], parts: Sequence[_T], jobs: int) -> list[Answer]:
    if jobs == 1 or len(parts) < 2:
        found = [one for part in parts for one in work(part)]
    else:
        with ProcessPoolExecutor(jobs) as pool:
            found = [one for answers in pool.map(work, parts) for one in answers]
    return sorted(found, key=lambda one: (one.source, one.family, one.name))
