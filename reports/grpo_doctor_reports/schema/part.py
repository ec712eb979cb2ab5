"""What every document is made of: parts that are written by us and read from anybody.

Reading goes in two steps. `_tamed` makes strings safe to show and numbers finite, guided by the
types; `msgspec.convert` then refuses what has the wrong type. So no renderer sees a terminal
escape, a NaN or a list where text belongs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import inspect

from grpo_doctor_reports.errors import DocumentError
from grpo_doctor_reports.text_safety import NAME_LIMIT, PROSE_LIMIT, clean, clean_block

_LIMIT, _KEEPS_LINES = "limit", "keeps_lines"
_LARGEST_INTEGER = 2**63
_DEEPEST = 40

Name = Annotated[str, msgspec.Meta(extra={_LIMIT: NAME_LIMIT})]
Prose = Annotated[str, msgspec.Meta(extra={_LIMIT: PROSE_LIMIT})]
Block = Annotated[str, msgspec.Meta(extra={_LIMIT: PROSE_LIMIT, _KEEPS_LINES: True})]
Numbers = list[float | None]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a document. Members that are absent or null have their defaults, so that a part
    of a document can be drawn too."""


Kind = TypeVar("Kind", bound=Part)
AnyDocument = Mapping[str, Any] | Part


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
        return msgspec.convert(_tamed(members, _type_of(kind), 0), kind)
    except msgspec.ValidationError as problem:
        what, _, path = str(problem).partition(" - at `$")
        where = clean(path.rstrip("`").lstrip(".")) or "it"
        raise DocumentError(
            f"The document is damaged: {where}: {clean(what)}. Write it again with `{command}`."
        ) from problem


def _check_schema(document: object, schema: int, command: str) -> None:
    if not isinstance(document, Mapping):
        raise DocumentError(f"The document is not a JSON object. Write it with `{command}`.")
    given = document.get("schema")
    if not isinstance(given, int) or isinstance(given, bool):
        raise DocumentError(
            "The document has no schema number, so it is not one of grpo-doctor's. "
            f"Write it with `{command}`."
        )
    if given == schema:
        return
    advice = (
        "Upgrade grpo-doctor to draw it." if given > schema else f"Write it again with `{command}`."
    )
    raise DocumentError(
        f"The document has schema {given}; this grpo-doctor draws schema {schema}. {advice}"
    )


@lru_cache(maxsize=16)
def _type_of(kind: type[Part]) -> inspect.Type:
    return inspect.type_info(kind)


def _tamed(value: Any, kind: inspect.Type, depth: int) -> Any:
    """`value` with safe strings and finite numbers; what has the wrong type stays as it is."""
    if isinstance(kind, inspect.UnionType):
        (kind,) = (part for part in kind.types if not isinstance(part, inspect.NoneType))
    extra: Mapping[str, Any] = {}
    if isinstance(kind, inspect.Metadata):
        extra, kind = kind.extra or {}, kind.type
    if isinstance(value, str):
        return _safe(value, extra) if isinstance(kind, inspect.StrType) else value
    if isinstance(value, (int, float)):
        is_number = isinstance(kind, (inspect.IntType, inspect.FloatType))
        return _finite(value, kind) if is_number and not isinstance(value, bool) else value
    return _tamed_parts(value, kind, depth) if depth < _DEEPEST else value


def _tamed_parts(value: Any, kind: inspect.Type, depth: int) -> Any:
    if isinstance(kind, inspect.StructType) and isinstance(value, Mapping):
        return _members(value, kind, depth)
    if isinstance(kind, inspect.DictType) and isinstance(value, Mapping):
        named = {
            clean(str(key)): _tamed(item, kind.value_type, depth + 1) for key, item in value.items()
        }
        keeps = _may_be_null(kind.value_type)
        return {key: item for key, item in named.items() if keeps or item is not None}
    if isinstance(kind, (inspect.ListType, inspect.VarTupleType)) and _is_row(value):
        item_type = kind.item_type
        row = [_tamed(item, item_type, depth + 1) for item in value]
        return row if _may_be_null(item_type) else [item for item in row if item is not None]
    return value


def _is_row(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _members(value: Mapping[str, Any], kind: inspect.StructType, depth: int) -> dict[str, Any]:
    """Those that the part has; nulls only where null says something."""
    members = {}
    for field in kind.fields:
        member = _tamed(value.get(field.encode_name), field.type, depth + 1)
        if member is not None or _may_be_null(field.type):
            members[field.encode_name] = member
    return members


def _may_be_null(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(isinstance(part, inspect.NoneType) for part in kind.types)
    return isinstance(kind, inspect.AnyType)


def _safe(text: str, extra: Mapping[str, Any]) -> str:
    limit = extra.get(_LIMIT, NAME_LIMIT)
    return clean_block(text, limit) if extra.get(_KEEPS_LINES) else clean(text, limit)


def _finite(value: float, kind: inspect.Type) -> float | None:
    if abs(value) > _LARGEST_INTEGER or math.isnan(value):  # also an int that no float can hold
        return None
    whole = isinstance(kind, inspect.IntType) and float(value).is_integer()
    return int(value) if whole else value
