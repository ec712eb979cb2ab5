"""Groups of the same kind, as the tensor groups of a job are: what most of them do is what the rest
should do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from grpo_doctor.hang.model.matching.groups import Gathered
from grpo_doctor.hang.model.matching.history import History
from grpo_doctor.hang.model.matching.signatures import Signatures

NEAR = 64  # collectives that one group of a kind may be ahead of another; stages differ by more


class Families:
    """Which groups are siblings, and what they called."""

    def __init__(
        self,
        gathered: Mapping[str, Gathered],
        pasts: Mapping[str, History],
        signatures: Signatures,
    ) -> None:
        self._gathered, self._pasts, self._signatures = gathered, pasts, signatures
        kinds: dict[object, list[str]] = defaultdict(list)
        for key, one in gathered.items():
            if not one.group.inferred:
                kinds[_kind(one)].append(key)
        self._siblings = {key: same for same in kinds.values() for key in same}
        self._reached = {
            key: max((track.enqueued or 0 for track in one.tracks.values()), default=0)
            for key, one in gathered.items()
        }

    def siblings(self, key: str) -> list[str]:
        """The group itself, and others of its kind."""
        return self._siblings.get(key, [key])

    def of(self, rank: int, key: str) -> str | None:
        """The group of this kind that a rank is in."""
        if rank in self._gathered[key].tracks:
            return key
        return next((one for one in self.siblings(key) if rank in self._gathered[one].tracks), None)

    def usual(self, key: str, number: int) -> int | None:
        """The signature that most siblings have as this number; None where they do not agree."""
        called: Counter[int] = Counter()
        for sibling in self.siblings(key):
            if sibling != key:
                calls = self._pasts[sibling].calls.get(number, {})
                called.update({self._signatures.key(call) for call in calls.values()})
        most = called.most_common(2)
        if not most or (len(most) > 1 and most[0][1] == most[1][1]):
            return None
        return most[0][0]

    def is_near(self, sibling: str, number: int) -> bool:
        """Whether the group counts as the others of its kind do."""
        return abs(self._reached[sibling] - number) <= NEAR


def _kind(one: Gathered) -> object:
    """By description; where there is none, by the number that its members have for it."""
    group = one.group
    named = group.description or one.local_number
    return group.backend, named, len(group.members)
