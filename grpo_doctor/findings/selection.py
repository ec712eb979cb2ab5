"""Which rules to run: by id, id prefix, slug or family."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from grpo_doctor.errors import UsageError
from grpo_doctor.findings.rule import NotApplicable, Rule
from grpo_doctor.findings.rules import ALL
from grpo_doctor.findings.view import RuleFile

_IGNORED = NotApplicable("skipped by --ignore", left_out=True)
_NOT_SELECTED = NotApplicable("not in --select", left_out=True)


@dataclass(frozen=True, slots=True)
class Selection:
    """Rules to run, and those left out with the reason."""

    chosen: tuple[RuleFile, ...] = ALL
    left_out: tuple[tuple[Rule, NotApplicable], ...] = field(default=())


def choose(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Selection:
    """Return the rules that `select` names (all without it) less those that `ignore` names.

    Args:
        select: words such as `GD004`, `GD05` (all that begin so), `straggler-rank`, `learning`.
        ignore: the same.

    Raises:
        UsageError: a word that names no rule.
    """
    selected = _ids_of(select) if select else {rule.RULE.id for rule in ALL}
    ignored = _ids_of(ignore)
    chosen = tuple(r for r in ALL if r.RULE.id in selected - ignored)
    left_out = tuple(
        (r.RULE, _IGNORED if r.RULE.id in ignored else _NOT_SELECTED)
        for r in ALL
        if r not in chosen
    )
    return Selection(chosen, left_out)


def find(word: str) -> tuple[RuleFile, ...]:
    """Return the rules that one word names.

    Raises:
        UsageError: it names none; the message has the nearest word that does.
    """
    ids = _ids_of([word])
    return tuple(rule for rule in ALL if rule.RULE.id in ids)


def _ids_of(words: Sequence[str]) -> set[str]:
    named: set[str] = set()
    for word in words:
        ids = {rule.RULE.id for rule in ALL if _names(word, rule.RULE)}
        if not ids:
            raise UsageError(f"no rule is called {word!r}.{_nearest(word)}")
        named |= ids
    return named


def _names(word: str, rule: Rule) -> bool:
    upper = word.upper()
    prefix = upper.startswith("GD") and rule.id.startswith(upper)  # a whole id is its own prefix
    return prefix or word.lower() in (rule.slug, rule.family)


def _nearest(word: str) -> str:
    names = [name for r in ALL for name in (r.RULE.id, r.RULE.slug, r.RULE.family)]
    number = word.upper().removeprefix("GD")
    if number.isdigit():  # GD4 means GD004
        close = [name for name in names if name == f"GD{int(number):03}"]
    else:
        close = difflib.get_close_matches(word, names, n=1)
    return f" Did you mean {close[0]}?" if close else " `grpo-doctor rule` lists all."
