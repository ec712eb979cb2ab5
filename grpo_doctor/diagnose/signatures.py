"""Messages that are known, with what they mean: `signatures.json`, a row and an example each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from itertools import islice
from typing import Literal

import msgspec

from grpo_doctor import knobs
from grpo_doctor.diagnose.errors import NOTED
from grpo_doctor.diagnose.literals import may_match
from grpo_doctor.diagnose.model import Finding, line_at

_KNOB = re.compile(r"\{(\w+\.\w+)\}")
_LONGEST_PART = 200
_MOST = 200  # places of one message that are looked at
_RANK_OF_WARNINGS = 86


class Signature(msgspec.Struct, frozen=True):
    """A message and its meaning. One of class `fact` is shown, and is no cause.

    Attributes:
        pattern: regular expression; its named groups fill `says` and `fix`.
        also: patterns of which each must be somewhere in the text.
        unless: patterns of which none may be.
        certainty: what the message is worth: `proven` where it states the cause itself.
        rank: which of several comes first: causes before their effects, the smallest first.
        fix: steps; `{vllm.mode}` stands for the setting's name in the user's framework.
        example: a line that it must match, and no other signature of a smaller rank.
    """

    name: str
    cls: str
    pattern: str
    certainty: Literal["proven", "likely", "possible"]
    rank: int
    says: str
    fix: tuple[str, ...]
    example: str
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    logged: bool = False  # a line of a log, whatever its level
    larger: tuple[str, str] | None = None  # the first of these groups is the larger number
    next: str = ""


@cache
def signatures() -> tuple[Signature, ...]:
    """Return all of them, by rank."""
    text = resources.files(__package__).joinpath("signatures.json").read_bytes()
    rows = msgspec.json.decode(text, type=tuple[Signature, ...])
    return tuple(sorted(rows, key=lambda row: (row.rank, row.name)))


def findings(
    text: str, of_text: str, framework: str, *, ended: bool
) -> Iterator[tuple[int, Finding]]:
    """Yield what the signatures in a text say, with their rank; `of_text` are its `letters`.

    Warnings and slow settings are no cause where an error `ended` it, nor of an end not shown.
    """
    for each in signatures():
        if not may_match(each.pattern, of_text):
            continue
        found = _found(each, text)
        if found is None or not all(re.search(other, text) for other in each.also):
            continue
        if any(re.search(other, text) for other in each.unless):
            continue
        values = {k: (v or "").strip()[:_LONGEST_PART] for k, v in found.groupdict().items()}
        filled = [
            re.sub(r"\{(\w+)\}", lambda word: values.get(word[1], word[0]), named(words, framework))  # noqa: B023
            for words in (each.says, each.next, *each.fix)
        ]
        at = line_at(text, found.start())
        cls, rank = each.cls, each.rank
        warned = cls != "fact" and not each.logged and _noted(text, found)
        if ended and (warned or cls == "slow"):  # neither ends a program
            rank = _RANK_OF_WARNINGS
        if warned and (ended or cls in ("crash", "oom")):
            cls, filled[0] = "fact", f"a warning, which ended nothing: {at[1][:200]}"
        yield rank, Finding(each.name, cls, each.certainty, filled[0], *at, filled[2:], filled[1])


def _found(signature: Signature, text: str) -> re.Match[str] | None:
    """Return the first place of a message that is no warning, else its first place."""
    first = None
    for match in islice(re.finditer(signature.pattern, text), _MOST):
        if not _holds(signature, match):
            continue
        if not _noted(text, match):
            return match
        first = first or match
    return first


def _noted(text: str, found: re.Match[str]) -> bool:
    return bool(NOTED.search(text, text.rfind("\n", 0, found.start()) + 1, found.start()))


def _holds(signature: Signature, found: re.Match[str]) -> bool:
    first, second = map(float, found.group(*signature.larger)) if signature.larger else (1, 0)
    return first > second


def named(text: str, framework: str) -> str:
    """Return a text with this framework's names of settings, as for `{vllm.mode}`."""
    return _KNOB.sub(lambda found: _name(framework, found[1]), text)


def _name(framework: str, knob: str) -> str:
    """Return the option's name in the framework; else the setting's own last word."""
    rows = [row for row in knobs.FRAMEWORKS.get(framework, ()) if row.knob == knob]
    if not rows:
        section, _, word = knob.partition(".")
        return f"{word} offload" if section == "offload" else word
    flags = knobs.syntax_of(framework) == "flags"
    return f"--{rows[-1].key}" if flags else rows[-1].key
