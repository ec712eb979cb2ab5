"""Several predicted changes together: what each brings does not add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from grpo_doctor.whatif.edits import Change
from grpo_doctor.whatif.prediction import Ground, Prediction, predict_on
from grpo_doctor.whatif.replay import replay


def together(base: Ground, parts: Sequence[Prediction], what: str) -> Prediction:
    """Replays all changes at once; a change that several predictions have is made once."""
    return predict_on(
        base,
        joined(part.edits for part in parts),
        what,
        at_least=_version(parts, "at_least"),
        at_most=_version(parts, "at_most"),
        error=joint_error(base, [(part.edits, part.error) for part in parts]),
    )


def joined(lists: Iterable[Sequence[Change]]) -> tuple[Change, ...]:
    """All changes, each once, in their order."""
    found: dict[Change, None] = {}
    for changes in lists:
        found.update(dict.fromkeys(changes))
    return tuple(found)


def joint_error(base: Ground, parts: Sequence[tuple[Sequence[Change], float]]) -> float:
    """The laws' errors weighed by what each changes by itself, as a share of what all change.

    Laws are taken to be off independently of each other.
    """
    now = base.before.mean()
    alone = [(float(replay(base.model, changes).mean() - now), error) for changes, error in parts]
    every = sum(abs(change) for change, _ in alone)
    if not every:
        return max((error for _, error in alone), default=0.0)
    return float(np.sqrt(sum((error * change) ** 2 for change, error in alone))) / every


def _version(parts: Sequence[Prediction], which: str) -> tuple[Change, ...] | None:
    """All changes in their cautious or bold version; None where none has one."""
    if all(getattr(part, which) is None for part in parts):
        return None
    chosen = (getattr(part, which) for part in parts)
    return joined(
        part.edits if version is None else version
        for part, version in zip(parts, chosen, strict=True)
    )
