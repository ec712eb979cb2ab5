"""Tables of seconds by step and rank: named spans, phases in pieces, a rank beside its peers."""

from __future__ import annotations

import numpy as np
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.per_step import named_seconds
from grpo_doctor.analysis.rows import CODES, COLUMNS
from grpo_doctor.analysis.stragglers import work_above_others
from tests.build import TraceBuilder


def two(steps: int = 3) -> TraceBuilder:
    build = TraceBuilder(ranks=2)
    for rank in range(2):
        for number in range(steps):
            build.step(rank, number, 10.0 * number, {"rollout": 6.0, "train": 3.0})
    return build


def test_spans_of_a_name_count_once_in_the_step_that_holds_them() -> None:
    build = two()
    for number in range(3):
        at = 10.0 * number
        build.span(1, "mine", at + 1, at + 3, depth=2).span(1, "mine", at + 2, at + 4, depth=3)
    build.span(1, "mine", 9.2, 9.8)  # between steps
    table = named_seconds(analyse(build.build()), "mine")
    assert table.tolist() == [[0.0, 3.0]] * 3
    assert not named_seconds(analyse(build.build()), "other").any()


def test_a_rank_is_compared_with_the_median_of_its_peers() -> None:
    work = np.zeros((2, 4, COLUMNS))
    work[:, :, CODES["train"]] = [[5.0, 1.0, 2.0, 9.0], [7.0, 1.0, 2.0, 9.0]]
    excess = work_above_others(work, 0)
    assert excess[CODES["train"]] == pytest.approx(6 - 2)
    assert work_above_others(work, 1)[CODES["train"]] == pytest.approx(1 - 6)
    assert not work_above_others(work[:, :1], 0).any()


def test_neighboring_pieces_of_a_phase_are_one_also_where_it_never_ended() -> None:
    build = TraceBuilder()
    build.span(0, "train", 0, 2).span(0, "train", 2, 3).span(0, "rollout", 3, 4)
    build.span(0, "train", 5, 6).open(0, "train", 6, 8)
    (track,) = analyse(build.build()).tracks
    pieces = zip(track.pieces.start_ns / 1e9, track.pieces.end_ns / 1e9, track.phase, strict=True)
    train, rollout = CODES["train"], CODES["rollout"]
    assert list(pieces) == [(0, 3, train), (3, 4, rollout), (5, 8, train)]
