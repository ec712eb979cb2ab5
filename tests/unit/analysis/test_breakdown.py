from __future__ import annotations

import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.analysis.rows import CODES, UNATTRIBUTED_CODE
from grpo_doctor.trace.model import Kind
from tests.build import TraceBuilder


def seconds(analysis: Analysis, phase: str, step: int = 0, rank: int = 0) -> float:
    return float(analysis.seconds[step, rank, CODES[phase]])


def step(build: TraceBuilder, end_s: float) -> Analysis:
    return analyse(build.row(Kind.STEP, 0, "step", 0, end_s, depth=0, value=0).build())


def test_sub_spans_count_to_their_phase_once() -> None:
    build = TraceBuilder().span(0, "rollout", 0, 6).span(0, "rollout/generate", 1, 5, depth=2)
    assert seconds(step(build, 10), "rollout") == pytest.approx(6)


def test_a_phase_inside_another_counts_to_itself() -> None:
    build = TraceBuilder().span(0, "rollout", 0, 6).span(0, "offload", 1, 3, depth=2)
    analysis = step(build, 10)
    assert seconds(analysis, "rollout") == pytest.approx(4)
    assert seconds(analysis, "offload") == pytest.approx(2)
    assert analysis.seconds[0, 0, UNATTRIBUTED_CODE] == pytest.approx(4)
    assert analysis.seconds[0, 0].sum() == pytest.approx(10)


def test_names_that_are_no_phase_change_nothing() -> None:
    build = TraceBuilder().span(0, "rollout", 0, 6).span(0, "my_function", 1, 3, depth=2)
    build.span(0, "my_function", 7, 9)
    analysis = step(build, 10)
    assert seconds(analysis, "rollout") == pytest.approx(6)
    assert analysis.seconds[0, 0, UNATTRIBUTED_CODE] == pytest.approx(4)


def test_other_threads_do_not_add_up() -> None:
    build = TraceBuilder().span(0, "train", 0, 6).span(0, "dataload", 0, 6, thread=1)
    analysis = step(build, 10)
    assert seconds(analysis, "train") == pytest.approx(6)
    assert seconds(analysis, "dataload") == 0


def test_a_phase_that_reaches_out_of_its_step_is_clipped() -> None:
    build = TraceBuilder().span(0, "train", 8, 14)
    assert seconds(step(build, 10), "train") == pytest.approx(2)


def test_cuda_times_are_not_counted_beside_host_times() -> None:
    build = TraceBuilder().span(0, "train", 0, 6)
    build.row(Kind.CUDA_SPAN, 0, "train", 0, 6, value=6000.0)
    assert seconds(step(build, 10), "train") == pytest.approx(6)


def test_without_steps_the_main_thread_is_the_one_with_most_phases() -> None:
    build = TraceBuilder().span(0, "reward", 0, 1, thread=3).span(0, "rollout", 0, 6, thread=2)
    track = analyse(build.build()).tracks[0]
    assert track.phase.tolist() == [CODES["rollout"]]


def test_a_trace_without_anything_has_empty_tables() -> None:
    analysis = analyse(TraceBuilder(ranks=0).build())
    assert analysis.seconds.shape[:2] == (0, 0)
    assert analysis.step_s is None
    assert analysis.share("rollout") == 0
