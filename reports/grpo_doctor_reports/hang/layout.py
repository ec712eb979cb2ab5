"""Where the boxes and arrows of the wait-for graph are, in pixels.

A waiting rank is above what it waits for, so culprits are at the bottom. A short cycle is a row
with the way back below it, a longer one a loop of two rows, clockwise. An arrow to the next row
goes straight; one that would cross other rows goes around them in a lane next to them; within a row
it goes sideways to the next box, or below the row. The same graph always looks the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
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
    """Next to all boxes between, the lanes side by side."""
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


_GAP: Final = 36
_BETWEEN_ROWS: Final = 62
_PADDING: Final = 12
_LINE: Final = 18
_LABEL_CHARACTERS: Final = 24  # of 13 px in a box
_DETAIL_CHARACTERS: Final = 30  # of 11.5 px
_MARGIN: Final = 4


@dataclass(frozen=True, slots=True)
class Drawing:
    """Everything placed; `sentence` says the same to who cannot see it."""

    left: float
    width: float
    height: float
    boxes: tuple[PlacedBox, ...]
    arrows: tuple[Arrow, ...]
    sentence: str


def draw(graph: Graph) -> Drawing | None:
    """Return the placed graph, None if there is nothing in it."""
    if not graph.boxes:
        return None
    rows = _rows(graph)
    width = max(map(_row_width, rows)) if rows else 0.0
    loop = [box for key in graph.cycle for box in graph.boxes if box.key == key]
    width = max(width, _loop_width(loop))
    placed: dict[str, PlacedBox] = {}
    y = float(_MARGIN)
    for row in rows:
        placed.update(_place_row(row, width, y))
        y += max(_height(box) for box in row) + _BETWEEN_ROWS
    if loop:
        y = _place_loop(loop, width, y, placed)
    arrows = make_arrows(graph, placed)
    left = min([0.0, *(arrow.left for arrow in arrows)])
    right = max([width + 2 * _MARGIN, *(arrow.right for arrow in arrows)])
    height = y - _BETWEEN_ROWS + _MARGIN
    return Drawing(left, right - left, height, tuple(placed.values()), arrows, _sentence(graph))


def _rows(graph: Graph) -> list[list[Box]]:
    """Boxes outside of the cycle, deepest first; in a row near to what they wait for."""
    rows: dict[int, list[Box]] = {}
    for box in graph.boxes:
        if not box.in_cycle:
            rows.setdefault(box.depth, []).append(box)
    position: dict[str, float] = {key: float(at) for at, key in enumerate(graph.cycle)}
    for depth in sorted(rows):
        row = rows[depth]
        center = {box.key: _mean(_targets(box.key, graph.links, position)) for box in row}
        row.sort(key=lambda box: (center[box.key], not box.culprit, box.label))
        position.update({box.key: at - len(row) / 2 for at, box in enumerate(row)})
    return [rows[depth] for depth in sorted(rows, reverse=True)]


def _targets(key: str, links: tuple[Link, ...], position: dict[str, float]) -> list[float]:
    return [
        position[link.target] for link in links if link.source == key and link.target in position
    ]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _row_width(row: list[Box]) -> float:
    return len(row) * BOX_WIDTH + (len(row) - 1) * _GAP


def _columns(loop: list[Box]) -> int:
    return len(loop) if len(loop) <= ONE_ROW_CYCLE else (len(loop) + 1) // 2


def _loop_width(loop: list[Box]) -> float:
    columns = _columns(loop)
    return columns * BOX_WIDTH + (columns - 1) * SIDEWAYS_GAP if loop else 0.0


def _place_row(row: list[Box], width: float, y: float) -> Iterator[tuple[str, PlacedBox]]:
    x = _MARGIN + (width - _row_width(row)) / 2
    for box in row:
        yield box.key, _placed_box(box, x, y)
        x += BOX_WIDTH + _GAP


def _place_loop(loop: list[Box], width: float, y: float, placed: dict[str, PlacedBox]) -> float:
    """Upper row from left to right, lower row from right to left; returns the next free y."""
    columns = _columns(loop)
    left = _MARGIN + (width - _loop_width(loop)) / 2
    upper, lower = loop[:columns], loop[columns:]
    step = BOX_WIDTH + SIDEWAYS_GAP
    for at, box in enumerate(upper):
        placed[box.key] = _placed_box(box, left + at * step, y)
    y += max(map(_height, upper)) + _BETWEEN_ROWS
    if not lower:
        return y + WAY_BACK
    for at, box in enumerate(lower):
        placed[box.key] = _placed_box(box, left + (columns - 1 - at) * step, y)
    return y + max(map(_height, lower)) + _BETWEEN_ROWS


def _placed_box(box: Box, x: float, y: float) -> PlacedBox:
    label, detail = _lines(box)
    first = y + _PADDING + _LINE - 5
    labels = tuple((first + at * _LINE, text) for at, text in enumerate(label))
    below = y + _PADDING + len(label) * _LINE + SMALL_LINE - 4
    details = tuple((below + at * SMALL_LINE, text) for at, text in enumerate(detail))
    return PlacedBox(box, x, y, BOX_WIDTH, _height(box), labels, details)


def _lines(box: Box) -> tuple[list[str], list[str]]:
    return wrapped(box.label, _LABEL_CHARACTERS), wrapped(box.detail, _DETAIL_CHARACTERS)


def _height(box: Box) -> float:
    label, detail = _lines(box)
    return 2 * _PADDING + len(label) * _LINE + len(detail) * SMALL_LINE


def _sentence(graph: Graph) -> str:
    labels = {box.key: box.label for box in graph.boxes}
    waits = [
        f"{labels[link.source]} waits for {labels[link.target]}"
        f"{f' ({link.label})' if link.label else ''}"
        for link in graph.links[:20]
    ]
    return "; ".join(waits) or ", ".join(labels.values())
