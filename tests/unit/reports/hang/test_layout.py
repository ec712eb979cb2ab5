"""Where boxes stand: who waits above what it waits for, a cycle below all of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from grpo_doctor_reports.hang.arrows import BOX_WIDTH, SIDEWAYS_GAP, PlacedBox
from grpo_doctor_reports.hang.graph import Box, Graph, Link
from grpo_doctor_reports.hang.layout import Drawing, draw

MARGIN, GAP, BETWEEN = 4, 36, 62
LOW = 2 * 12 + 18  # a box with one line of words


def box(key: str, depth: int = 0, detail: str = "", *, guilty: bool = False) -> Box:
    return Box(key, key, detail, is_process=True, guilty=guilty, depth=depth)


def ring(size: int) -> list[Box]:
    return [Box(f"r{at}", f"r{at}", "", True, True, 0, in_cycle=True) for at in range(size)]


def drawn(*boxes: Box, links: tuple[tuple[str, str], ...] = ()) -> Drawing:
    cycle = tuple(one.key for one in boxes if one.in_cycle)
    found = draw(Graph(boxes, tuple(Link(*ends, "") for ends in links), cycle))
    assert found is not None
    return found


def places(drawing: Drawing) -> dict[str, tuple[float, float]]:
    return {placed.box.key: (placed.x, placed.y) for placed in drawing.boxes}


def test_a_box_alone_is_as_large_as_its_drawing() -> None:
    found = drawn(box("a"))
    assert places(found) == {"a": (MARGIN, MARGIN)}
    assert (found.left, found.width) == (0, BOX_WIDTH + 2 * MARGIN)
    assert found.height == LOW + 2 * MARGIN
    assert found.sentence == "a"


def test_rows_are_centred_the_deepest_first_and_apart() -> None:
    found = drawn(box("a"), box("b", 1), box("c", 1), links=(("b", "a"), ("c", "a")))
    second = MARGIN + LOW + BETWEEN
    assert places(found) == {
        "b": (MARGIN, MARGIN),
        "c": (MARGIN + BOX_WIDTH + GAP, MARGIN),
        "a": (MARGIN + (BOX_WIDTH + GAP) / 2, second),
    }
    assert found.width == 2 * BOX_WIDTH + GAP + 2 * MARGIN
    assert found.height == second + LOW + MARGIN
    assert found.sentence == "b waits for a; c waits for a"


def test_the_next_row_is_below_the_highest_box_of_this_one() -> None:
    words = "a stack frame that takes two lines of a box"
    found = drawn(box("b", 1), box("c", 1, words), box("a"))
    high = LOW + 2 * 15
    assert places(found)["a"][1] == MARGIN + high + BETWEEN


def test_a_box_stands_near_to_what_it_waits_for() -> None:
    ends = [box("a"), box("b"), box("c")]
    above = [box("d", 1), box("e", 1), box("f", 1)]
    crossed = (("d", "c"), ("e", "b"), ("f", "a"))
    found = places(drawn(*ends, *above, links=crossed))
    assert found["f"][0] == found["a"][0] < found["e"][0] < found["d"][0] == found["c"][0]


def test_a_box_of_several_waits_stands_at_their_mean() -> None:
    ends = [box("a"), box("b"), box("c")]
    above = [box("d", 1), box("e", 1)]
    found = places(drawn(*ends, *above, links=(("d", "a"), ("d", "c"), ("e", "a"))))
    assert found["e"][0] < found["d"][0]


def test_of_boxes_that_wait_alike_the_guilty_comes_first_then_the_alphabet() -> None:
    found = places(drawn(box("c"), box("b"), box("d", guilty=True)))
    assert sorted(found, key=lambda key: found[key][0]) == ["d", "b", "c"]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_cycle_of_up_to_four_is_a_row_with_room_for_the_way_back(size: int) -> None:
    found = drawn(*ring(size))
    step = BOX_WIDTH + SIDEWAYS_GAP
    assert places(found) == {f"r{at}": (MARGIN + at * step, MARGIN) for at in range(size)}
    assert found.height == MARGIN + LOW + 44 + MARGIN
    assert found.width == (size - 1) * step + BOX_WIDTH + 2 * MARGIN


@pytest.mark.parametrize(("size", "columns"), [(5, 3), (6, 3), (7, 4), (8, 4)])
def test_a_longer_cycle_is_a_loop_of_two_rows_clockwise(size: int, columns: int) -> None:
    found = drawn(*ring(size))
    step, second = BOX_WIDTH + SIDEWAYS_GAP, MARGIN + LOW + BETWEEN
    there = {f"r{at}": (MARGIN + at * step, MARGIN) for at in range(columns)}
    back = {
        f"r{columns + at}": (MARGIN + (columns - 1 - at) * step, second)
        for at in range(size - columns)
    }
    assert places(found) == {**there, **back}
    assert found.height == second + LOW + MARGIN


def test_who_waits_for_a_cycle_stands_above_it() -> None:
    waiters = [box("x", 1), box("y", 1)]
    found = drawn(*ring(2), *waiters, links=(("x", "r1"), ("y", "r0")))
    at = places(found)
    assert at["y"][1] == at["x"][1] == MARGIN
    assert at["r0"][1] == at["r1"][1] == MARGIN + LOW + BETWEEN
    assert at["y"][0] < at["x"][0]  # as what they wait for
    middle = found.left + found.width / 2
    assert (at["y"][0] + at["x"][0] + BOX_WIDTH) / 2 == middle
    assert (at["r0"][0] + at["r1"][0] + BOX_WIDTH) / 2 == middle


def test_a_cycle_below_a_wider_row_is_in_its_middle() -> None:
    found = drawn(*ring(1), *[box(f"w{at}", 1) for at in range(4)])
    (alone,) = [placed for placed in found.boxes if placed.box.in_cycle]
    assert alone.middle == found.left + found.width / 2


def test_the_drawing_is_as_wide_as_what_goes_around_it() -> None:
    column = [box("a", 2), box("b", 1), box("c")]
    found = drawn(*column, links=(("a", "c"), ("a", "b"), ("b", "c")))
    assert found.left == 0
    assert found.width == MARGIN + BOX_WIDTH + 20 + 4 + 4  # lane, words beside it, margin
    left = draw(
        Graph(
            (box("a", 2), box("b", 1), box("b2", 1), box("c"), box("c2"), box("a2", 2)),
            (Link("a", "c", "recv"), Link("b", "c", ""), Link("b2", "c2", "")),
            (),
        )
    )
    assert left is not None
    assert left.left < 0
    assert left.left + left.width == 2 * BOX_WIDTH + GAP + 2 * MARGIN


def lines(placed: PlacedBox) -> list[str]:
    return [text for _, text in (*placed.label, *placed.detail)]


def test_words_stand_below_each_other_inside_their_box() -> None:
    name, place = "ranks 0-16, 18-63 on gpu-001", "all_reduce (distributed_c10d.py:3252)"
    (placed,) = drawn(box(name, detail=place)).boxes
    assert lines(placed) == [
        "ranks 0-16, 18-63 on",
        "gpu-001",
        "all_reduce",
        "(distributed_c10d.py:3252)",
    ]
    baselines = [y for y, _ in (*placed.label, *placed.detail)]
    assert [after - before for before, after in pairwise(baselines)] == [18, 16, 15]
    assert baselines[0] == placed.y + 12 + 13
    assert placed.y + placed.height - baselines[-1] == 12 + 4
    assert placed.height == 24 + 2 * 18 + 2 * 15


def test_a_picture_is_told_by_its_first_twenty_waits() -> None:
    links = tuple(Link(f"a{at}", "b", "recv" if at == 0 else "") for at in range(21))
    boxes = (*(box(f"a{at}", 1) for at in range(21)), box("b"))
    found = draw(Graph(boxes, links, ()))
    assert found is not None
    told = found.sentence.split("; ")
    assert told[:2] == ["a0 waits for b (recv)", "a1 waits for b"]
    assert len(told) == 20
