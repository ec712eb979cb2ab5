"""Bundles into the repository: scrubbed, and held to what was said of them before that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tests.corpus import store
from tests.corpus.items import Item, folders_in, read_items
from tests.corpus.score import Answer, answer
from tests.corpus.scrub import scrubbed


class ChangedVerdictError(Exception):
    """Without this machine's paths something else is said of a job; the message says what."""


def pack(places: Sequence[Path], seed: int, folder: Path = store.FOLDER) -> dict[str, int]:
    """Stores the bundles in these folders; returns the sizes of the archives that have changed.

    Raises:
        ChangedVerdictError: scrubbing changes a verdict.
        UnknownTruthError: nobody says what is true of a bundle.
    """
    return store.add(_clean(read_items(folders_in(places), seed)), folder)


def _clean(items: Iterator[Item]) -> Iterator[Item]:
    for item in items:
        clean = msgspec.structs.replace(item, evidences=tuple(map(scrubbed, item.evidences)))
        before, after = answer(item), answer(clean)
        if _verdict(before) != _verdict(after):
            raise ChangedVerdictError(f"{item.name}: {before.summary} | {after.summary}")
        yield clean


def _verdict(answer: Answer) -> tuple[object, ...]:
    return answer.state, answer.cause, answer.culprits, answer.victims, answer.confidence
