"""Everything that blame is derived from, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_doctor.hang.matching.groups import Gathered
from grpo_doctor.hang.matching.history import History, continuation
from grpo_doctor.hang.matching.model import Cycle, Pair, Shift, Standing, Wait
from grpo_doctor.hang.matching.signatures import Signatures

RECENT = 400  # calls of a rank in a group, in which a round repeats if it ever does


@dataclass(frozen=True, slots=True)
class Scene:
    """Groups by `Group.key`, and what was found in them."""

    gathered: Mapping[str, Gathered]
    pasts: Mapping[str, History]
    signatures: Signatures
    heard: frozenset[int]
    standings: tuple[Standing, ...]
    pairs: tuple[Pair, ...]
    shifts: tuple[Shift, ...]
    waits: tuple[Wait, ...]
    cycles: tuple[Cycle, ...]

    def title(self, key: str) -> str:
        """A group in words."""
        return self.gathered[key].group.title()

    def novel(self, wait: Wait) -> bool:
        """Whether nobody had made this call, from this line, in this group before."""
        past = self.pasts[wait.group]
        mine = past.calls.get(wait.sequence, {}).get(wait.rank)
        if mine is None or wait.why == "p2p":
            return False
        return past.new(mine, wait.sequence)

    def as_before(self, wait: Wait) -> bool | None:
        """Whether the rank, over all its groups, came to this call as in earlier rounds. None where
        they do not tell, or where it is the usual call from another line.
        """
        made: list[tuple[int, str, int]] = []
        for key, past in self.pasts.items():
            track = self.gathered[key].tracks.get(wait.rank)
            for number, parts in list(track.calls.items())[-RECENT:] if track else ():
                created = parts[0].created_ns or 0
                made.append((created, key, past.calls[number][wait.rank]))
        made.sort(reverse=True)
        mine = self.pasts[wait.group].calls.get(wait.sequence, {}).get(wait.rank)
        if wait.since_ns is None or mine is None:
            return None
        order = [(key, call) for created, key, call in made if created < wait.since_ns]
        usual = continuation(order)
        if usual is None or usual[0] == wait.group:
            return True if usual == (wait.group, mine) else None
        return False
