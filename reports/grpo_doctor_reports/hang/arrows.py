"""The arrows of the wait-for graph, between boxes that have their places.

A wait of the next row goes straight; one that would cross other rows goes around them in a lane
beside them; within a row it goes sideways to the next box, or below the row.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from grpo_doctor_reports.hang.graph import Box, Graph, Link

BOX_WIDTH: Final = 206
SMALL_LINE: Final = 15
SIDEWAYS_GAP: Final = 132  # room for what is waited for, between boxes side by side
WAY_BACK: Final = 44  # how far an arrow swings below its row
ONE_ROW_CYCLE: Final = 4
_LANE: Final = 20
_MOST_LANES: Final = 4  # on a side; more share them
_APART: Final = 34  # the way there and the way back of two boxes
_LINK_CHARACTERS: Final = 28
_SIDEWAYS_CHARACTERS: Final = 17
_CHARACTER_WIDTH: Final = 6.4
_MOST_LINES: Final = 2


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """A box with its corner, its size and its words in lines."""

    box: Box
    x: float
    y: float
    width: float
    height: float
    label: tuple[tuple[float, str], ...]  # (baseline, text)
    detail: tuple[tuple[float, str], ...]

    @property
    def middle(self) -> float:
        """The horizontal middle."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Label:
    """Words on an arrow: their background, and the baseline of each line."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[tuple[float, str], ...]

    @property
    def middle(self) -> float:
        """The horizontal middle."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line from a waiter to what it waits for; `path` as SVG has it."""

    path: str
    label: Label | None
    in_cycle: bool
    left: float  # how far line and label reach
    right: float


@dataclass(frozen=True, slots=True)
class _Line:
    """A path, where its label stands (`x` is its left end, middle or right end by `anchor`)."""

    path: str
    x: float
    y: float
    anchor: float = 0.5
    characters: int = _LINK_CHARACTERS


def make_arrows(graph: Graph, placed: Mapping[str, PlacedBox]) -> tuple[Arrow, ...]:
    """Return an arrow for each link of the graph."""
    both_ways = {(link.target, link.source) for link in graph.links}
    lanes: dict[bool, int] = {}
    arrows = []
    for link in graph.links:
        source, target = placed[link.source], placed[link.target]
        between = [box for box in placed.values() if _is_between(box, source, target)]
        if between:
            on_right = _goes_right(source, target, placed)
            lanes[on_right] = lanes.get(on_right, -1) + 1
            line = _around(source, target, between, on_right, lanes[on_right] % _MOST_LANES)
        elif abs(source.y - target.y) >= 1:
            line = _straight(source, target, (link.source, link.target) in both_ways)
        elif _next_to(source, target) and (source.x < target.x or len(graph.cycle) > ONE_ROW_CYCLE):
            line = _sideways(source, target)
        else:
            line = _below(source, target)
        arrows.append(_arrow(link, line, graph.cycle))
    return tuple(arrows)


def _is_between(box: PlacedBox, source: PlacedBox, target: PlacedBox) -> bool:
    low, high = sorted((source.y, target.y))
    return low + 1 < box.y < high - 1


def _next_to(source: PlacedBox, target: PlacedBox) -> bool:
    return abs(source.x - target.x) <= BOX_WIDTH + SIDEWAYS_GAP + 1


def _goes_right(source: PlacedBox, target: PlacedBox, placed: Mapping[str, PlacedBox]) -> bool:
    middle = (
        min(box.x for box in placed.values()) + max(box.x + box.width for box in placed.values())
    ) / 2
    return source.middle + target.middle >= 2 * middle - 1


def _ends(source: PlacedBox, target: PlacedBox) -> tuple[float, float]:
    if source.y < target.y:
        return source.y + source.height, target.y
    return source.y, target.y + target.height


def _straight(source: PlacedBox, target: PlacedBox, both_ways: bool) -> _Line:
    start, end = _ends(source, target)
    aside = (_APART if source.y < target.y else -_APART) if both_ways else 0
    x1, x2, middle = source.middle + aside, target.middle + aside, (start + end) / 2
    path = f"M{x1:.1f} {start:.1f}C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {end:.1f}"
    beside = (0.0 if aside > 0 else 1.0) if both_ways else 0.5
    return _Line(path, (x1 + x2) / 2, middle, beside)


def _around(
    source: PlacedBox, target: PlacedBox, between: list[PlacedBox], on_right: bool, lane: int
) -> _Line:
    """Beside everything between, the lanes next to each other."""
    out = _LANE * (lane + 1)
    x = max(b.x + b.width for b in between) + out if on_right else min(b.x for b in between) - out
    start, end = _ends(source, target)
    nearest, farthest = ((min, max), (max, min))[source.y > target.y]
    first = nearest(b.y if source.y < target.y else b.y + b.height for b in between)
    last = farthest(b.y + b.height if source.y < target.y else b.y for b in between)
    path = (
        f"M{source.middle:.1f} {start:.1f}"
        f"C{source.middle:.1f} {first:.1f} {x:.1f} {start:.1f} {x:.1f} {first:.1f}"
        f"L{x:.1f} {last:.1f}"
        f"C{x:.1f} {end:.1f} {target.middle:.1f} {last:.1f} {target.middle:.1f} {end:.1f}"
    )
    beside, anchor = (4, 0.0) if on_right else (-4, 1.0)
    return _Line(path, x + beside, (first + last) / 2, anchor, _SIDEWAYS_CHARACTERS)


def _sideways(source: PlacedBox, target: PlacedBox) -> _Line:
    to_right = source.x < target.x
    start = source.x + source.width if to_right else source.x
    end = target.x if to_right else target.x + target.width
    y = source.y + min(source.height, target.height) / 2
    path = f"M{start:.1f} {y:.1f}L{end:.1f} {y:.1f}"
    return _Line(path, (start + end) / 2, y, characters=_SIDEWAYS_CHARACTERS)


def _below(source: PlacedBox, target: PlacedBox) -> _Line:
    start, end = source.y + source.height, target.y + target.height
    low = max(start, end) + WAY_BACK
    path = (
        f"M{source.middle:.1f} {start:.1f}C{source.middle:.1f} {low:.1f} "
        f"{target.middle:.1f} {low:.1f} {target.middle:.1f} {end:.1f}"
    )
    return _Line(path, (source.middle + target.middle) / 2, low - WAY_BACK / 4)


def _arrow(link: Link, line: _Line, cycle: tuple[str, ...]) -> Arrow:
    label = _label(link.label, line)
    return Arrow(
        path=line.path,
        label=label,
        in_cycle=link.source in cycle and link.target in cycle,
        left=min(line.x, label.x if label else line.x) - 4,
        right=max(line.x, label.x + label.width if label else line.x) + 4,
    )


def _label(text: str, line: _Line) -> Label | None:
    lines = wrapped(text, line.characters)
    if not lines:
        return None
    width = _CHARACTER_WIDTH * max(map(len, lines)) + 8
    height = SMALL_LINE * len(lines) + 4
    top = line.y - height / 2
    placed = tuple((top + at * SMALL_LINE + 12.5, words) for at, words in enumerate(lines))
    return Label(line.x - line.anchor * width, top, width, height, placed)


def wrapped(text: str, characters: int) -> list[str]:
    """Return at most two lines of at most so many characters, the rest as an ellipsis."""
    return textwrap.wrap(text, characters, max_lines=_MOST_LINES, placeholder=" …")
