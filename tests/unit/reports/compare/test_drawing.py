"""Two runs on one pair of axes: where their first and last steps are, and what the grid says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from grpo_doctor_reports.compare import HEIGHT, WIDTH, Steps, phase_bars, steps_drawing
from grpo_doctor_reports.schema.compare import read_comparison

LEFT, RIGHT, TOP, BOTTOM = 6, WIDTH - 6, 6, HEIGHT - 6


def drawn(before: dict[str, list[float]], after: dict[str, list[float]]) -> Steps:
    steps = {"before": before, "after": after}
    drawing = steps_drawing(read_comparison({"schema": 1, "steps": steps}))
    assert drawing is not None
    return drawing


def run(first: int, *seconds: float) -> dict[str, list[float]]:
    return {"step": [first + at for at in range(len(seconds))], "seconds": list(seconds)}


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]


def test_runs_begin_at_the_left_whatever_their_first_step_is() -> None:
    drawing = drawn(run(100, 1.0, 2.0), run(10, 5.0, 0.0, 2.5))
    assert points(drawing.after) == [(LEFT, TOP), (WIDTH / 2, BOTTOM), (RIGHT, HEIGHT / 2)]
    assert [x for x, _ in points(drawing.before)] == [LEFT, WIDTH / 2]  # half as many steps
    assert (drawing.first, drawing.last) == (10, 12)


def test_the_grid_has_zero_half_and_top_of_the_axis() -> None:
    drawing = drawn(run(1, 1.0, 1.0), run(1, 3.0, 4.0))
    assert drawing.top_s == 5.0
    assert drawing.marks == [(BOTTOM, 0.0), (HEIGHT / 2, 2.5), (TOP, 5.0)]


@pytest.mark.parametrize(
    ("longest_s", "top_s"),
    [(0.0, 1.0), (0.1, 0.1), (0.11, 0.2), (0.3, 0.5), (1.0, 1.0), (1.01, 2.0), (2.0, 2.0),
     (2.1, 5.0), (5.0, 5.0), (5.1, 10.0), (99.0, 100.0)],
)  # fmt: skip
def test_an_axis_ends_at_the_next_one_two_or_five(longest_s: float, top_s: float) -> None:
    for before, after in ((longest_s, 0.0), (0.0, longest_s)):
        assert drawn(run(1, before, 0.0), run(1, after, 0.0)).top_s == pytest.approx(top_s)


def test_steps_that_take_no_time_lie_on_the_ground() -> None:
    drawing = drawn(run(1, 0.0, 0.0), run(1, 0.0, -1.0))
    assert {y for path in (drawing.before, drawing.after) for _, y in points(path)} == {BOTTOM}


@pytest.mark.parametrize(
    ("before", "after", "is_drawn"), [(2, 2, True), (1, 2, False), (2, 1, False)]
)
def test_a_line_needs_two_steps_of_both_runs(before: int, after: int, is_drawn: bool) -> None:
    steps = {"before": run(1, *[1.0] * before), "after": run(1, *[1.0] * after)}
    drawing = steps_drawing(read_comparison({"schema": 1, "steps": steps}))
    assert (drawing is not None) == is_drawn


@pytest.mark.parametrize(("steps", "shown"), [(500, 500), (501, 251), (1_000, 500), (1_001, 334)])
def test_a_long_run_is_drawn_with_at_most_500_points(steps: int, shown: int) -> None:
    drawing = drawn(run(1, *[1.0] * steps), run(1, 1.0, 1.0))
    assert len(points(drawing.before)) == shown


def bars(*phases: tuple[float, float]) -> list[tuple[float, float]]:
    rows: list[dict[str, Any]] = [
        {"phase": "train", "before_s": before, "after_s": after} for before, after in phases
    ]
    return phase_bars(read_comparison({"schema": 1, "phases": rows}))


def test_bars_are_as_long_as_their_part_of_the_longest_in_either_run() -> None:
    assert bars((1.0, 4.0), (2.0, 0.0)) == [(25.0, 100.0), (50.0, 0.0)]
    assert bars((0.0, 0.0)) == [(0.0, 0.0)]
    assert bars() == []
