"""What each word of certainty is worth: verdicts on recorded jobs, seen whole and seen worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import WORTH, Certainty, Verdict, Worth
from tests.corpus import replay
from tests.corpus.degraded import variants
from tests.corpus.items import Item
from tests.corpus.score import evidence_of, ranks_right
from tests.faults.kept import Truth


def judged(item: Item) -> list[tuple[str, bool]]:
    """Return the word and whether class and ranks are right, of each view with a named class."""
    complete = evidence_of(item)
    views = [complete, *(evidence for _, evidence in variants(complete))]
    verdicts = [diagnose(evidence).verdict for evidence in views]
    named = [verdict for verdict in verdicts if verdict.cause not in ("", "unknown")]
    return [
        (verdict.certainty, right)
        for verdict in named
        if (right := _right(item.truth, verdict)) is not None
    ]


def counted(only: Sequence[str] = ()) -> dict[Certainty, Worth]:
    """Return what `WORTH` should be, by all recorded jobs or those whose name has a part."""
    verdicts = [row for rows in replay.over_stored(judged, only) for row in rows]
    total = Counter(word for word, _ in verdicts)
    right = Counter(word for word, is_right in verdicts if is_right)
    return {word: Worth(right[word], total[word]) for word in WORTH}


def _right(truth: Truth, verdict: Verdict) -> bool | None:
    """Return whether ranks and class are right; None where the truth does not say."""
    if not truth.classes:  # an alarm on a healthy job is wrong, and nothing else is known
        return False if verdict.state in ("stuck", "dead") else None
    return verdict.cause in truth.classes and ranks_right(truth, verdict.culprits)
