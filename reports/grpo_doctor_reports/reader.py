"""Typed, bounded access to a document that anybody may have written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_doctor_reports.errors import DocumentError
from grpo_doctor_reports.text_safety import NAME_LIMIT, clean, clean_block

_LARGEST_INTEGER = 2**63


@dataclass(frozen=True, slots=True)
class Node:
    """A JSON object inside the document, with its path for error messages.

    Absent and null members read as "nothing there" (None, "", an empty list), because every part
    but the schema is optional. A member of the wrong type raises DocumentError.
    """

    members: Mapping[str, Any]
    path: str = ""

    def text(self, key: str, limit: int = NAME_LIMIT) -> str:
        """Return a member as one safe line."""
        return clean(self._raw_text(key), limit)

    def block(self, key: str) -> str:
        """Return a member as safe text that keeps its line breaks."""
        return clean_block(self._raw_text(key))

    def number(self, key: str) -> float | None:
        """Return a finite number or None."""
        return self._as_number(self.members.get(key), key)

    def integer(self, key: str, default: int = 0) -> int:
        """Return a whole number, `default` where there is none."""
        value = self.number(key)
        return default if value is None or abs(value) > _LARGEST_INTEGER else int(value)

    def flag(self, key: str) -> bool:
        """Return whether a member is true."""
        value = self.members.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self._wrong(key, "true or false", value)

    def node(self, key: str) -> Node:
        """Return a member object, empty where there is none."""
        return self._as_node(self.members.get(key), key)

    def nodes(self, key: str) -> list[Node]:
        """Return a member list of objects."""
        return [self._as_node(item, f"{key}[{at}]") for at, item in enumerate(self._list(key))]

    def texts(self, key: str, limit: int = NAME_LIMIT) -> list[str]:
        """Return a member list of strings as safe lines."""
        return [
            clean(self._as_text(item, f"{key}[{at}]"), limit)
            for at, item in enumerate(self._list(key))
        ]

    def numbers(self, key: str) -> list[float | None]:
        """Return a member list of numbers, None where one is null or not finite."""
        return [self._as_number(item, f"{key}[{at}]") for at, item in enumerate(self._list(key))]

    def integers(self, key: str) -> list[int]:
        """Return a member list of whole numbers."""
        return [int(value) for value in self.numbers(key) if value is not None]

    def number_rows(self, key: str) -> list[list[float | None]]:
        """Return a member list of lists of numbers."""
        rows = self._list(key)
        return [Node({"row": row}, self._at(f"{key}[{at}]")).numbers("row")
                for at, row in enumerate(rows)]  # fmt: skip

    def named(self) -> Iterator[tuple[str, str]]:
        """Yield each member's raw key and its safe name."""
        for key in self.members:
            yield key, clean(str(key))

    def __bool__(self) -> bool:
        """Return whether the object has members."""
        return bool(self.members)

    def _list(self, key: str) -> list[Any]:
        value = self.members.get(key)
        if value is None:
            return []
        if isinstance(value, (list, tuple)):
            return list(value)
        raise self._wrong(key, "a list", value)

    def _raw_text(self, key: str) -> str:
        return self._as_text(self.members.get(key), key)

    def _as_text(self, value: object, key: str) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        raise self._wrong(key, "text", value)

    def _as_number(self, value: object, key: str) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(key, "a number", value)
        if abs(value) > _LARGEST_INTEGER:  # also infinity; and an int that no float can hold
            return None
        return None if math.isnan(value) else value

    def _as_node(self, value: object, key: str) -> Node:
        if value is None:
            return Node({}, self._at(key))
        if isinstance(value, Mapping):
            return Node(value, self._at(key))
        raise self._wrong(key, "an object", value)

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _wrong(self, key: str, expected: str, value: object) -> DocumentError:
        return DocumentError(
            f"The report document is damaged: {clean(self._at(key))} should be {expected} "
            f"but is {type(value).__name__}. Write it again with `grpo-doctor report --json`."
        )
