"""Which options each framework's versions take, from lists that `python -m tests.wheels` makes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grpo_doctor.knobs.model import Version, version_of

FOLDER = Path(__file__).parent / "options"
_NEAR = 0.75  # of difflib: `num_generation` is near `num_generations`, `model_x` is near nothing
_LAST = (10**6,)


@dataclass(frozen=True, slots=True)
class OptionList:
    """The options of one command: `ranges` are versions from, and before, per option."""

    name: str
    read: tuple[str, ...]
    ranges: Mapping[str, tuple[tuple[Version, Version], ...]]

    def version(self, text: str | None) -> Version:
        """Return the version that a text names; the newest that was read where it names none."""
        return version_of(text) or version_of(self.read[-1]) or ()

    def takes(self, option: str, version: str | None) -> bool:
        """Return whether this version, the newest that was read where None, has the option."""
        number = self.version(version)
        return any(begin <= number < end for begin, end in self.ranges.get(option, ()))

    def ever(self, option: str) -> bool:
        """Return whether any version that was read has it."""
        return option in self.ranges

    def removed_in(self, option: str, version: str | None) -> str | None:
        """Return the first version without it, where that was not after `version`."""
        number = self.version(version)
        ends = [end for _, end in self.ranges.get(option, ()) if end <= number]
        return ".".join(map(str, max(ends))) if ends else None

    def added_in(self, option: str, version: str | None) -> str | None:
        """Return the first version with it, where that is after `version`."""
        number = self.version(version)
        begins = [begin for begin, _ in self.ranges.get(option, ()) if begin > number]
        return ".".join(map(str, min(begins))) if begins else None

    def span(self, option: str, version: str) -> tuple[str, str | None]:
        """Return since and until which version the option is there without a break: at `version`,
        or at first where that is empty. One that no list knows was always there."""
        number = version_of(version) or ()
        pairs = self.ranges.get(option, ())
        holds = (pair for pair in pairs if not number or pair[0] <= number < pair[1])
        begin, end = next(holds, ((), _LAST))
        since = ".".join(map(str, begin)) or self.read[0]
        return since, None if end == _LAST else ".".join(map(str, end))

    def nearest(self, option: str, version: str | None) -> str | None:
        """Return this version's option with the most similar name; None if none is similar."""
        valid = [name for name in self.ranges if self.takes(name, version)]
        close = difflib.get_close_matches(option, valid, n=1, cutoff=_NEAR)
        return close[0] if close else None

    def nearest_sibling(self, option: str, version: str | None) -> str | None:
        """Return the same for dotted names, among those that differ in their last part alone."""
        parent, _, last = option.rpartition(".")
        valid = {
            name.rpartition(".")[2]: name
            for name in self.ranges
            if name.rpartition(".")[0] == parent and self.takes(name, version)
        }
        close = difflib.get_close_matches(last, valid, n=1, cutoff=_NEAR)
        return valid[close[0]] if close else None

    def that_take(self, options: Iterable[str]) -> list[str]:
        """Return the versions that refuse fewest of the options, the oldest first."""
        known_options = [option for option in options if self.ever(option)]
        refused = [sum(not self.takes(o, version) for o in known_options) for version in self.read]
        fewest = min(refused)
        return [v for v, count in zip(self.read, refused, strict=True) if count == fewest]


@cache
def option_list(name: str) -> OptionList | None:
    """The list of one command, such as `ms-swift` or `trl-server`; None where there is none."""
    path = FOLDER / f"{name}.txt"
    if not path.is_file():
        return None
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(" ") for line in lines)
    ranges = {option: _ranges(text) for option, _, text in pairs}
    return OptionList(name, tuple(first.removeprefix("# ").split()), ranges)


@cache  # most options have one of a few texts
def _ranges(text: str) -> tuple[tuple[Version, Version], ...]:
    pairs = [each.split("..") for each in text.split() or [".."]]
    return tuple((version_of(begin) or (), version_of(end) or _LAST) for begin, end in pairs)
