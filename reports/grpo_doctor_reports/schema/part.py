"""What every document is made of: parts that are written by us and read from anybody.

Reading goes in two steps. `_tamer` makes strings safe to show and numbers finite, guided by the
types; `msgspec.convert` then refuses what has the wrong type. So no renderer sees a terminal
escape, a NaN or a list where text belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from math import isfinite
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import inspect

from grpo_doctor_reports.errors import DocumentError
from grpo_doctor_reports.formatting import NAME_LIMIT, PROSE_LIMIT, clean, clean_block

_LIMIT, _KEEPS_LINES = "limit", "keeps_lines"
_LARGEST_INTEGER = 2**63

Name = Annotated[str, msgspec.Meta(extra={_LIMIT: NAME_LIMIT})]
Prose = Annotated[str, msgspec.Meta(extra={_LIMIT: PROSE_LIMIT})]
Block = Annotated[str, msgspec.Meta(extra={_LIMIT: PROSE_LIMIT, _KEEPS_LINES: True})]
Numbers = list[float | None]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a document. Members that are absent or null have their defaults, so that a part
    of a document can be drawn too."""

    def damage(self) -> Iterable[str]:
        """What is wrong with it that no type says, each with its place."""
        return ()


Kind = TypeVar("Kind", bound=Part)
AnyDocument = Mapping[str, Any] | Part
_Tame = Callable[[Any], Any]


def read(document: AnyDocument, kind: type[Kind], schema: int, command: str) -> Kind:
    """The document as `kind`.

    Args:
        document: what was written, or read from JSON by any parser.
        kind: the type of the whole document.
        schema: the version that this package draws.
        command: what writes such documents, for messages: `grpo-doctor report --json`.

    Raises:
        DocumentError: it has another schema, or a part of the wrong type; the message has its path.
    """
    members = msgspec.to_builtins(document) if isinstance(document, Part) else document
    _check_schema(members, schema, command)
    try:
        parts = msgspec.convert(_tamer_of(kind)(members), kind)
    except msgspec.ValidationError as problem:
        reason, _, path = str(problem).partition(" - at `$")
        part = clean(path.rstrip("`").lstrip(".")) or "it"
        raise _damaged(f"{part}: {clean(reason)}", command) from problem
    for damage in parts.damage():
        raise _damaged(damage, command)
    return parts


def _damaged(damage: str, command: str) -> DocumentError:
    return DocumentError(f"The document is damaged: {damage}. Write it again with `{command}`.")


def _check_schema(document: object, schema: int, command: str) -> None:
    if not isinstance(document, Mapping):
        raise DocumentError(f"The document is not a JSON object. Write it with `{command}`.")
    version = document.get("schema")
    if not isinstance(version, int) or isinstance(version, bool):
        raise DocumentError(
            "The document has no schema number, so it is not one of grpo-doctor's. "
            f"Write it with `{command}`."
        )
    if version == schema:
        return
    is_newer = version > schema
    advice = "Upgrade grpo-doctor to draw it." if is_newer else f"Write it again with `{command}`."
    raise DocumentError(
        f"The document has schema {version}; this grpo-doctor draws schema {schema}. {advice}"
    )


@lru_cache(maxsize=16)
def _tamer_of(kind: type[Part]) -> _Tame:
    return _tamer(inspect.type_info(kind))


def _tamer(kind: inspect.Type) -> _Tame:
    """What makes a value of this type safe to show; what has the wrong type stays as it is.

    Made once for each type: a document of 64 ranks has some 400,000 numbers.
    """
    if isinstance(kind, inspect.UnionType):
        (kind,) = (part for part in kind.types if not isinstance(part, inspect.NoneType))
    extra: Mapping[str, Any] = {}
    if isinstance(kind, inspect.Metadata):
        extra, kind = kind.extra or {}, kind.type
    if isinstance(kind, inspect.StrType):
        cleaned = clean_block if extra.get(_KEEPS_LINES) else clean
        return partial(_safe, cleaned=cleaned, limit=extra.get(_LIMIT, NAME_LIMIT))
    if isinstance(kind, inspect.FloatType):
        return _finite
    if isinstance(kind, inspect.IntType):
        return _integer
    return _tamer_of_parts(kind)


def _tamer_of_parts(kind: inspect.Type) -> _Tame:
    if isinstance(kind, inspect.StructType):
        fields = [
            (field.encode_name, _tamer(field.type), _may_be_null(field.type))
            for field in kind.fields
        ]
        return partial(_members, fields=fields)
    if isinstance(kind, inspect.DictType):
        keeps_nulls = _may_be_null(kind.value_type)
        return partial(_mapping, tame=_tamer(kind.value_type), keeps_nulls=keeps_nulls)
    if isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        keeps_nulls = _may_be_null(kind.item_type)
        return partial(_row, tame=_tamer(kind.item_type), keeps_nulls=keeps_nulls)
    return _as_it_is


def _may_be_null(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(isinstance(part, inspect.NoneType) for part in kind.types)
    return isinstance(kind, inspect.AnyType)


def _members(value: Any, fields: Sequence[tuple[str, _Tame, bool]]) -> Any:
    """Those that the part has; nulls only where null says something."""
    if not isinstance(value, Mapping):
        return value
    members = {}
    for name, tame, keeps_null in fields:
        member = tame(value.get(name))
        if member is not None or keeps_null:
            members[name] = member
    return members


def _mapping(value: Any, tame: _Tame, keeps_nulls: bool) -> Any:
    if not isinstance(value, Mapping):
        return value
    members = {clean(str(key)): tame(item) for key, item in value.items()}
    return {key: item for key, item in members.items() if keeps_nulls or item is not None}


def _row(value: Any, tame: _Tame, keeps_nulls: bool) -> Any:
    if not isinstance(value, (list, tuple)):
        return value
    if _stays(value, tame):
        return list(value)
    row = [tame(item) for item in value]
    return row if keeps_nulls else [item for item in row if item is not None]


def _stays(row: Sequence[Any], tame: _Tame) -> bool:
    """Whether a row has nothing but numbers that stay as they are; it is looked at as a whole.

    The rows of a long run have millions: one call for each took half of writing a report.
    """
    kinds = _STAYING.get(tame)
    if not row or kinds is None or not kinds.issuperset(map(type, row)):
        return False
    within = min(row) >= -_LARGEST_INTEGER and max(row) <= _LARGEST_INTEGER
    return within and isfinite(sum(row))  # a NaN, which no order knows, is in the sum


def _safe(value: Any, cleaned: Callable[[str, int], str], limit: int) -> Any:
    return cleaned(value, limit) if isinstance(value, str) else value


def _finite(value: Any) -> Any:
    """None for NaN, infinity, and an int that no float can hold."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return value
    return value if -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER else None


def _integer(value: Any) -> Any:
    number = _finite(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _as_it_is(value: Any) -> Any:
    return value


_STAYING: dict[_Tame, frozenset[type]] = {
    _finite: frozenset({int, float}),
    _integer: frozenset({int}),
}
