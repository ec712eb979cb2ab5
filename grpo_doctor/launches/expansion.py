"""What `${...}` and `$((...))` of a shell stand for, as far as the text alone says it."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

from grpo_doctor.launches.words import Word

Variables = Mapping[str, tuple[Word, ...]]
_PARTS = re.compile(
    r"(?P<length>#?)(?P<name>[A-Za-z_]\w*|[0-9@*#?])(?:\[(?P<index>[^\]]*)\])?(?P<suffix>.*)",
    re.DOTALL,
)
_OTHERWISE = re.compile(r":?([-=?+])(.*)", re.DOTALL)
_CUT = re.compile(r"(##?|%%?)(.*)", re.DOTALL)
_NAME = re.compile(r"\$?\{?([A-Za-z_]\w*)\}?")
_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CUTS: Mapping[str, Callable[[str, str], str]] = {
    "##": lambda value, plain: value.rpartition(plain)[2],
    "#": lambda value, plain: value.partition(plain)[2],
    "%%": lambda value, plain: value.partition(plain)[0],
    "%": lambda value, plain: value.rpartition(plain)[0],
}
_MAX_LETTERS = 200  # of a sum that is worth working out


def braced(text: str) -> tuple[str | None, str, bool]:
    """`X:-8` of `${X:-8}`: its name, the text that takes over where X is unset, and whether it is
    all of an array. The name is None where the value can't be told."""
    match = _PARTS.fullmatch(text)
    if match is None or match["length"]:
        return None, "", False
    name, suffix = match["name"], match["suffix"]
    is_array = match["index"] in ("@", "*")
    if not suffix:
        return name, "", is_array
    otherwise = _OTHERWISE.fullmatch(suffix)
    if otherwise is not None and otherwise[1] in "-=":
        return name, otherwise[2], is_array
    return None, "", False


def cut(text: str, variables: Variables) -> str | None:
    """`X##*/` of `${X##*/}`, where its pattern is a plain one; None for anything else."""
    match = _PARTS.fullmatch(text)
    how = _CUT.fullmatch(match["suffix"]) if match else None
    if match is None or how is None or match["name"] not in variables:
        return None
    value = variables[match["name"]][0].text
    mark, pattern = how[1], how[2].strip("'\"")
    plain = pattern.strip("*")
    if not plain or "*" in plain or "?" in plain:
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
        return words[0].text if words else match[0]

    put_in = _NAME.sub(value, text).replace("/", "//")
    try:
        return str(_number(ast.parse(put_in.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def calculation(command: str, variables: Variables) -> str | None:
    """`expr A / B` of `$(expr A / B)`; None for any other command."""
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
