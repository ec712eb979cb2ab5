"""Which of a report's fixes its reader follows, and what the report says they bring together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.case_studies.commandline import Flags, NotFlagsError, flags_in, followed

WORTH_PCT = -5.0


@dataclass(frozen=True)
class Followed:
    """One fix that the reader follows: the finding's id and title, and the fix as printed."""

    finding: str
    title: str
    spelling: str
    low: float
    mid: float
    high: float


@dataclass(frozen=True)
class Change:
    """A change of the step time in percent; negative is faster."""

    low: float
    mid: float
    high: float

    def holds(self, measured: float) -> bool:
        return self.low <= measured <= self.high


def worth_following(document: Mapping[str, Any]) -> list[Followed]:
    """Every fix that is a flag, keeps the mathematics and saves a twentieth.

    That is all the reader goes by: nothing here knows what ails the run. Where two fixes set the
    same flag, the graver finding's is taken.
    """
    chosen: list[Followed] = []
    used_names: set[str] = set()
    for finding in document["findings"]:
        for fix in finding["fixes"]:
            names = _flags(fix)
            if names and not names & used_names:
                used_names |= names
                change = fix["predicted"]
                chosen.append(
                    Followed(
                        finding["id"], finding["title"], fix["spelling"],
                        change["low"], change["mid"], change["high"],
                    )
                )  # fmt: skip
    return chosen


def _flags(fix: Mapping[str, Any]) -> set[str]:
    if not fix["predicted"] or fix["predicted"]["mid"] > WORTH_PCT or fix["safety"] != "same-math":
        return set()
    try:
        return set(flags_in(fix["spelling"].split()))
    except NotFlagsError:
        return set()


def all_followed(flags: Flags, fixes: Sequence[Followed]) -> Flags:
    """The command line after every fix."""
    for fix in fixes:
        flags = followed(flags, fix.spelling)
    return flags


def joint(document: Mapping[str, Any], fixes: Sequence[Followed]) -> Change | None:
    """What the document says of these fixes replayed together; none where it says nothing."""
    if len(fixes) == 1:
        return Change(fixes[0].low, fixes[0].mid, fixes[0].high)
    index_by_fix = {(f["finding"], f["spelling"]): f["index"] for f in document["whatif"]["fixes"]}
    indices = sorted(index_by_fix.get((fix.finding, fix.spelling), -1) for fix in fixes)
    for fix_set in document["whatif"]["sets"]:
        if sorted(fix_set["fixes"]) == indices:
            return Change(fix_set["low"], fix_set["mid"], fix_set["high"])
    return None
