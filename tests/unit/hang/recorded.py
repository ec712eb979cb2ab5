"""Real jobs that were recorded once, held to what is known of each and to every word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.corpus import known, said, store
from tests.corpus.items import Item
from tests.corpus.score import answer
from tests.corpus.truth import current


def replay_of(*patterns: str) -> Callable[[Path], None]:
    """A test of the archives with such names: those that tell most of a folder's subject."""
    archives = sorted({path for each in patterns for path in store.FOLDER.glob(f"{each}.xz")})

    @pytest.mark.parametrize("archive", archives, ids=lambda path: path.stem)
    def replay(archive: Path) -> None:
        held_to_the_truth(archive)

    return replay


def held_to_the_truth(archive: Path) -> None:
    """No more of its jobs is wrong than is known to be, and no word has changed."""
    stored = store.items_of(archive)
    jobs = [Item(item.name, current(item.truth), item.evidences) for item in stored]
    answers = [answer(job) for job in jobs]
    wrong = known.wrong_of(answers)
    assert wrong == {name: marks for name, marks in known.known_wrong().items() if name in wrong}
    calm = [row for row in answers if set(row.wanted.states) <= {"healthy", "slow"}]
    assert not [row.name for row in calm if row.state in ("stuck", "dead")]
    assert not [row.name for row in answers if set(row.culprits) & set(row.victims)]
    now = {name: line for job in jobs for name, line in said.lines(job).items()}
    before = {name: line for name, line in said.recorded().items() if name in now}
    assert now == before, "an intended change: python -m tests.corpus accept, and read its diff"
