"""Groups of the same kind, as the tensor groups of a job are, and ranks of the same role in them:
what most of them do is what the rest should do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from grpo_doctor.hang.model.matching.groups import Gathered
from grpo_doctor.hang.model.matching.queues import UNKNOWN, Order, QueuedOp, order_of
from grpo_doctor.hang.model.matching.signatures import Signatures
from grpo_doctor.hang.model.matching.tracks import History

Role = tuple[tuple[str, int], ...]  # places in the groups that have transfers: a pipeline stage


class Families:
    """Which groups are siblings, what they called, and which ranks run the same program."""

    def __init__(
        self,
        gathered: Mapping[str, Gathered],
        pasts: Mapping[str, History],
        signatures: Signatures,
    ) -> None:
        self._gathered, self._pasts, self._signatures = gathered, pasts, signatures
        kinds: dict[object, list[str]] = defaultdict(list)
        for key, group in gathered.items():
            kinds[key if group.group.inferred else _kind(group)].append(key)
        self._siblings = {key: same for same in kinds.values() for key in same}
        self._transfers = {
            key: count
            for same in kinds.values()
            for key, count in _transfers({key: gathered[key] for key in same}).items()
        }
        of_transfers = {key for key, _ in self._transfers}
        places: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for key, group in gathered.items():
            for position, rank in enumerate(group.group.members):
                places[rank] += [(str(_kind(group)), position)] if key in of_transfers else []
        self._count_cache: dict[object, dict[int, int]] = {}
        self._roles: dict[int, Role] = {r: tuple(sorted(own)) for r, own in places.items()}

    def siblings(self, key: str) -> list[str]:
        """The group itself, and others of its kind."""
        return self._siblings.get(key, [key])

    def of(self, rank: int, key: str) -> str | None:
        """The group of this kind that a rank is in."""
        if rank in self._gathered[key].tracks:
            return key
        return next((s for s in self.siblings(key) if rank in self._gathered[s].tracks), None)

    def usual(self, key: str, number: int) -> int | None:
        """The signature that most siblings have as this number; None where they do not agree."""
        called: Counter[int] = Counter()
        for sibling in self.siblings(key):
            if sibling != key:
                calls = self._pasts[sibling].calls.get(number, {})
                called.update({self._signatures.key(call) for call in calls.values()})
        return most_common(called)

    def call_order(self, rank: int, key: str, number: int) -> Order | None:
        """When a rank called a collective; before all others where only that it did is known."""
        track = self._gathered[key].tracks.get(rank)
        if track is None:
            return None
        if number in track.calls:
            return order_of(track.calls[number][0])
        return UNKNOWN if track.done(number) else None

    def out_of_step(self, unit: QueuedOp, key: str | None) -> bool:
        """Whether a rank had called more or fewer collectives of this kind of group when it came to
        `unit` than most others of its role; with `key` None, more or fewer sends and receives.
        """
        keys = [k for k, rank in self._transfers if rank == unit.rank] if key is None else [key]
        for kind in keys:
            counts = self._counts(unit, kind, transfers=key is None)
            own = counts.get(unit.rank)
            usual = most_common(Counter(n for rank, n in counts.items() if rank != unit.rank))
            if own is not None and usual not in (None, own):
                return True
        return False

    def _counts(self, unit: QueuedOp, key: str, *, transfers: bool) -> Mapping[int, int]:
        """Return how many groups of one type each rank of this role had called when it came to
        `unit`, or to what groups of that type call so.
        """
        role = self._roles.get(unit.rank)
        slot = role, self.siblings(key)[0], self.siblings(unit.group)[0], unit.number, transfers
        if slot not in self._count_cache:
            self._count_cache[slot] = {
                rank: count
                for rank, other in self._roles.items()
                if other == role
                and (count := self._count(rank, key, unit, transfers=transfers)) is not None
            }
        return self._count_cache[slot]

    def _count(self, rank: int, key: str, unit: QueuedOp, *, transfers: bool) -> int | None:
        own_key, unit_key = self.of(rank, key), self.of(rank, unit.group)
        came = self.call_order(rank, unit_key, unit.number) if unit_key is not None else None
        if own_key is None or came is None or came == UNKNOWN:
            return None
        track = self._gathered[own_key].tracks[rank]
        if transfers:
            called = self._transfers.get((own_key, rank))
            later = len({entry.p2p_sequence for entry in track.p2p if order_of(entry) > came})
        else:
            called = track.enqueued
            later = sum(order_of(parts[0]) > came for parts in track.calls.values())
        return None if called is None else called - later


def most_common(counted: Counter[int]) -> int | None:
    """The most frequent one; None for a tie, or nothing."""
    top = counted.most_common(2)
    return top[0][0] if top and (len(top) == 1 or top[0][1] > top[1][1]) else None


def _kind(gathered: Gathered) -> object:
    """By description; where there is none, by the number that its members have for it."""
    group = gathered.group
    label = group.description or gathered.local_number
    return group.backend, label, len(group.members)


def _transfers(same: Mapping[str, Gathered]) -> dict[tuple[str, int], int]:
    """By group and rank, for groups of one kind. Those without a collective count nothing else,
    and the counter also knows of those that are over and were not dumped.
    """
    tracks = {(key, rank): t for key, group in same.items() for rank, t in group.tracks.items()}
    if not any(track.p2p for track in tracks.values()):
        return {}
    mixed = any(track.calls for track in tracks.values())
    return {
        position: max([0 if mixed else track.counter, *(entry.p2p_sequence for entry in track.p2p)])
        for position, track in tracks.items()
    }
