"""Charts and their captions say what the summary says, at the sizes that people have."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.document import SCHEMA
from grpo_doctor.document.summary import phase_entry, summary
from grpo_doctor.document.views import views
from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts import bars_of
from grpo_doctor_reports.charts.figure import Chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.lanes import lanes_chart
from grpo_doctor_reports.charts.steps import steps_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.schema.report import read_report
from grpo_doctor_reports.schema.views import Views
from tests.large_runs import WORST_STEP, large_run, slow_rank
from tests.unit.reports.charts.built import boxes, traces

NAMES = (*PHASES, UNATTRIBUTED)


@dataclass(frozen=True)
class Drawn:
    """A run, what its charts are drawn from, and what they say."""

    ranks: int
    steps: int
    analysis: Analysis
    views: Views
    lanes: Chart
    steps_chart: Chart
    heatmap: Chart
    waterfall: Chart

    @property
    def used(self) -> int:
        return len(self.analysis.steps.used)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((8, 500, True), id="8x500"),
        pytest.param((64, 2_000, False), id="64x2000", marks=pytest.mark.heavy),
        pytest.param((1_024, 500, False), id="1024x500", marks=pytest.mark.heavy),
    ],
)
def run(request: pytest.FixtureRequest) -> Drawn:
    ranks, steps, sub_spans = request.param
    analysis = analyse(large_run(ranks, steps, sub_spans=sub_spans))
    made = views(analysis)
    entire = summary(analysis, run_rules(RunView(analysis)), [])
    parts = {"views": msgspec.to_builtins(made), "summary": msgspec.to_builtins(entire)}
    report = read_report({"schema": SCHEMA, **parts})
    charts = [
        lanes_chart(report),
        steps_chart(report.views),
        heatmap_chart(report.views.heatmap),
        waterfall_chart(bars_of(report)),
    ]
    lanes, by_step, heatmap, waterfall = [chart for chart in charts if chart is not None]
    return Drawn(ranks, steps, analysis, made, lanes, by_step, heatmap, waterfall)


def summary_seconds(run: Drawn) -> dict[str, tuple[float, float]]:
    """Seconds and waited seconds of each phase, as the summary has them."""
    entries = {name: phase_entry(run.analysis, code) for code, name in enumerate(NAMES)}
    return {n: (e.seconds, e.wait_seconds) for n, e in entries.items() if e.seconds > 0}


def test_buckets_of_steps_add_up_to_the_summary(run: Drawn) -> None:
    buckets = run.views.step_buckets
    weight = np.array(buckets.steps) * np.array(buckets.used)
    assert weight.sum() == run.used
    for name, (seconds, waits) in summary_seconds(run).items():
        mean = np.dot(np.array(buckets.phase_seconds[name], dtype=float), weight) / run.used
        assert mean == pytest.approx(seconds, abs=2e-6)
        if waits > 0:
            mean = np.dot(np.array(buckets.wait_seconds[name], dtype=float), weight) / run.used
            assert mean == pytest.approx(waits, abs=2e-6)
    assert set(buckets.phase_seconds) == set(summary_seconds(run))


def test_lanes_are_of_every_rank_and_add_up_to_the_summary(run: Drawn) -> None:
    lanes = run.views.timeline.ranks
    assert len(lanes.ranks) == min(64, run.ranks)
    if run.ranks > 64:
        return  # of several ranks the slowest
    weight = np.array(lanes.steps) * np.array(lanes.used)
    for name, (seconds, _) in summary_seconds(run).items():
        table = np.array(lanes.phase_seconds[name], dtype=float)
        assert (table @ weight).mean() / run.used == pytest.approx(seconds, abs=1e-5)


def test_what_the_page_draws_has_the_shares_of_the_summary(run: Drawn) -> None:
    """In the lane of the mean, whose columns phases share by their seconds."""
    buckets = run.views.step_buckets
    weight = {start: steps * used * (seconds or 0.0) for start, steps, used, seconds in zip(
        buckets.start_s, buckets.steps, buckets.used, buckets.seconds, strict=True)}  # fmt: skip
    for name, (seconds, _) in summary_seconds(run).items():
        (drawn,) = traces(run.lanes.figures["lanes"], phase=name, far=True)
        divisor = 1.0 if run.views.timeline.end_s < 300 else 60.0
        starts = {round(start / divisor, 9): start for start in weight if start is not None}
        mean = np.array(boxes(drawn), dtype=float)
        mean = mean[mean[:, 3] < 0.5]
        weights = [weight[starts[round(x, 9)]] for x in mean[:, 0].tolist()]
        total = float(np.dot(mean[:, 3] - mean[:, 2], weights)) / 0.88
        assert total / run.used == pytest.approx(seconds, rel=0.01)


def test_the_caption_of_the_timeline_is_the_summary(run: Drawn) -> None:
    step_s = run.analysis.step_s or 0.0
    shares = dict(re.findall(r"(\w+) ([<\d.]+%)", run.lanes.summary))
    expected = summary_seconds(run)
    assert shares == {n: formatting.share(s / step_s) for n, (s, _) in expected.items()}
    ranks, steps = formatting.count(run.ranks, "rank"), formatting.count(run.used, "step")
    assert run.lanes.summary.startswith(f"Mean of {ranks} over {steps}: rollout ")
    waits = expected["train"][1] / step_s
    assert f"({formatting.share(waits)} waiting)" in run.lanes.summary


def test_windows_have_every_span_of_every_rank(run: Drawn) -> None:
    exact = run.views.timeline.exact
    by_why = {window.why: window for window in exact.windows if window.why != "slow"}
    assert by_why["worst"].step == int(run.steps * WORST_STEP)
    assert {"median", "worst"} <= set(by_why)
    assert [lane.rank for lane in exact.lanes] == list(range(run.ranks))
    assert exact.spans_left_out == 0
    numbers = run.analysis.steps.numbers
    for why in ("median", "worst"):
        window = by_why[why]
        row = int(np.flatnonzero(numbers == window.step)[0])
        seconds = dict.fromkeys(PHASES, 0.0)
        for lane in exact.lanes:
            for name, depth, start, end in zip(
                lane.name, lane.depth, lane.start_s, lane.end_s, strict=True
            ):
                if depth == 0 and window.start_s <= start < window.end_s:
                    seconds[exact.names[name]] += (end - start) / run.ranks
        for code, phase in enumerate(PHASES):
            mean = float(run.analysis.seconds[row, :, code].mean())
            assert seconds[phase] == pytest.approx(mean, abs=3e-6)


def test_collectives_meet_and_waits_lie_in_the_windows(run: Drawn) -> None:
    exact = run.views.timeline.exact
    meetings = [{m for m in lane.meeting if m >= 0} for lane in exact.lanes]
    assert len(meetings[0]) == len(exact.windows)
    assert all(numbers == meetings[0] for numbers in meetings)
    assert exact.collectives == ["all_reduce"]
    inside = [(window.start_s, window.end_s) for window in exact.windows]
    edges = [pair for lane in exact.lanes for pair in zip(*[iter(lane.wait_s)] * 2, strict=True)]
    assert edges
    assert all(any(a <= s and e <= b for a, b in inside) for s, e in edges)


def test_step_by_step_has_every_step_in_a_bar_and_names_the_worst(run: Drawn) -> None:
    buckets = run.views.step_buckets
    assert sum(buckets.steps) == run.steps
    at = int(np.nanargmax(np.array(buckets.worst_seconds, dtype=float)[1:])) + 1
    assert buckets.worst_step[at] == int(run.steps * WORST_STEP)
    lengths = run.analysis.step_seconds
    longest, middle = float(lengths.max()), float(np.median(lengths))
    assert run.steps_chart.facts["median"] == pytest.approx(middle, rel=1e-5)
    assert run.steps_chart.summary.startswith(
        f"Slowest of {formatting.count(run.used, 'step')}: step {int(run.steps * WORST_STEP)}, "
        f"{formatting.seconds(longest)} "
        f"({formatting.signed_percent(100 * (longest / middle - 1))} vs. the median of "
        f"{formatting.seconds(middle)})"
    )
    assert "Excludes 1 warm-up step." in run.steps_chart.summary


def test_the_heatmap_names_the_rank_that_works_longest(run: Drawn) -> None:
    work = (run.analysis.used_seconds - run.analysis.used_waited).sum(axis=2)
    by_rank = work.mean(axis=0)
    slowest = slow_rank(run.ranks)
    assert int(by_rank.argmax()) == slowest
    assert slowest in run.views.heatmap.ranks
    assert run.heatmap.summary.startswith(
        f"Own work averages {formatting.seconds(float(by_rank.mean()))} per step over "
        f"{formatting.count(run.ranks, 'rank')}; rank {slowest} has the most, "
        f"{formatting.seconds(float(by_rank.max()))}."
    )
    assert run.heatmap.facts["labels"][0] == "own work"


def test_the_waterfall_ends_with_the_summarys_step(run: Drawn) -> None:
    end = formatting.seconds(run.analysis.step_s)
    assert run.waterfall.summary.startswith(f"The mean step takes {end}.")
