"""Where boxes stand: who waits above what it waits for, a cycle below all of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from grpo_doctor_reports.hang.graph import Box, Graph, Link
from grpo_doctor_reports.hang.layout import BOX_WIDTH, SIDEWAYS_GAP, Drawing, PlacedBox, draw

MARGIN, GAP, BETWEEN = 4, 36, 62
LOW = 2 * 12 + 18  # a box with one line of words


def box(key: str, depth: int = 0, detail: str = "", *, guilty: bool = False) -> Box:
    return Box(key, key, detail, is_process=True, culprit=guilty, depth=depth)


def ring(size: int) -> list[Box]:
    return [Box(f"r{at}", f"r{at}", "", True, True, 0, in_cycle=True) for at in range(size)]


def drawn(*boxes: Box, links: tuple[tuple[str, str], ...] = ()) -> Drawing:
    cycle = tuple(member.key for member in boxes if member.in_cycle)
    drawing = draw(Graph(boxes, tuple(Link(*ends, "") for ends in links), cycle))
    assert drawing is not None
    return drawing


def places(drawing: Drawing) -> dict[str, tuple[float, float]]:
    return {placed.box.key: (placed.x, placed.y) for placed in drawing.boxes}


def test_a_box_alone_is_as_large_as_its_drawing() -> None:
    drawing = drawn(box("a"))
    assert places(drawing) == {"a": (MARGIN, MARGIN)}
    assert (drawing.left, drawing.width) == (0, BOX_WIDTH + 2 * MARGIN)
    assert drawing.height == LOW + 2 * MARGIN
    assert drawing.sentence == "a"


def test_rows_are_centred_the_deepest_first_and_apart() -> None:
    drawing = drawn(box("a"), box("b", 1), box("c", 1), links=(("b", "a"), ("c", "a")))
    second = MARGIN + LOW + BETWEEN
    assert places(drawing) == {
        "b": (MARGIN, MARGIN),
        "c": (MARGIN + BOX_WIDTH + GAP, MARGIN),
        "a": (MARGIN + (BOX_WIDTH + GAP) / 2, second),
    }
    assert drawing.width == 2 * BOX_WIDTH + GAP + 2 * MARGIN
    assert drawing.height == second + LOW + MARGIN
    assert drawing.sentence == "b waits for a; c waits for a"


def test_the_next_row_is_below_the_highest_box_of_this_one() -> None:
    words = "a stack frame that takes two lines of a box"
    drawing = drawn(box("b", 1), box("c", 1, words), box("a"))
    high = LOW + 2 * 15
    assert places(drawing)["a"][1] == MARGIN + high + BETWEEN


def test_a_box_stands_near_to_what_it_waits_for() -> None:
    ends = [box("a"), box("b"), box("c")]
    above = [box("d", 1), box("e", 1), box("f", 1)]
    crossed = (("d", "c"), ("e", "b"), ("f", "a"))
    drawing = places(drawn(*ends, *above, links=crossed))
    assert drawing["f"][0] == drawing["a"][0] < drawing["e"][0] < drawing["d"][0] == drawing["c"][0]


def test_a_box_of_several_waits_stands_at_their_mean() -> None:
    ends = [box("a"), box("b"), box("c")]
    above = [box("d", 1), box("e", 1)]
    drawing = places(drawn(*ends, *above, links=(("d", "a"), ("d", "c"), ("e", "a"))))
    assert drawing["e"][0] < drawing["d"][0]


def test_of_boxes_that_wait_alike_the_culprit_comes_first_then_the_alphabet() -> None:
    drawing = places(drawn(box("c"), box("b"), box("d", guilty=True)))
    assert sorted(drawing, key=lambda key: drawing[key][0]) == ["d", "b", "c"]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_cycle_of_up_to_four_is_a_row_with_room_for_the_way_back(size: int) -> None:
    drawing = drawn(*ring(size))
    step = BOX_WIDTH + SIDEWAYS_GAP
    assert places(drawing) == {f"r{at}": (MARGIN + at * step, MARGIN) for at in range(size)}
    assert drawing.height == MARGIN + LOW + 44 + MARGIN
    assert drawing.width == (size - 1) * step + BOX_WIDTH + 2 * MARGIN


@pytest.mark.parametrize(("size", "columns"), [(5, 3), (6, 3), (7, 4), (8, 4)])
def test_a_longer_cycle_is_a_loop_of_two_rows_clockwise(size: int, columns: int) -> None:
    drawing = drawn(*ring(size))
    step, second = BOX_WIDTH + SIDEWAYS_GAP, MARGIN + LOW + BETWEEN
    upper = {f"r{at}": (MARGIN + at * step, MARGIN) for at in range(columns)}
    back = {
        f"r{columns + at}": (MARGIN + (columns - 1 - at) * step, second)
        for at in range(size - columns)
    }
    assert places(drawing) == {**upper, **back}
    assert drawing.height == second + LOW + MARGIN


def test_who_waits_for_a_cycle_stands_above_it() -> None:
    waiters = [box("x", 1), box("y", 1)]
    drawing = drawn(*ring(2), *waiters, links=(("x", "r1"), ("y", "r0")))
    at = places(drawing)
    assert at["y"][1] == at["x"][1] == MARGIN
    assert at["r0"][1] == at["r1"][1] == MARGIN + LOW + BETWEEN
    assert at["y"][0] < at["x"][0]  # as what they wait for
    middle = drawing.left + drawing.width / 2
    assert (at["y"][0] + at["x"][0] + BOX_WIDTH) / 2 == middle
    assert (at["r0"][0] + at["r1"][0] + BOX_WIDTH) / 2 == middle


def test_a_cycle_below_a_wider_row_is_in_its_middle() -> None:
    drawing = drawn(*ring(1), *[box(f"w{at}", 1) for at in range(4)])
    (alone,) = [placed for placed in drawing.boxes if placed.box.in_cycle]
    assert alone.middle == drawing.left + drawing.width / 2


def test_the_drawing_is_as_wide_as_what_goes_around_it() -> None:
    column = [box("a", 2), box("b", 1), box("c")]
    drawing = drawn(*column, links=(("a", "c"), ("a", "b"), ("b", "c")))
    assert drawing.left == 0
    assert drawing.width == MARGIN + BOX_WIDTH + 20 + 4 + 4  # lane, words beside it, margin
    shifted = draw(
        Graph(
            (box("a", 2), box("b", 1), box("b2", 1), box("c"), box("c2"), box("a2", 2)),
            (Link("a", "c", "recv"), Link("b", "c", ""), Link("b2", "c2", "")),
            (),
        )
    )
    assert shifted is not None
    assert shifted.left < 0
    assert shifted.left + shifted.width == 2 * BOX_WIDTH + GAP + 2 * MARGIN


def lines(placed: PlacedBox) -> list[str]:
    return [text for _, text in (*placed.label, *placed.detail)]


def test_words_stand_below_each_other_inside_their_box() -> None:
    name, frame = "ranks 0-16, 18-63 on gpu-001", "all_reduce (distributed_c10d.py:3252)"
    (placed,) = drawn(box(name, detail=frame)).boxes
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
    drawing = draw(Graph(boxes, links, ()))
    assert drawing is not None
    sentences = drawing.sentence.split("; ")
    assert sentences[:2] == ["a0 waits for b (recv)", "a1 waits for b"]
    assert len(sentences) == 20
