"""What `${...}` and `$((...))` of a shell stand for, as far as the text alone says it."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

from grpo_doctor.launches.words import Word

Variables = Mapping[str, tuple[Word, ...]]
_PARTS = re.compile(
    r"[#!]?(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?])(?:\[(?P<index>[^\]]*)\])?"
    r"(?P<mark>:?[-=?+]|##?|%%?|//?|\^\^?|,,?|:)?(?P<more>.*)",
    re.DOTALL,
)
_NAME = re.compile(r"\$?\{?([A-Za-z_]\w*)\}?")
_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COUNTS_PARTS = re.compile(
    r"""echo\s+"?\$\{?(\w+)\}?"?\s*\|\s*"""
    r"""(?:tr\s+["']?,["']?\s+["']?(?:\\n|\s)["']?\s*\|\s*wc -[lw]|"""
    r"""awk\s+-F\s*["']?,["']?\s+'\{ ?print NF ?\}')"""
)
_CUTS: Mapping[str, Callable[[str, str], str]] = {
    "##": lambda value, plain: value.rpartition(plain)[2],
    "#": lambda value, plain: value.partition(plain)[2],
    "%%": lambda value, plain: value.partition(plain)[0],
    "%": lambda value, plain: value.rpartition(plain)[0],
}
_DEFAULTS = ("", "-", "=", ":-", ":=", "?", ":?")
_CASES: Mapping[str, Callable[[str], str]] = {
    "^^": str.upper,
    ",,": str.lower,
    "^": lambda value: value[:1].upper() + value[1:],
    ",": lambda value: value[:1].lower() + value[1:],
}
_LONGEST = 1 << 16  # text that a replacement makes
_MAX_LETTERS = 200  # of a sum that is worth working out


def braced(text: str) -> tuple[str | None, str, str, str]:
    """`X:-8` of `${X:-8}`: its name, the mark, what follows it, and the index of an array. The name
    is None where the value is unknown."""
    match = _PARTS.fullmatch(text)
    if match is None or text.startswith("!") or (match["more"] and not match["mark"]):
        return None, "", "", ""
    mark = match["mark"] or ""
    return (
        match["name"],
        mark.removeprefix(":") if mark == ":+" else mark,
        match["more"],
        match["index"] or "",
    )


def changed(value: str, mark: str, more: str) -> str | None:
    """`X##*/` of `${X##*/}` and the like; None where its pattern is not a plain one."""
    if mark in _DEFAULTS:
        return value
    if mark in _CASES and not more:
        return _CASES[mark](value)
    if mark in ("/", "//"):
        pattern, _, other = more.partition("/")
        is_plain = pattern and not set(pattern + other) & set("*?[$#%\\")
        is_plain = is_plain and len(value) + value.count(pattern) * len(other) <= _LONGEST
        return value.replace(pattern, other, -1 if mark == "//" else 1) if is_plain else None
    pattern = more.strip("'\"")
    plain = pattern.strip("*")
    if mark not in _CUTS or not plain or set(plain) & set("*?[$"):
        return None
    if "*" not in pattern:
        return value.removeprefix(plain) if mark[0] == "#" else value.removesuffix(plain)
    return _CUTS[mark](value, plain) if plain in value else value


def arithmetic(text: str, variables: Variables) -> str | None:
    """`A * 2` of `$((A * 2))`; None where a name has no number."""
    if len(text) > _MAX_LETTERS:
        return None

    def value(match: re.Match[str]) -> str:
        words = variables.get(match[1], ())
        return words[0].text if words and not words[0].unset else match[0]

    put_in = _NAME.sub(value, text).replace("/", "//")
    try:
        return str(_number(ast.parse(put_in.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def calculation(command: str, variables: Variables) -> str | None:
    """`expr A / B` of `$(expr A / B)`, and how many parts `echo $X | tr , \\n | wc -l` counts; None
    for any other command."""
    if (listed := _COUNTS_PARTS.fullmatch(command.strip())) is not None:
        words = variables.get(listed[1], ())
        known = words and not words[0].unset
        return str(len(words[0].text.split(","))) if known else None
    program, _, terms = command.strip().partition(" ")
    return arithmetic(terms.replace("\\*", "*"), variables) if program == "expr" else None


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and (apply := _ARITHMETIC.get(type(node.op))):
        return apply(_number(node.left), _number(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    raise ValueError(ast.dump(node)[:80])
