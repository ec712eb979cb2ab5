"""Critical paths of the median and the longest step, with few segments."""

from __future__ import annotations

import itertools

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.critical import Segment
from grpo_doctor.document.views.critical import median_path, thinned, worst_path
from tests.build import TraceBuilder


def of_lengths(*seconds: float) -> TraceBuilder:
    build = TraceBuilder()
    for number, length in enumerate(seconds):
        build.step(0, number, 100.0 + 10 * number, {"rollout": 1.0, "train": length - 1})
    return build


def test_the_median_and_the_longest_step_are_followed() -> None:
    analysis = analyse(of_lengths(4.0, 9.0, 6.0, 5.0, 7.0).build())
    median, worst = median_path(analysis), worst_path(analysis)
    assert median is not None
    assert worst is not None
    assert (median.step, median.seconds) == (2, 6.0)
    assert (worst.step, worst.seconds) == (1, 9.0)
    assert [(s.phase, s.start_s, s.end_s) for s in worst.segments] == [
        ("rollout", 110.0, 111.0), ("train", 111.0, 119.0),
    ]  # fmt: skip


def test_of_two_steps_in_the_middle_the_longer_one_is_the_median() -> None:
    median = median_path(analyse(of_lengths(4.0, 9.0, 6.0, 5.0).build()))
    assert median is not None
    assert median.step == 2


def test_without_steps_there_is_no_path() -> None:
    analysis = analyse(TraceBuilder().build())
    assert median_path(analysis) is None
    assert worst_path(analysis) is None


def path(*lengths: int, phases: str = "") -> list[Segment]:
    """Segments of these lengths that follow each other from 1000 on."""
    ends = list(itertools.accumulate(lengths, initial=1000))
    return [
        Segment("rank", 0, phases[n : n + 1] or f"phase{n}", f"name{n}", "work", a, b)
        for n, (a, b) in enumerate(itertools.pairwise(ends))
    ]


def stretches(segments: list[Segment]) -> list[tuple[str, int, int]]:
    return [(s.name, s.start_ns, s.end_ns) for s in segments]


def test_as_many_as_fit_stay_as_they_are() -> None:
    segments = path(5, 5, 5)
    assert thinned(segments, 3) == segments
    assert thinned(segments, 4) == segments
    assert thinned([], 3) == []


def test_names_are_given_up_before_any_time_moves() -> None:
    segments = path(5, 5, 5, 5, phases="aabb")
    assert stretches(thinned(segments, 3)) == [("a", 1000, 1010), ("b", 1010, 1020)]
    assert stretches(thinned(segments, 2)) == [("a", 1000, 1010), ("b", 1010, 1020)]


@pytest.mark.parametrize(("lengths", "expected"), [
    ((9, 1, 8, 1), [("phase0", 1000, 1010), ("phase2", 1010, 1019)]),
    ((1, 9, 1, 8), [("phase1", 1000, 1011), ("phase3", 1011, 1019)]),
    ((5, 5, 5, 5), [("phase0", 1000, 1005), ("phase1", 1005, 1020)]),
])  # fmt: skip
def test_the_shortest_are_given_to_their_neighbours(
    lengths: tuple[int, ...], expected: list[tuple[str, int, int]]
) -> None:
    assert stretches(thinned(path(*lengths), 2)) == expected
