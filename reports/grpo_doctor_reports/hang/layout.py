"""Where the boxes and arrows of the wait-for graph stand, in pixels.

Who waits stands above what it waits for, so that the culprits are at the bottom. A short cycle is a
row with the way back below it, a longer one a loop of two rows, clockwise. The same graph always
looks the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from grpo_doctor_reports.hang.arrows import (
    BOX_WIDTH,
    ONE_ROW_CYCLE,
    SIDEWAYS_GAP,
    SMALL_LINE,
    WAY_BACK,
    Arrow,
    PlacedBox,
    make_arrows,
    wrapped,
)
from grpo_doctor_reports.hang.graph import Box, Graph, Link

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
        centre = {box.key: _mean(_targets(box.key, graph.links, position)) for box in row}
        row.sort(key=lambda box: (centre[box.key], not box.guilty, box.label))
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
