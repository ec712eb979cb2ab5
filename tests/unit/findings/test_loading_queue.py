"""Loaders that timed themselves: what they needed, and how many would have been enough."""

from __future__ import annotations

import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.findings.loading import Loading, enough_workers, loading, replayed_wait
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count


def loaded(read_s: float, *, waits_s: float = 0.1, workers: int | None = 1) -> RunView:
    """A run whose loaders need `read_s` for a step's prompts, in a step of about 10 s."""
    knobs = {**SETTINGS, "dataload.num_workers": workers}
    build: TraceBuilder = run({**HEALTHY, "dataload": waits_s}, knobs=knobs)
    count(build, "dataload/read_s", read_s)
    return RunView.of(build.build())


def test_parts_of_what_a_process_did() -> None:
    load = loading(loaded(2.0))
    assert load is not None
    assert load.effort_s == 2.0
    assert (load.share("read_s"), load.share("join_s")) == (1.0, 0.0)
    assert Loading({"read_s": 1.0, "join_s": 3.0}).share("read_s", "join_s") == 1.0
    assert Loading({"read_s": 0.0}).share("read_s") == 0.0
    assert loading(RunView.of(run().build())) is None


@pytest.mark.parametrize(
    ("read_s", "now", "enough"),
    [(7.5, 0, 1), (9.0, 0, 2), (9.0, 2, 4), (20.0, 1, 4), (200.0, 1, 8), (200.0, 8, None)],
)
def test_the_fewest_that_have_the_time(read_s: float, now: int, enough: int | None) -> None:
    assert enough_workers(loaded(read_s), now) == enough


def test_without_times_the_usual_number_is_advised_unless_there_are_more() -> None:
    view = RunView.of(run().build())
    assert [enough_workers(view, now) for now in (None, 0, 3, 4, 8)] == [4, 4, 4, 8, None]


def test_a_queue_is_replayed_where_the_one_of_the_run_can_be() -> None:
    # One process needs 14 s for each step's prompts, of which 9.8 s pass anyway.
    slow = loaded(14.0, waits_s=4.2)
    waits = [replayed_wait(slow, workers=n, prefetch=2) for n in (1, 2)]
    assert waits[0] is not None
    assert waits[1] is not None
    assert waits[0] > 2
    assert waits[1] < 0.5 * waits[0]


def test_a_wait_that_the_queue_does_not_explain_is_not_replayed() -> None:
    assert replayed_wait(loaded(1.0, waits_s=4.0), workers=2, prefetch=2) is None
    assert replayed_wait(loaded(14.0, waits_s=0.1), workers=2, prefetch=2) is None
    assert replayed_wait(loaded(14.0, waits_s=4.2, workers=None), workers=2, prefetch=2) is None
    assert replayed_wait(RunView.of(run().build()), workers=2, prefetch=2) is None


def exact(
    waits_s: float, efforts_s: list[float], *, workers: int = 1, prefetch: int | None = None
) -> RunView:
    """Steps of ten seconds on one rank, and what a loader needed for the batch of each."""
    knobs = {"dataload.num_workers": workers, "dataload.prefetch_factor": prefetch}
    build = TraceBuilder(knobs={name: value for name, value in knobs.items() if value is not None})
    for number in range(len(efforts_s)):
        phases = {"dataload": waits_s, "train": 10.0 - waits_s}
        build.step(0, number, 10.0 * number, {name: s for name, s in phases.items() if s})
    return RunView.of(count(build, "dataload/read_s", lambda _, n: efforts_s[n]).build())


@pytest.mark.parametrize(("read_s", "enough"), [(8.0, 1), (8.01, 2), (16.0, 2), (16.01, 4)])
def test_loaders_may_take_four_fifths_of_the_rest(read_s: float, enough: int) -> None:
    assert enough_workers(exact(0.0, [read_s] * 5), None) == enough


def test_a_replay_may_miss_a_twentieth_of_the_step() -> None:
    efforts = [0.001] * 5
    assert replayed_wait(exact(0.5, efforts), workers=2, prefetch=2) == 0
    assert replayed_wait(exact(0.51, efforts), workers=2, prefetch=2) is None


@pytest.mark.parametrize(("prefetch", "explained"), [(8, True), (2, False), (None, False)])
def test_as_many_batches_are_ready_as_the_run_was_set_to(
    prefetch: int | None, explained: bool
) -> None:
    # Eight batches that lie ready outlast one that takes half a minute; two do not.
    view = exact(0.1, [0.1, 30.0, 0.1, 0.1, 0.1, 0.1], prefetch=prefetch)
    assert (replayed_wait(view, workers=1, prefetch=8) is not None) is explained


def test_a_step_that_fetches_nothing_leaves_its_turn_to_the_next_batch() -> None:
    # Each batch feeds two steps, so that two processes have forty seconds for one.
    view = exact(0.1, [30.0, 0.0] * 3, workers=2)
    waits = [replayed_wait(view, workers=n, prefetch=2) for n in (1, 2)]
    assert waits == [pytest.approx(5.0, abs=0.3), pytest.approx(0.0, abs=0.01)]
