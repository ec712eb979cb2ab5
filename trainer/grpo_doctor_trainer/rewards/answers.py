"""Finds the final answer in a text and reads it as plain text, a number, or a value with a unit."""

from __future__ import annotations

import re
from fractions import Fraction

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_NUMBER = re.compile(rf"[-+]?(?:{_DIGITS}(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{{1,2}}(?!\d)|/\d+)?%?")
# Fraction would gladly compute 10 ** 999999999 for a completion that says so.
_LONGEST_NUMBER = 60
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|operatorname)\{([^{}]*)\}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_WORD = re.compile(r"[^\W\d_]{3,}")
_FUNCTIONS = frozenset(
    (
        "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh",
        "tanh", "log", "exp", "sqrt", "max", "min", "gcd", "lcm", "mod", "det", "lim", "inf",
        "infty",
    )
)  # fmt: skip
_POWER = r"(?:\^?\{?-?[23²³]\}?)?"
_LATEX_UNIT = re.compile(
    rf"(.*[^\s~])[\s~\\,;!]*\\(?:text|mathrm)\{{([^{{}}]*)\}}({_POWER})\s*", re.DOTALL
)
_PLAIN_UNIT = re.compile(
    rf"([-+]?[$€£]?[\d.,/]+)(\s*)([A-Za-zµ]+(?:[ /][A-Za-z]+)*{_POWER})", re.DOTALL
)
# Only these may be so short: "2xy" and "2 x" are formulas.
_LETTER_UNITS = frozenset("mghslnjwv")
_SHORT_UNITS = frozenset(
    (
        "mm", "cm", "dm", "km", "mg", "kg", "ml", "cl", "dl", "ms", "ns", "hr", "hrs", "ft", "in",
        "mi", "lb", "lbs", "oz", "hz", "kw", "pa", "am", "pm", "gb", "mb", "kb", "tb",
    )
)  # fmt: skip
_SAME_UNITS = {
    "meter": "m", "metre": "m", "centimeter": "cm", "centimetre": "cm", "millimeter": "mm",
    "kilometer": "km", "kilometre": "km", "gram": "g", "kilogram": "kg", "second": "s", "sec": "s",
    "minute": "min", "hour": "h", "hr": "h", "liter": "l", "litre": "l", "inche": "in",
    "inch": "in", "feet": "ft", "foot": "ft", "mile": "mi", "pound": "lb", "degree": "°",
    "percent": "%", "dollar": "$", "unit": "", "square unit": "", "point": "",
}  # fmt: skip


def final_answer(text: str) -> str | None:
    r"""Finds what a text gives as its answer: `<answer>`, `\boxed{}`, or its last number."""
    if (marked := _marked(text)) is not None:
        return marked
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None


def solution_answer(solution: str) -> str:
    """Finds the answer in a solution, which is all of it unless it marks one."""
    if (marked := _marked(solution)) is not None:
        return marked
    return solution.rpartition("####")[2].strip()


def is_marked(text: str) -> bool:
    r"""Whether a text has an `<answer>` element or a `\boxed{}`."""
    return _marked(text) is not None


def is_maths(text: str) -> bool:
    """Whether a text may be a formula: it has no words, once units are taken off."""
    if _LETTERS.fullmatch(plain(text)):  # "no" is not n times o, and the same as "on"
        return False
    bare = _COMMAND.sub(" ", _TEXT_COMMAND.sub(r" \1 ", without_unit(text)[0]))
    return bool(bare.strip() or "\\" in text) and not any(
        word.casefold() not in _FUNCTIONS for word in _WORD.findall(bare)
    )


def plain(text: str) -> str:
    """Reduces a text to what counts in a comparison of texts."""
    joined = "".join(_TEXT_COMMAND.sub(r"\1", _bare(text)).split())
    return joined.rstrip("$.").lstrip("$").casefold()  # ".5" is not 5


def number(text: str) -> Fraction | None:
    """Reads a number: digits, thousands separators, a fraction, a percentage."""
    cleaned = plain(text).replace("{,}", ",").replace("\\%", "%").replace("\\$", "").lstrip("$€£")
    if len(cleaned) > _LONGEST_NUMBER or not _NUMBER.fullmatch(cleaned):
        return None
    try:
        value = Fraction(cleaned.replace(",", "").rstrip("%"))
    except (ValueError, ZeroDivisionError):
        return None
    return value / 100 if cleaned.endswith("%") else value


def same_number(candidate: str, expected: str) -> bool | None:
    """Compares two numbers; None where one of them is no number.

    Whole numbers must be equal, others to one part in a million (`1/3` and `0.333333`). A percent
    sign may be left out.

    Args:
        candidate: as text.
        expected: as text.
    """
    left, right = number(candidate), number(expected)
    if left is None or right is None:
        return None
    pairs = [(left, right)]
    if candidate.rstrip(" .$").endswith("%") != expected.rstrip(" .$").endswith("%"):
        pairs += [(left * 100, right), (left, right * 100)]
    return any(_close_enough(a, b) for a, b in pairs)


def _close_enough(left: Fraction, right: Fraction) -> bool:
    if left.denominator == right.denominator == 1:
        return left == right
    return abs(left - right) <= abs(right) / 1_000_000


def without_unit(text: str) -> tuple[str, str]:
    """Splits `5 cm`, `5\\text{ cm}` or `$5` into a value and a unit, empty if there is none."""
    bare = _bare(text)
    if match := _LATEX_UNIT.fullmatch(bare):
        value, unit = match[1], match[2] + match[3]
    elif (match := _PLAIN_UNIT.fullmatch(bare)) and _is_unit(match[3], match[2]):
        value, unit = match[1], match[3]
    else:
        return bare, ""
    # "2 \\text{or} 3" ends in a value, "x \\text{ is even}" in a sentence: no digit, no unit.
    return (value, _unit(unit)) if re.search(r"\d", value) else (bare, "")


def _is_unit(text: str, space: str) -> bool:
    first = re.split(r"[ /^{²³\d]", text)[0].casefold()
    if len(first) == 1:
        return bool(space) and first in _LETTER_UNITS
    return first in _SHORT_UNITS or (len(first) >= 3 and first not in _FUNCTIONS)


def _unit(text: str) -> str:
    cleaned = re.sub(r"[\s^{}.]+", " ", text).strip().casefold()
    cleaned = cleaned.replace("²", "2").replace("³", "3").replace(" 2", "2").replace(" 3", "3")
    singular = cleaned[:-1] if len(cleaned) > 3 and cleaned.endswith("s") else cleaned
    return _SAME_UNITS.get(singular, singular)


def _bare(text: str) -> str:
    """Takes off what only encloses a formula: `$`, `\\(`, `\\[` and the full stop."""
    bare = text.strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        inner = bare.removesuffix(".")
        if len(inner) > len(opening) and inner.startswith(opening) and inner.endswith(closing):
            bare = inner[len(opening) : -len(closing)].strip()
    return bare


def _marked(text: str) -> str | None:
    elements = _ANSWER.findall(text)
    if elements:
        boxed = _last_boxed(elements[-1])
        return (elements[-1] if boxed is None else boxed).strip()
    boxed = _last_boxed(text)
    return None if boxed is None else boxed.strip()


def _last_boxed(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    begin = start + len("\\boxed{")
    depth = 1
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position]
    return None
