"""Charts and their captions say what the summary says, at the sizes that people have."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.document import SCHEMA
from grpo_doctor.document.summary import phase_entry
from grpo_doctor.document.views import views
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.lanes import lanes_chart
from grpo_doctor_reports.charts.steps import steps_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.schema.report import read_report
from grpo_doctor_reports.schema.views import Views
from tests.large_runs import WORST_STEP, large_run, slow_rank

NAMES = (*PHASES, UNATTRIBUTED)
_PACKED_SHARE = 0.002  # three digits of a number are in the page


@dataclass(frozen=True)
class Drawn:
    """A run, what its charts are drawn from, and what they say."""

    ranks: int
    steps: int
    analysis: Analysis
    views: Views
    pool: NumberPool
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
    report = read_report({"schema": SCHEMA, "views": msgspec.to_builtins(made)})
    pool = NumberPool()
    charts = [
        lanes_chart(report, pool),
        steps_chart(report.views, pool),
        heatmap_chart(report.views.heatmap, pool),
        waterfall_chart(report.views.waterfall),
    ]
    lanes, by_step, heatmap, waterfall = [chart for chart in charts if chart is not None]
    return Drawn(ranks, steps, analysis, made, pool, lanes, by_step, heatmap, waterfall)


def unpack(pool: NumberPool, index: int) -> np.ndarray:
    """What the page's script makes of an array of the pool."""
    decimals, *differences = pool.arrays[index]
    filled = [0 if difference is None else difference for difference in differences]
    values = np.cumsum(filled) / 10.0 ** (decimals or 0)
    return np.where([difference is None for difference in differences], np.nan, values)


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
    assert lanes.ranks == list(range(run.ranks))
    weight = np.array(lanes.steps) * np.array(lanes.used)
    for name, (seconds, _) in summary_seconds(run).items():
        table = np.array(lanes.phase_seconds[name], dtype=float)
        assert (table @ weight).mean() / run.used == pytest.approx(seconds, abs=1e-5)


def test_what_the_page_draws_has_the_shares_of_the_summary(run: Drawn) -> None:
    expected = summary_seconds(run)
    step_s = run.analysis.step_s or 0.0
    data = run.lanes.data
    for part, ranks in ((data["mean"], 1), (data["ranks"], run.ranks)):
        weight = unpack(run.pool, part["steps"]) * unpack(run.pool, part["used"])
        for stack in part["stacks"]:
            name = data["phases"][stack["phase"]]["name"]
            table = unpack(run.pool, stack["v"]).reshape(ranks, -1)
            share = float((table @ weight).mean()) / run.used / step_s
            assert share == pytest.approx(expected[name][0] / step_s, abs=_PACKED_SHARE)
            if stack["wait"] is not None:
                table = unpack(run.pool, stack["wait"]).reshape(ranks, -1)
                share = float((table @ weight).mean()) / run.used / step_s
                assert share == pytest.approx(expected[name][1] / step_s, abs=_PACKED_SHARE)


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
    assert run.steps_chart.data["median"] == pytest.approx(middle, rel=1e-5)
    assert run.steps_chart.summary.startswith(
        f"Slowest of {formatting.count(run.used, 'step')}: step {int(run.steps * WORST_STEP)}, "
        f"{formatting.seconds(longest)} "
        f"({formatting.signed_percent(100 * (longest / middle - 1))} vs. the median of "
        f"{formatting.seconds(middle)})"
    )
    assert "Excludes 1 warmup." in run.steps_chart.summary


def test_the_heatmap_names_the_rank_that_works_longest(run: Drawn) -> None:
    work = (run.analysis.used_seconds - run.analysis.used_waited).sum(axis=2)
    by_rank = work.mean(axis=0)
    slowest = slow_rank(run.ranks)
    assert int(by_rank.argmax()) == slowest
    assert slowest in run.views.heatmap.ranks
    assert run.heatmap.summary.startswith(
        f"Own work per step is {formatting.seconds(float(by_rank.mean()))} in the mean of "
        f"{formatting.count(run.ranks, 'rank')}, most on rank {slowest} with "
        f"{formatting.seconds(float(by_rank.max()))}."
    )
    assert run.heatmap.data["options"][0]["label"] == "own work"


def test_the_waterfall_ends_with_the_summarys_step(run: Drawn) -> None:
    end = formatting.seconds(run.analysis.step_s)
    assert run.waterfall.summary.startswith(f"The mean step ends after {end};")
