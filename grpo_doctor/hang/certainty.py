"""How certain a verdict is, in three words, and what each word was worth on recorded jobs.

`python -m tests.corpus worth` counts `WORTH` again: right cause and ranks, of verdicts on recorded
jobs as they were and with parts of the evidence removed.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from grpo_doctor.hang.verdict import Verdict

Certainty = Literal["proven", "likely", "possible"]


class Worth(NamedTuple):
    """How many verdicts with a word were right, of how many."""

    right: int
    verdicts: int

    @property
    def share(self) -> float:
        """The share of right verdicts, 0 to 1."""
        return self.right / self.verdicts if self.verdicts else 0.0


WORTH: Final[dict[Certainty, Worth]] = {
    "proven": Worth(502, 504),
    "likely": Worth(677, 706),
    "possible": Worth(29, 57),
}


def at_most(verdict: Verdict, most: Certainty) -> Verdict:
    """Return the verdict, no more certain than `most`."""
    words: tuple[Certainty, ...] = tuple(WORTH)
    said = next((word for word in words if word == verdict.certainty), most)
    return with_worth(verdict, words[max(words.index(said), words.index(most))])


def with_worth(verdict: Verdict, certainty: str) -> Verdict:
    """Return the verdict with a word of certainty, and as a number the share that was right."""
    worth = next((WORTH[word] for word in WORTH if word == certainty), None)
    share = 0.0 if worth is None else round(worth.share, 3)
    return msgspec.structs.replace(verdict, certainty=certainty, confidence=share)
