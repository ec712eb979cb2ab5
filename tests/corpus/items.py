"""A recorded job: its evidence, of one host or of several, and what is true of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from grpo_doctor.hang.collection.bundle import ARCHIVES, EVIDENCE, bundles_in, read
from grpo_doctor_probes.evidence import Evidence
from tests.corpus.truth import of_bundle
from tests.faults.kept import Truth


class Item(msgspec.Struct, frozen=True):
    """One recorded job; `evidences` has more than one where it was looked at on several hosts."""

    name: str
    truth: Truth
    evidences: tuple[Evidence, ...]


def folders_in(places: Sequence[Path]) -> list[Path]:
    """The bundles in these folders; a folder of bundles is a job on several hosts."""
    return [
        entry
        for parent in places
        for entry in sorted(parent.iterdir())
        if _is_bundle(entry) or (entry.is_dir() and any(map(_is_bundle, entry.iterdir())))
    ]


def _is_bundle(path: Path) -> bool:
    return (path / EVIDENCE).exists() if path.is_dir() else path.name.endswith(ARCHIVES)


def read_items(folders: Sequence[Path], seed: int) -> Iterator[Item]:
    """The jobs in these bundles.

    Raises:
        UnknownTruthError: nobody says what is true of one.
    """
    for folder in folders:
        evidences = tuple(read(bundle) for bundle in bundles_in([folder]))
        yield Item(folder.name, of_bundle(folder, seed), evidences)
