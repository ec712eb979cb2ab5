"""Every moment of a trajectory has one state, whatever its rows look like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.trace.trajectories.digest import digest
from grpo_doctor.trace.trajectories.table import Table
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.record.trajectories import DONE, EVALUATION, FAILED, OPEN, TIMED_OUT
from grpo_doctor_reports.schema.trajectories import Shown, Trajectories
from tests.unit.trace.trajectories.rows import Written, around


def totals(found: Trajectories) -> dict[str, float]:
    return {state: spread.total for state, spread in found.states.items()}


def slowest(found: Trajectories) -> Shown:
    return next(one for one in found.shown if one.why == "slowest")


def test_states_divide_the_time_and_the_rest_is_other() -> None:
    rows = Written()
    one = rows.trajectory(10, 20, group=3, sample=1, tokens=50)
    rows.part(one, "generate", 11, 14)
    rows.part(one, "tool/search", 14, 16)
    rows.part(one, "generate", 16, 17)
    rows.part(one, "queue", 17, 18)
    rows.part(one, "reward", 18, 19.5)
    found = rows.digest()
    assert totals(found) == {
        "queue": 1, "generate": 4, "tool": 2, "reward": 1.5, "other": 1.5,
    }  # fmt: skip
    shown = slowest(found)
    assert shown.numbers == {"group": 3, "sample": 1, "tokens": 50}
    assert (shown.requests, shown.calls, shown.outcome) == (2, 1, "ready")
    assert [(p.state, p.start_s, p.name) for p in shown.parts][:2] == [
        ("generate", 1, ""), ("tool", 4, "search"),
    ]  # fmt: skip


def test_parts_that_overlap_are_not_counted_twice() -> None:
    rows = Written()
    one = rows.trajectory(0, 10)
    rows.part(one, "generate", 0, 8)
    rows.part(one, "queue", 0, 1)  # for a server, within the request
    rows.part(one, "tool/a", 5, 7)  # two calls side by side
    rows.part(one, "tool/b", 6, 9)
    found = rows.digest()
    assert totals(found) == {"queue": 1, "generate": 4, "tool": 4, "other": 1}
    assert {tool.name: tool.seconds for tool in found.tools} == {"a": 2, "b": 3}


def test_an_engine_that_stands_still_for_new_weights_does_not_generate() -> None:
    rows = Written()
    one = rows.trajectory(0, 10)
    rows.part(one, "generate", 0, 4)
    rows.part(one, "tool/a", 4, 10)
    found = rows.digest(around(paused=((1, 2), (3, 6))))
    assert totals(found) == {"generate": 2, "paused": 2, "tool": 6}
    assert [(p.state, p.start_s, p.end_s) for p in slowest(found).parts] == [
        ("generate", 0, 1), ("paused", 1, 2), ("generate", 2, 3), ("paused", 3, 4), ("tool", 4, 10),
    ]  # fmt: skip


def test_what_the_trainer_takes_was_in_the_buffer_until_then() -> None:
    rows = Written()
    rows.trajectory(0, 2, put=101.5)
    rows.trajectory(0, 3, put=102.5)
    rows.trajectory(0, 4, put=103.5)
    rows.taken(102.5, 7, step=5, staleness=2)
    rows.taken(101.5, 6, step=4, reason="stale", staleness=9)
    found = rows.digest(around(steps=((4, 0), (5, 6.5))))
    assert found.outcomes == {"dropped: stale": 1, "trained": 1, "waiting": 1}
    assert totals(found)["buffer"] == 8
    assert found.staleness is not None
    assert (found.staleness.total, found.staleness.p50) == (11, 5.5)
    flow = found.flow
    assert (flow.steps, flow.produced) == ([4, 5], [3, 0])
    assert (flow.trained, flow.dropped, flow.waiting) == ([0, 1], [1, 0], [2, 1])


def test_a_group_is_taken_with_one_key() -> None:
    rows = Written()
    for _ in range(3):
        rows.trajectory(0, 2, put=7.0, last_version=3)
    rows.taken(7.0, 3, step=5)
    found = rows.digest()
    assert found.outcomes == {"trained": 3}
    assert found.staleness is not None
    assert found.staleness.p50 == 1  # version 4 is what step 5 begins with


def test_what_was_generated_to_evaluate_is_left_out() -> None:
    rows = Written()
    rows.trajectory(0, 2, put=7.0)
    rows.part(rows.trajectory(0, 9, put=8.0), "tool/search", 1, 5)
    rows.taken(7.0, 3, step=5)
    rows.taken(8.0, 9, step=5, reason=EVALUATION)
    found = rows.digest()
    assert (found.outcomes, found.tools) == ({"trained": 1}, [])


def test_a_trajectory_without_end_is_open_and_one_that_raised_has_failed() -> None:
    rows = Written()
    hung = rows.trajectory(0, 90, OPEN)
    rows.part(hung, "tool/search", 1, 90, OPEN)
    rows.trajectory(0, 2, FAILED)
    called = rows.trajectory(0, 3)
    rows.part(called, "tool/search", 0, 1, TIMED_OUT)
    rows.part(called, "tool/search", 1, 2, FAILED)
    found = rows.digest()
    assert found.outcomes == {"failed": 1, "open": 1, "ready": 1}
    assert found.seconds.total == 5  # of those that ended
    (tool,) = found.tools
    assert (tool.calls, tool.errors, tool.time_outs, tool.open) == (2, 1, 1, 1)
    assert tool.failed_seconds == 2
    assert slowest(found).outcome == "open"
    failed = [one for one in found.shown if one.why == "failed"]
    assert [one.outcome for one in failed] == ["failed", "ready"]


def test_the_usual_call_would_have_made_the_last_trajectory_ready_earlier() -> None:
    rows = Written()
    for start, call in ((0, 1), (0, 1), (0, 6)):
        one = rows.trajectory(start, start + 2 + call, step=1)
        rows.part(one, "tool/search", start + 1, start + 1 + call)
    (tool,) = rows.digest().tools
    assert tool.saved_s == 5  # from 8 s after the begin to 3 s
    assert (tool.p50_s, tool.tail_seconds) == (1, 6)


@pytest.mark.parametrize(("stale", "saved_s"), [(0, 4), (1, None)])
def test_a_step_waits_for_what_its_own_weights_have_said(stale: int, saved_s: int | None) -> None:
    rows = Written()
    for call in (1, 1, 5):
        one = rows.trajectory(0, 2 + call, put=7.0, version=4, last_version=4)
        rows.part(one, "tool/search", 1, 1 + call)
    rows.taken(7.0, 8, step=5, staleness=stale)
    (tool,) = rows.digest().tools
    assert tool.saved_s == saved_s


def test_a_sync_waits_for_what_is_generated_within_it() -> None:
    rows = Written()
    one = rows.trajectory(0, 10)
    rows.part(one, "generate", 0, 7)
    found = rows.digest(around(syncs=((5, 9),), sending=((7, 8.5),)))
    assert (found.syncs.seconds, found.syncs.waiting_s) == (4, 2)
    assert (found.syncs.transfer_s, found.syncs.load_s) == (1.5, None)


def test_some_are_shown_in_full_and_the_rest_is_counted() -> None:
    rows = Written()
    for number in range(300):
        one = rows.trajectory(0, 1 + number / 100, FAILED if number % 10 == 0 else DONE)
        for at in range(3):
            rows.part(one, "generate", at / 10, at / 10 + 0.05)
    found = rows.digest()
    whys = [one.why for one in found.shown]
    assert {why: whys.count(why) for why in whys} == {"slowest": 50, "failed": 20, "typical": 10}
    assert found.count == 300
    typical = [one.seconds for one in found.shown if one.why == "typical"]
    assert typical == pytest.approx([2.5] * 10, abs=0.06)


PARTS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["queue", "generate", "tool/a", "reward", "unheard of"]),
        st.floats(-5, 25), st.floats(0, 20), st.sampled_from([OPEN, DONE, FAILED]),
    ),
    max_size=20,
)  # fmt: skip


@given(parts=PARTS, paused=st.lists(st.tuples(st.floats(0, 20), st.floats(0, 5)), max_size=4))
def test_the_states_of_any_rows_add_up(
    parts: list[tuple[int, str, float, float, float]], paused: list[tuple[float, float]]
) -> None:
    rows = Written()
    for _ in range(3):
        rows.trajectory(0, 20)
    for of, name, start, length, outcome in parts:
        rows.part(of, name, start, start + length, outcome)
    found = rows.digest(around(paused=tuple((a, a + b) for a, b in paused)))
    for one in found.shown:
        assert sum(one.states.values()) == pytest.approx(20, abs=1e-4)
        drawn = sum(part.end_s - part.start_s for part in one.parts)
        assert drawn + one.states.get("other", 0.0) == pytest.approx(20, abs=1e-4)


@pytest.mark.slow
def test_a_million_trajectories_stay_small() -> None:
    count, parts = 1_000_000, 4
    of = np.repeat(np.arange(1, count + 1), parts + 1)
    at = np.tile(np.arange(parts + 1), count)
    start_ns = of * 1_000_000 + np.where(at == 0, 0, (at - 1) * 1_000_000_000)
    table = Table(
        ("trajectory", "generate", "tool/search"),
        np.where(at == 0, layout.TRAJECTORY, layout.PART).astype(np.uint8),
        np.where(at == 0, 0, 1 + at % 2), of, start_ns,
        start_ns + np.where(at == 0, 4_000_000_000, 900_000_000), np.zeros(len(of)),
    )  # fmt: skip
    found = digest(table, around())
    assert found.count == count
    assert len(found.shown) == 60
    assert totals(found)["tool"] == pytest.approx(1.8 * count)


def test_what_an_engine_did_for_a_request_is_of_the_trajectory_that_asked() -> None:
    rows = Written()
    one = rows.trajectory(0, 10, asked=77)
    rows.part(one, "generate", 0, 10)
    rows.trajectory(0, 5, asked=78)  # its engine was not seen
    engine, other = 901, 902
    rows.fact(engine, serves=77)
    rows.fact(other, serves=79)  # of a request of an evaluation
    for state, start, end in (("engine queue", 1, 4), ("prefill", 4, 5), ("decode", 5, 9)):
        rows.part(engine, state, start, end)
        rows.part(other, state, start, end)
    found = rows.digest(around(paused=((6, 7),)))
    assert totals(found) == {
        "engine queue": 3, "prefill": 1, "decode": 3, "generate": 2, "paused": 1, "other": 5,
    }  # fmt: skip
