"""Whether a test of a shell holds: `[ "$X" = gpu ]`, `[[ $N -gt 1 && -n $X ]]`, `case` patterns.

The answer is None where only running the script would show it. A variable that is never set is
empty for `-z` and `-n`, by which scripts give defaults, and unknown for any comparison.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from grpo_doctor.launches.words import Word

_NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-ge": operator.ge,
    "-lt": operator.lt, "-le": operator.le,
}  # fmt: skip
_TEXTS = ("=", "==", "!=", "=~")


def holds(words: Sequence[Word]) -> bool | None:
    """Return whether the test between the brackets holds."""
    parts = [_all_of(part) for part in _split(words, ("||", "-o"))]
    return True if True in parts else None if None in parts else False


def matches(word: Word, pattern: str) -> bool | None:
    """Return whether a word matches a pattern of `case`, or of `[[ x == pattern ]]`."""
    if pattern == "*":
        return True
    return None if _is_open(word) else fnmatchcase(word.text, pattern.strip("'\""))


def negated(value: bool | None) -> bool | None:
    """Return the opposite, as far as it is known."""
    return None if value is None else not value


def _all_of(words: list[Word]) -> bool | None:
    parts = [_one(part) for part in _split(words, ("&&", "-a"))]
    return False if False in parts else None if None in parts else True


def _split(words: Sequence[Word], marks: tuple[str, ...]) -> list[list[Word]]:
    parts: list[list[Word]] = [[]]
    for word in words:
        if word.text in marks and word.source.text in marks:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _one(words: list[Word]) -> bool | None:
    while words and words[0].text == "(" and words[-1].text == ")":
        words = words[1:-1]
    if words and words[0].text == "!":
        return negated(_one(words[1:]))
    if len(words) == 1:
        return _is_set(words[0])
    if len(words) == 2 and words[0].text in ("-n", "-z"):
        value = _is_set(words[1])
        return value if words[0].text == "-n" else negated(value)
    if len(words) == 3:
        return _compared(words[0], words[1].text, words[2])
    return None


def _is_set(word: Word) -> bool | None:
    """Return whether a word has any text; None for what a command would print."""
    if word.text or not word.unset:
        return bool(word.text)
    return False if all(name.isidentifier() or name.isdigit() for name in word.unset) else None


def _is_open(word: Word) -> bool:
    """Return whether a word is unknown: arguments that the script does not get are empty."""
    return not all(name.isdigit() for name in word.unset)


def _compared(left: Word, how: str, right: Word) -> bool | None:
    if _is_open(left) or _is_open(right):
        return None
    if how in _NUMBERS:
        try:
            return _NUMBERS[how](int(left.text), int(right.text))
        except ValueError:
            return None
    if how not in _TEXTS or how == "=~":
        return None
    equal = matches(left, right.source.text if "$" not in right.source.text else right.text)
    return equal if how != "!=" else negated(equal)
