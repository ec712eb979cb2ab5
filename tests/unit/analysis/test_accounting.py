"""Every moment of a step is work, wait, transfer or idle, and no moment is two of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.analysis.rows import CODES, UNATTRIBUTED_CODE
from grpo_doctor.trace.model import Clock, Kind, Trace
from tests.build import TraceBuilder

NAMES = ("rollout", "rollout/generate", "train", "mine", "reward")
moments = st.integers(0, 40)
rows = st.tuples(
    st.sampled_from([Kind.SPAN, Kind.SPAN, Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT]),
    st.integers(0, 2), st.sampled_from(NAMES), moments, moments, st.integers(1, 3),
    st.sampled_from(["world", "a"]),
)  # fmt: skip


def any_trace(calls: list[tuple[Kind, int, str, int, int, int, str]], server: bool) -> Trace:
    knobs = {"vllm.mode": "server" if server else "colocate", "vllm.use": True}
    build = TraceBuilder(ranks=3, knobs=knobs)
    for rank in range(3):
        for number in range(3):
            build.row(Kind.STEP, rank, "step", 12 * number, 12 * number + 11, depth=0, value=number)
    for kind, rank, name, first_s, second_s, sequence, group in calls:
        build.row(
            kind, rank, name, min(first_s, second_s), max(first_s, second_s),
            value=float(sequence), args={"group": group},
        )  # fmt: skip
    return build.build()


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(rows, max_size=30), st.booleans())
def test_the_four_kinds_add_up_to_the_step(
    calls: list[tuple[Kind, int, str, int, int, int, str]], server: bool
) -> None:
    analysis = analyse(any_trace(calls, server))
    account = analysis.accounting
    kinds = [account.work, account.wait, account.transfer, account.idle]
    nanoseconds = sum(np.rint(table * 1e9).astype(np.int64) for table in kinds)
    length = analysis.steps.end_ns - analysis.steps.start_ns
    assert np.array_equal(nanoseconds, length)
    for table in kinds:
        assert table.min() > -1e-9
    # By phase as well: no part is larger than its whole.
    parts = analysis.waited + analysis.transferred + analysis.idled
    assert (parts <= analysis.seconds + 1e-9).all()


def two_ranks() -> TraceBuilder:
    """Rank 0 waits 3 s for rank 1 and both transfer for 2 s; 1 s of the 12 s has nothing open."""
    build = TraceBuilder(ranks=2)
    for rank, arrives in enumerate((5.0, 8.0)):
        build.step(rank, 0, 0.0, {"train": 11.0}, end_s=12.0)
        build.collective(rank, 1, arrives, 10.0)
    return build


def of(analysis: Analysis, rank: int) -> list[float]:
    account = analysis.accounting
    tables = (account.work, account.wait, account.transfer, account.idle)
    return [float(table[0, rank]) for table in tables]


def test_transfer_begins_with_the_last_arrival() -> None:
    analysis = analyse(two_ranks().build())
    assert of(analysis, 0) == pytest.approx([6, 3, 2, 1])
    assert of(analysis, 1) == pytest.approx([9, 0, 2, 1])
    assert analysis.transferred[0, 0, CODES["train"]] == pytest.approx(2)
    assert analysis.idled[0, 0, UNATTRIBUTED_CODE] == pytest.approx(1)
    # The rules' work has transfer and idle in it: a change of the phase changes those too.
    assert (analysis.used_seconds - analysis.used_waited).sum() == pytest.approx(9 + 12)


def test_a_span_of_the_users_own_is_work_and_not_idle() -> None:
    build = TraceBuilder().step(0, 0, 0.0, {"train": 4.0}, end_s=10.0).span(0, "mine", 5.0, 8.0)
    assert of(analyse(build.build()), 0) == pytest.approx([7, 0, 0, 3])


def test_a_rank_that_waits_for_an_engine_server_is_idle() -> None:
    build = TraceBuilder(knobs={"vllm.use": True, "vllm.mode": "server"})
    build.step(0, 0, 0.0, {"rollout": 6.0, "train": 4.0})
    build.span(0, "rollout/generate", 1.0, 6.0, depth=2)
    analysis = analyse(build.build())
    assert of(analysis, 0) == pytest.approx([5, 0, 0, 5])
    assert analysis.idled[0, 0, CODES["rollout"]] == pytest.approx(5)


def test_clocks_without_a_bound_divide_no_collective() -> None:
    trace = two_ranks().build()
    first, second = trace.processes
    unknown = (dataclasses.replace(first, clock=Clock(0, None)), second)
    analysis = analyse(dataclasses.replace(trace, processes=unknown))
    assert of(analysis, 0) == pytest.approx([11, 0, 0, 1])


def test_a_skew_within_the_clocks_error_is_transfer() -> None:
    trace = two_ranks().build()
    first, second = trace.processes
    unsure = (dataclasses.replace(first, clock=Clock(0, 4_000_000_000)), second)
    analysis = analyse(dataclasses.replace(trace, processes=unsure))
    assert of(analysis, 0) == pytest.approx([6, 0, 5, 1])


def test_shares_are_of_rank_time() -> None:
    analysis = analyse(two_ranks().build())
    shares = analysis.accounting.shares(np.array([0]), np.array([0, 1]))
    assert shares == pytest.approx(
        {"work": 15 / 24, "wait": 3 / 24, "transfer": 4 / 24, "idle": 2 / 24}
    )
