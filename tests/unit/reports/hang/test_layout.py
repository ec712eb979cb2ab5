"""Where boxes and arrows are: recorded for some graphs, and what holds for any."""

from __future__ import annotations

import random
import re

import pytest

from grpo_doctor_reports.hang.graph import Box, Graph, Link
from grpo_doctor_reports.hang.layout import draw
from tests.unit.reports.recorded import check


def test_boxes_and_arrows_are_placed_as_recorded() -> None:
    check("hang/placed.txt")


@pytest.mark.parametrize("seed", range(10))
def test_an_arrow_begins_and_ends_on_the_borders_that_face_each_other(seed: int) -> None:
    dice = random.Random(seed)
    boxes = tuple(
        Box(f"{depth}.{at}", "box", dice.choice(["", "detail"]), True, False, depth)
        for depth in range(4)
        for at in range(3)
    )
    links = tuple(
        Link(source.key, target.key, dice.choice(["", "recv"]))
        for source, target in (dice.sample(boxes, 2) for _ in range(20))
    )
    drawing = draw(Graph(boxes, links, ()))
    assert drawing is not None
    placed = {item.box.key: item for item in drawing.boxes}
    for link, arrow in zip(links, drawing.arrows, strict=True):
        points = re.findall(r"(-?[\d.]+) (-?[\d.]+)", arrow.path)
        start, end = float(points[0][1]), float(points[-1][1])
        source, target = placed[link.source], placed[link.target]
        if source.y != target.y:
            assert (start, end) == (
                (source.y + source.height, target.y)
                if source.y < target.y
                else (source.y, target.y + target.height)
            )
        assert drawing.left <= arrow.left < arrow.right <= drawing.left + drawing.width


def test_a_picture_is_told_by_its_first_twenty_waits() -> None:
    links = tuple(Link(f"a{at}", "b", "recv" if at == 0 else "") for at in range(21))
    boxes = tuple(
        Box(name, name, "", True, False, 0) for name in [*(f"a{n}" for n in range(21)), "b"]
    )
    drawing = draw(Graph(boxes, links, ()))
    assert drawing is not None
    sentences = drawing.sentence.split("; ")
    assert sentences[:2] == ["a0 waits for b (recv)", "a1 waits for b"]
    assert len(sentences) == 20
