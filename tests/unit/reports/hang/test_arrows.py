"""Arrows lead from who waits to what it waits for, and around all boxes between."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

import pytest

from grpo_doctor_reports.hang.graph import Box, Graph, Link
from grpo_doctor_reports.hang.layout import (
    BOX_WIDTH,
    SIDEWAYS_GAP,
    WAY_BACK,
    Arrow,
    PlacedBox,
    make_arrows,
)

HEIGHT = 40.0
LANE = 20.0


def box(key: str, x: float, y: float, height: float = HEIGHT) -> PlacedBox:
    return PlacedBox(Box(key, key, "", True, False, 0), x, y, BOX_WIDTH, height, (), ())


def arrows(
    boxes: Iterable[PlacedBox],
    *links: tuple[str, str],
    cycle: tuple[str, ...] = (),
    label: str = "",
) -> tuple[Arrow, ...]:
    placed = {item.box.key: item for item in boxes}
    graph = Graph(
        tuple(item.box for item in placed.values()),
        tuple(Link(*ends, label) for ends in links),
        cycle,
    )
    return make_arrows(graph, placed)


def points(arrow: Arrow) -> list[tuple[float, float]]:
    """The corners of a path: its ends and what bends it."""
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", arrow.path)]


COLUMN = [box("a", 0, 0), box("b", 0, 100), box("c", 0, 200)]


def test_a_wait_of_the_next_row_goes_from_edge_to_edge() -> None:
    down, up = arrows(COLUMN, ("a", "b"), ("c", "b"))
    assert (points(down)[0], points(down)[-1]) == ((103, 40), (103, 100))
    assert (points(up)[0], points(up)[-1]) == ((103, 200), (103, 140))


def test_the_way_there_and_the_way_back_lie_beside_each_other() -> None:
    down, up = arrows(COLUMN, ("a", "b"), ("b", "a"), label="recv")
    assert {x for x, _ in points(down)} == {103 + 34}
    assert {x for x, _ in points(up)} == {103 - 34}
    assert down.label is not None
    assert up.label is not None
    assert down.label.x == 103 + 34  # the words stand outside of both
    assert up.label.x + up.label.width == 103 - 34


def test_the_words_of_a_lone_wait_stand_on_its_middle() -> None:
    (down,) = arrows([box("a", 0, 0), box("b", 100, 100)], ("a", "b"), label="recv of fsdp")
    assert down.label is not None
    assert down.label.middle == (103 + 203) / 2
    assert down.label.y + down.label.height / 2 == (40 + 100) / 2
    ((baseline, words),) = down.label.lines
    assert words == "recv of fsdp"
    assert down.label.y < baseline < down.label.y + down.label.height


@pytest.mark.parametrize(("shift", "on_right"), [(0, True), (-30, False), (30, True)])
def test_a_wait_across_a_row_goes_around_it_on_the_nearer_side(shift: int, on_right: bool) -> None:
    """Of the middle of all that is drawn; from there to the right."""
    wide = [box("b", 0, 100), box("d", 242, 100)]
    middle = (242 + BOX_WIDTH) / 2 - BOX_WIDTH / 2 + shift
    ends = [box("a", middle, 0), box("c", middle, 200, 60)]
    for link, (start, first, last, end) in {
        ("a", "c"): (40, 100, 140, 200),
        ("c", "a"): (200, 140, 100, 40),
    }.items():
        (arrow,) = arrows([*wide, *ends], link, label="recv")
        beside = 242 + BOX_WIDTH + LANE if on_right else -LANE
        path = points(arrow)
        assert path[:1] == [(middle + BOX_WIDTH / 2, start)]
        assert path[3:5] == [(beside, first), (beside, last)]
        assert path[-1:] == [(middle + BOX_WIDTH / 2, end)]
        assert arrow.label is not None
        assert arrow.label.y + arrow.label.height / 2 == (first + last) / 2
        if on_right:
            assert arrow.label.x == beside + 4
            assert arrow.right == arrow.label.x + arrow.label.width + 4
        else:
            assert arrow.label.x + arrow.label.width == beside - 4
            assert arrow.left == arrow.label.x - 4


def test_a_wait_across_rows_spans_them_all() -> None:
    rows = [
        box("a", 0, 0),
        box("b", 0, 100, 60),
        box("e", 240, 110),
        box("c", 0, 200),
        box("d", 0, 300),
    ]
    down, up = arrows(rows, ("a", "d"), ("d", "a"))
    assert [y for _, y in points(down)[3:5]] == [100, 240]
    assert [y for _, y in points(up)[3:5]] == [240, 100]


def test_waits_around_the_same_rows_have_lanes_of_their_own_up_to_four() -> None:
    five = arrows(COLUMN, *[("a", "c")] * 5)
    beside = [points(arrow)[3][0] - BOX_WIDTH for arrow in five]
    assert beside == [20, 40, 60, 80, 20]


def test_lanes_are_counted_on_each_side() -> None:
    wide = [box("b", 0, 100), box("d", 242, 100)]
    ends = [box("a", 0, 0), box("c", 0, 200), box("e", 242, 0), box("f", 242, 200)]
    drawn = arrows([*wide, *ends], ("a", "c"), ("e", "f"), ("a", "c"), ("e", "f"))
    right = 242 + BOX_WIDTH
    assert [points(arrow)[3][0] for arrow in drawn] == [-20, right + 20, -40, right + 40]


APART = BOX_WIDTH + SIDEWAYS_GAP
ROW = [box("a", 0, 0), box("b", APART, 0, 60), box("c", 2 * APART, 0)]


def test_a_wait_for_the_next_of_a_row_goes_sideways() -> None:
    (arrow,) = arrows(ROW, ("a", "b"), label="recv")
    assert points(arrow) == [(BOX_WIDTH, 20), (APART, 20)]
    assert arrow.label is not None
    assert arrow.label.middle == (BOX_WIDTH + APART) / 2


@pytest.mark.parametrize("ends", [("b", "a"), ("a", "c"), ("c", "a")])
def test_any_other_wait_of_a_row_swings_below_it(ends: tuple[str, str]) -> None:
    (arrow,) = arrows(ROW, ends, label="recv")
    by_name = {item.box.key: item for item in ROW}
    source, target = (by_name[end] for end in ends)
    lowest = max(source.height, target.height) + WAY_BACK
    assert points(arrow) == [
        (source.middle, source.height), (source.middle, lowest),
        (target.middle, lowest), (target.middle, target.height),
    ]  # fmt: skip
    assert arrow.label is not None
    assert arrow.label.middle == (source.middle + target.middle) / 2
    assert arrow.label.y + arrow.label.height / 2 == lowest - WAY_BACK / 4


@pytest.mark.parametrize(("size", "sideways"), [(4, False), (5, True)])
def test_the_lower_row_of_a_long_cycle_goes_back_sideways(size: int, sideways: bool) -> None:
    (arrow,) = arrows(ROW, ("b", "a"), cycle=tuple("abcdefgh"[:size]))
    assert (len(points(arrow)) == 2) == sideways
    if sideways:
        assert points(arrow) == [(APART, 20), (BOX_WIDTH, 20)]


def test_an_arrow_is_of_the_cycle_if_both_ends_are() -> None:
    drawn = arrows(ROW, ("a", "b"), ("b", "c"), ("c", "a"), cycle=("a", "b"))
    assert [arrow.in_cycle for arrow in drawn] == [True, False, False]


def test_words_are_cut_to_two_lines() -> None:
    (short, none), long = (
        arrows(COLUMN, ("a", "b"), label="all_gather of fsdp in the weight synchronisation")
        + arrows(COLUMN, ("a", "b")),
        arrows(COLUMN, ("a", "b"), label="word " * 40)[0],
    )
    assert none.label is None
    assert (none.left, none.right) == (103 - 4, 103 + 4)
    assert short.label is not None
    assert [words for _, words in short.label.lines] == [
        "all_gather of fsdp in the", "weight synchronisation",
    ]  # fmt: skip
    (first, _), (second, _) = short.label.lines
    assert second - first == 15
    assert short.label.height == 2 * 15 + 4
    assert long.label is not None
    assert len(long.label.lines) == 2
    assert long.label.lines[1][1].endswith(" …")


@pytest.mark.parametrize("seed", range(10))
def test_an_arrow_begins_and_ends_on_the_borders_that_face_each_other(seed: int) -> None:
    dice = random.Random(seed)
    rows = [
        [box(f"{row}.{at}", 240.0 * at, 100.0 * row, dice.choice([40.0, 60.0])) for at in range(3)]
        for row in range(4)
    ]
    placed = {item.box.key: item for row in rows for item in row}
    keys = sorted(placed)
    links = [(item, other) for item, other in (dice.sample(keys, 2) for _ in range(20))]
    for (item, other), arrow in zip(links, arrows(placed.values(), *links), strict=True):
        (_, start), (_, end) = points(arrow)[0], points(arrow)[-1]
        source, target = placed[item], placed[other]
        if source.y < target.y:
            assert (start, end) == (source.y + source.height, target.y)
        elif source.y > target.y:
            assert (start, end) == (source.y, target.y + target.height)
