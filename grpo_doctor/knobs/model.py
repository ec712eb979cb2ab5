"""What a setting is: one canonical name, and its name per framework and version range."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec

Syntax = Literal["flags", "switches", "hydra", "cli", "json", "python"]
"""`flags`: `--x true`; `switches`: `--x`, and nothing for false; `hydra`: `x=true`; `cli`: `--x`
and `--no-x`; `json`: `"x": true`, with dots for what lies deeper; `python`: `x=True`."""
Kind = Literal["bool", "int", "float", "str", "words"]
"""`words` is a text of several words that a command line takes one by one: `1.0 0.5`."""
Version = tuple[int, ...]

_NUMBER = re.compile(r"\d+")


@lru_cache(maxsize=1024)  # the table of knobs asks for the same few, 200 times a launch
def version_of(text: str | None) -> Version | None:
    """`"3.12.0.dev1"` as `(3, 12, 0)`; None where there is no version in the text."""
    if not text:
        return None
    numbers: list[int] = []
    for part in text.lstrip("v").split(".")[:3]:
        digits = _NUMBER.match(part)
        if digits is None:
            break
        numbers.append(int(digits.group()))
    return tuple(numbers + [0] * (3 - len(numbers))) if numbers else None


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting under its canonical name, such as `vllm.gpu_memory_utilization`."""

    name: str
    kind: Kind
    meaning: str


class Gate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A switch of its own that must be on for a value to count; 0 and `none` turn it off.

    `on` is what it is by default, and `value` the value where only the switch is set.
    """

    key: str
    on: bool
    value: Any


class Needs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings without effect while each of `parents` is known to have a value in `off`, or where
    there are values `on`, one that is none of them."""

    settings: tuple[str, ...]
    parents: tuple[str, ...]
    off: tuple[Any, ...] = ()
    on: tuple[Any, ...] = ()


class Spelling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A setting's name in one framework, from version `since` on and before version `until`.

    `default` is the value without the option, `later` the ones of newer versions, ascending; both
    are canonical. `values` are all (canonical, theirs) pairs where the two differ; of several for
    one value the first is written. `beside` is another option that must be set too if the value is
    neither off nor 0.
    """

    key: str
    knob: str = ""
    since: str = ""
    until: str | None = None
    default: Any = None
    later: dict[str, Any] = {}
    values: tuple[tuple[Any, Any], ...] = ()
    gate: Gate | None = None
    beside: dict[str, Any] = {}
    inside: str | None = None
    """The option takes JSON, and this is the key in it."""
    item: int | None = None
    """The option takes several values, and this is the place of ours: it is only read."""
    new: bool = False
    """Hydra: the configuration lacks the key, so it must be added."""
    why: str = ""
    """A remark for readers of the file."""

    def covers(self, version: Version) -> bool:
        """Return whether this version of the framework knows the name."""
        begins, ends = version_of(self.since), version_of(self.until)
        return (begins is None or version >= begins) and (ends is None or version < ends)

    def default_in(self, version: Version | None) -> Any:
        """Return the value without the option; the newest one where the version is unknown."""
        value = self.default
        for since, candidate in self.later.items():
            if version is None or version >= (version_of(since) or ()):
                value = candidate
        return value
