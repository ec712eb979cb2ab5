from __future__ import annotations

import json

import pytest

from grpo_doctor_reports.charts.curves import curves_chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.lanes import lanes_chart
from grpo_doctor_reports.charts.steps import slowest_ranks, steps_chart
from grpo_doctor_reports.charts.strips import strips_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.document import read_document
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.packing import NumberPool
from tests.demo_reports import DEMOS


@pytest.fixture(scope="module")
def slow() -> Report:
    return read_document(DEMOS["slow"]())


def unpacked(pool: NumberPool, index: int) -> list[float | None]:
    """What the page's script makes of an array."""
    decimals, *differences = pool.arrays[index]
    assert decimals is not None
    total = 0
    values: list[float | None] = []
    for difference in differences:
        total += difference or 0
        values.append(None if difference is None else total / 10**decimals)
    return values


def report(**views: object) -> Report:
    return read_document({"schema": 1, "views": views})


def test_nothing_to_draw_is_no_chart() -> None:
    empty, pool = report(), NumberPool()
    assert waterfall_chart(empty.waterfall) is None
    assert heatmap_chart(empty.heatmap, pool) is None
    assert lanes_chart(empty, pool) is None
    assert strips_chart(empty.timeline, pool) is None
    assert steps_chart(empty, pool) is None
    assert curves_chart(empty.curves, pool) is None


def test_the_waterfall_keeps_the_order_and_names_the_longest(slow: Report) -> None:
    chart = waterfall_chart(slow.waterfall)
    assert chart is not None
    phases = [row["phase"] for row in chart.data["rows"]]
    assert phases == [bar.phase for bar in slow.waterfall]
    assert "its longest phase is train with 15.7 s" in chart.summary


def test_the_heatmap_shows_own_work_first_then_wait_step_and_each_phase(slow: Report) -> None:
    chart = heatmap_chart(slow.heatmap, NumberPool())
    assert chart is not None
    labels = [option["label"] for option in chart.data["options"]]
    assert labels[:5] == ["own work", "wait", "step time", "dataload", "rollout"]
    assert "most on rank 5 with" in chart.summary


def test_a_wide_heatmap_is_binned_and_says_so() -> None:
    ranks, steps = list(range(100)), list(range(1_000))
    chart = heatmap_chart(
        report(
            heatmap={"ranks": ranks, "steps": steps, "step_seconds": [[1.0] * 1_000] * 100}
        ).heatmap,
        NumberPool(),
    )
    assert chart is not None
    assert chart.note == "Of every 10 steps the slowest is drawn."


def test_strips_are_grouped_and_scaled_to_readable_units(slow: Report) -> None:
    chart = strips_chart(slow.timeline, NumberPool())
    assert chart is not None
    groups = {group["key"]: group["strips"] for group in chart.data["groups"]}
    assert list(groups) == ["gpu", "host", "rank"]
    units = {strip["title"]: strip["unit"] for strip in groups["gpu"]}
    assert units["GPU memory used"] == "GiB"
    assert len(groups["gpu"][0]["lines"]) == 8


def test_what_never_changes_is_said_instead_of_drawn() -> None:
    def track(name: str, unit: str, values: list[float], group: str) -> dict[str, object]:
        return {"name": name, "label": name, "unit": unit, "group": group,
                "t_s": [float(at) for at in range(len(values))], "v": values}  # fmt: skip

    tracks = [
        track("gpu.throttle", "", [0.0, 0.0], "gpu"),
        track("host.cpu", "%", [1.0, 2.0], "host"),
        track("host.swap_used", "bytes", [0.0, 0.0], "host"),
        track("host.shm_size", "bytes", [2.0**30, 2.0**30], "host"),
    ]
    timeline = {"end_s": 1.0, "tracks": tracks, "tracks_left_out": 2}
    chart = strips_chart(report(timeline=timeline).timeline, NumberPool())
    assert chart is not None
    assert [group["key"] for group in chart.data["groups"]] == ["host"]
    assert [strip["title"] for strip in chart.data["groups"][0]["strips"]] == ["CPU, of all cores"]
    assert chart.note == (
        "2 more tracks not drawn; the trace has them. "
        "The same throughout: throttle reasons (bits) 0, swap used 0 B, shared memory size 1 GiB."
    )


def test_a_rank_that_left_no_phase_is_named() -> None:
    bands = [{"rank": 0, "phase": "train", "start_s": 0.0, "end_s": 9.0}]
    ranks = [{"rank": rank} for rank in (0, 60, 61, 62, 63)]
    document = {"schema": 1, "run": {"ranks": ranks}, "views": {"timeline": {"bands": bands}}}
    chart = lanes_chart(read_document(document), NumberPool())
    assert chart is not None
    assert chart.note == "Ranks 60\u201363 not drawn: no phase of theirs was recorded."


def test_an_open_band_is_marked_and_sub_spans_lie_in_their_phase() -> None:
    bands = [
        {"rank": 1, "phase": "rollout", "start_s": 3.0, "end_s": 9.0, "open": True},
        {"rank": 1, "phase": "rollout/generate", "start_s": 3.0, "end_s": 9.0, "open": True},
    ]
    pool = NumberPool()
    chart = lanes_chart(report(timeline={"end_s": 9.0, "bands": bands}), pool)
    assert chart is not None
    assert [phase["name"] for phase in chart.data["phases"]] == ["rollout", "unattributed"]
    exact = chart.data["exact"]
    assert [name["name"] for name in exact["names"]] == ["rollout", "rollout/generate"]
    assert unpacked(pool, exact["depth"]) == [0, 1]
    assert unpacked(pool, exact["open"]) == [0, 1]
    assert chart.summary == "Recorded phases of 1 rank over 9 s: rollout 100%."


def test_reward_and_loss_come_first_and_the_rest_is_counted() -> None:
    series = {f"m{at:02}": [1.0, 2.0] for at in range(30)}
    metrics = {"steps": [1, 2], "series": {**series, "loss": [3.0, 1.0], "reward": [None, 0.5]}}
    chart = curves_chart(report(metrics=metrics).curves, NumberPool())
    assert chart is not None
    assert [curve["label"] for curve in chart.data["curves"]][:3] == ["reward", "loss", "m00"]
    assert chart.note == "8 more metrics not drawn."
    assert chart.summary.startswith("reward goes from 0.500 to 0.500; loss goes from 3 to 1;")


def test_a_metric_that_never_changes_is_said_instead_of_drawn() -> None:
    series = {"reward": [1.0, 1.0], "kl": [0.1, 0.2], "learning_rate": [0.003, 0.003]}
    chart = curves_chart(report(metrics={"steps": [1, 2], "series": series}).curves, NumberPool())
    assert chart is not None
    assert [curve["label"] for curve in chart.data["curves"]] == ["reward", "kl"]
    assert chart.note == "The same throughout: learning_rate 0.00300."


def test_chart_data_is_json(slow: Report) -> None:
    chart = strips_chart(slow.timeline, NumberPool())
    assert chart is not None
    json.dumps(chart.data, allow_nan=False)


def step(number: int, seconds: float, kind: str = "steady") -> dict[str, object]:
    start = 10.0 * number
    return {"number": number, "start_s": start, "end_s": start + seconds, "seconds": seconds,
            "kind": kind, "slowest_rank": 1}  # fmt: skip


def test_the_worst_steps_are_steady_ones_longest_first_against_their_median() -> None:
    steps = [step(1, 9.0, "warmup"), step(2, 2.0), step(3, 6.0), step(4, 2.5)]
    chart = steps_chart(report(steps=steps), NumberPool())
    assert chart is not None
    assert chart.data["worst"] == [2, 3, 1]
    assert chart.data["median"] == 2.5
    assert chart.summary == (
        "Of 3 steps, step 3 is the longest with 6 s, +140% against the median of 2.50 s, "
        "rank 1 the slowest. Beside them 1 warmup."
    )


def test_a_steps_phases_stand_next_to_the_median_of_steady_steps() -> None:
    heatmap = {"ranks": [0, 1], "steps": [1, 2, 3], "step_seconds": [[9.0, 2.0, 6.0]] * 2,
               "phase_seconds": {"train": [[5.0, 1.0, 2.0], [5.0, 1.0, 4.0]]}}  # fmt: skip
    steps = [step(1, 9.0, "warmup"), step(2, 2.0), step(3, 6.0)]
    pool = NumberPool()
    chart = steps_chart(report(heatmap=heatmap, steps=steps), pool)
    assert chart is not None
    assert [phase["median"] for phase in chart.data["phases"]] == [2.0]


def test_steps_without_times_come_from_the_heatmap_and_say_so() -> None:
    heatmap = {"ranks": [0], "steps": [4, 5], "step_seconds": [[1.0, 3.0]]}
    chart = steps_chart(report(heatmap=heatmap), NumberPool())
    assert chart is not None
    assert chart.data["start"] is None
    assert chart.data["worst"] == [1, 0]
    assert "the axis counts them" in chart.note


def test_the_slowest_ranks_are_those_that_work_longest_not_those_that_wait() -> None:
    heatmap = {
        "ranks": [0, 1, 2],
        "steps": [1],
        "step_seconds": [[9.0], [9.0], [9.0]],
        "wait_seconds": [[5.0], [0.5], [8.0]],
    }
    assert slowest_ranks(report(heatmap=heatmap).heatmap) == [1]


EVALUATION = {
    "metric": "eval_reward",
    "steps": [2, 4, 6],
    "values": [0.25, 0.75, 0.5],
    "best_step": 4,
    "best_saved": True,
}


def test_evaluations_are_drawn_over_the_reward_of_training() -> None:
    series = {"eval_reward": [None, 0.25], "loss": [1.0, 2.0], "reward": [0.1, 0.2]}
    views = report(metrics={"steps": [1, 2], "series": series}, evaluation=EVALUATION)
    pool = NumberPool()
    chart = curves_chart(views.curves, pool, views.evaluation)
    assert chart is not None
    reward, loss = chart.data["curves"]
    assert (reward["label"], loss["label"]) == ("reward", "loss")
    over = reward["evaluation"]
    assert unpacked(pool, over["x"]) == [2, 4, 6]
    assert unpacked(pool, over["v"]) == [0.25, 0.75, 0.5]
    assert (over["best"], over["words"]) == (4, "best 0.750 after step 4, saved")
    assert "evaluation" not in loss
    assert chart.summary.endswith(
        "evaluation goes from 0.250 to 0.500, best 0.750 after step 4, saved."
    )


def test_evaluations_without_a_reward_of_training_have_their_own_chart() -> None:
    series = {"eval_reward": [None, 0.25], "loss": [1.0, 2.0]}
    views = report(metrics={"steps": [1, 2], "series": series}, evaluation=EVALUATION)
    chart = curves_chart(views.curves, NumberPool(), views.evaluation)
    assert chart is not None
    assert [curve["label"] for curve in chart.data["curves"]] == ["loss", "eval_reward"]


def test_a_best_step_that_was_not_evaluated_is_no_evaluation() -> None:
    assert report(evaluation={**EVALUATION, "best_step": 5}).evaluation is None
