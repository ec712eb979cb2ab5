"""Real jobs that were recorded once, by family, held to what is known of each."""

from __future__ import annotations

from tests.corpus import known, store
from tests.corpus.items import Item
from tests.corpus.score import Answer, answer
from tests.corpus.truth import current


def items(family: str) -> list[Item]:
    """The jobs of one family, each with its truth as it is declared today."""
    stored = store.items_of(store.FOLDER / f"{family}.xz")
    return [Item(item.name, current(item.truth), item.evidences) for item in stored]


def held_to_the_truth(family: str) -> list[Answer]:
    """What is said of each job, after checking that no more of it is wrong than is known to be."""
    answers = [answer(item) for item in items(family)]
    wrong = known.wrong_of(answers)
    assert wrong == {name: marks for name, marks in known.known_wrong().items() if name in wrong}
    return answers
