from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.critical import Segment
from grpo_doctor.document.summary import phase_entries, summary
from grpo_doctor.document.views import views
from grpo_doctor.document.views.critical import thinned
from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.trace.model import Kind, Origin
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import straggling


def recording(steps: int = 12) -> TraceBuilder:
    """Two ranks; rank 1 is later to the collective; step 5 has a checkpoint, the last is open."""
    build, now = TraceBuilder(ranks=2), 0.0
    for number in range(steps):
        saving = 3.0 if number == 5 else 0.0
        for rank in (0, 1):
            phases = {"rollout": 4.0 + rank, "train": 5.0 - rank}
            build.step(
                rank, number, now, {**phases, "checkpoint": saving}, end_s=now + 9.5 + saving
            )
            build.collective(rank, number, now + 6 + rank, now + 8)
        now += 10 + saving
    for rank in (0, 1):
        build.row(Kind.STEP, rank, "step", now, now + 1, depth=0, value=steps, open=True)
    return build


def test_phases_are_work_wait_transfer_and_idle_together() -> None:
    analysis = analyse(recording().build())
    for entry in phase_entries(analysis).values():
        own, waits = entry.work_seconds, entry.wait_seconds
        kinds = (own, waits, entry.transfer_seconds, entry.idle_seconds)
        assert sum(kinds) == pytest.approx(entry.seconds, abs=4e-6)
    train = phase_entries(analysis)["train"]
    assert (train.wait_seconds, train.transfer_seconds) == (0.5, 1.0)


def test_a_server_that_generates_leaves_its_trainer_idle() -> None:
    build = TraceBuilder(knobs={"vllm.use": True, "vllm.mode": "server"})
    for number in range(4):
        build.step(0, number, 10.0 * number, {"rollout": 6.0, "train": 4.0})
        build.span(0, "rollout/generate", 10.0 * number + 1, 10.0 * number + 6, depth=2)
    entry = phase_entries(analyse(build.build()))["rollout"]
    assert (entry.seconds, entry.work_seconds, entry.idle_seconds) == (6.0, 1.0, 5.0)


def test_the_summary_accounts_for_all_rank_time_and_sets_steps_apart() -> None:
    analysis = analyse(recording().build())
    totals = summary(analysis, run_rules(RunView(analysis)), [])
    assert sum(totals.accounting.values()) == pytest.approx(1, abs=4e-5)
    assert totals.set_apart == {"checkpoint": [5], "eval": [], "warmup": []}
    assert totals.steady.first_step == 0
    assert totals.steady.step_time_s == 9.5
    assert totals.step_time_s == pytest.approx(9.5 + 3 / 12)


def test_of_a_log_of_durations_what_no_timer_covers_is_not_idle() -> None:
    trace = recording().build()
    log = replace(trace.run, origin=Origin("a console log", durations_only=True))
    shown = views(analyse(replace(trace, run=log)))
    assert any(bar.phase == "unattributed" for bar in shown.waterfall)
    assert not any(bar.idle_seconds for bar in shown.waterfall)
    assert (shown.critical_path, shown.critical_path_worst) == (None, None)


def test_steps_have_their_place_kind_and_slowest_rank() -> None:
    steps = views(analyse(recording().build())).steps
    assert [s.kind for s in steps] == [
        "checkpoint" if n == 5 else "open" if n == 12 else "steady" for n in range(13)
    ]
    assert (steps[6].start_s, steps[6].end_s, steps[6].seconds) == (63, 72.5, 9.5)
    assert steps[12].seconds is None
    assert steps[12].slowest_rank is None
    assert steps[0].slowest_rank == 1  # it waits for nobody


def test_the_paths_are_those_of_the_median_and_the_longest_step() -> None:
    totals = views(analyse(recording().build()))
    assert totals.critical_path is not None
    assert totals.critical_path_worst is not None
    assert totals.critical_path_worst.step == 5
    assert totals.critical_path_worst.seconds == 12.5
    ranks = [s.rank for s in totals.critical_path.segments if s.kind == "work"]
    assert ranks[0] == 1
    assert totals.collectives[0].skew_seconds == 1.0
    assert totals.collectives[0].last_rank == 1


def test_the_stragglers_path_is_its_own() -> None:
    path = views(analyse(straggling().build())).critical_path
    assert path is not None
    on_path = [(s.end_s or 0.0) - (s.start_s or 0.0) for s in path.segments if s.rank == 2]
    assert sum(on_path) > 0.8 * path.seconds


def test_thinning_keeps_the_length_and_leaves_no_hole() -> None:
    path = [
        Segment("rank", n % 3, "train", f"train/layer{n}", "work", 10 * n, 10 * n + 10)
        for n in range(1000)
    ]
    few = thinned(path, 100)
    assert len(few) == 100
    assert (few[0].start_ns, few[-1].end_ns) == (0, 10_000)
    assert all(
        segment.end_ns == following.start_ns for segment, following in itertools.pairwise(few)
    )
