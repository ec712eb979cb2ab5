"""JSON of anything that was seen, whatever bytes other people's names are made of."""

from __future__ import annotations

from typing import Any

import msgspec

from grpo_doctor.hang.verdict import Diagnosis


def encoded_document(diagnosis: Diagnosis) -> bytes:
    """The document of `attach --json`, indented."""
    return msgspec.json.format(encoded(diagnosis.as_json()), indent=1) + b"\n"


def encoded(value: object) -> bytes:
    """`value` as JSON. Names that are no Unicode (`\\udcff` of undecodable bytes) get question
    marks in their place."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list | tuple):
        return [_encodable(one) for one in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in value.items()}
    return value
