"""YAML within bounds: an alias counts as all that it stands for, so that none can explode."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import yaml  # type: ignore[import-untyped]

from grpo_doctor.bounded import YAML


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's own safe one, which stops where a file is larger than any configuration."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._items = self._depth = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return one value; an alias gives the node that it names."""
        begin = self._items
        mark = self.peek_event().start_mark
        is_alias = self.check_event(yaml.AliasEvent)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        # An alias within what it names has no size yet.
        size = self._sizes.get(id(node), YAML.items) if is_alias else 1
        self._items += size
        if self._items > YAML.items or self._depth >= YAML.depth:
            most = f"{YAML.items:,} values, aliases expanded, or {YAML.depth} levels"
            raise yaml.MarkedYAMLError(problem=f"more than {most}", problem_mark=mark)
        if not is_alias:
            self._sizes[id(node)] = self._items - begin
        return node


@lru_cache(maxsize=4)  # of a copy of verl a third of a second, and check reads a launch twice
def read_yaml(text: str) -> tuple[Any, dict[str, int]]:
    """Return the value of a document, and the line of each key, dotted where it lies deeper.

    Raises:
        ValueError: it is damaged, or larger or deeper than any configuration.
    """
    if len(text) > YAML.bytes:
        raise ValueError(f"it is larger than {YAML.bytes >> 10} KiB")
    try:
        loader = _Loader(text)  # which refuses control characters
        node = loader.get_single_node()
        if node is None:
            return None, {}
        return loader.construct_document(node), dict(_lines("", node))
    except yaml.YAMLError as problem:
        raise ValueError(str(problem)) from problem


def _lines(path: str, node: Any) -> Iterator[tuple[str, int]]:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        name = f"{path}.{key.value}" if path else str(key.value)
        yield name, key.start_mark.line + 1
        yield from _lines(name, value)
