"""Samples over time: which tracks share a strip, what is thinned, and what is only said."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.charts.figure import Chart, Figure
from grpo_doctor_reports.charts.strips import strips_chart
from tests.unit.reports.charts.built import boxes, numbers, report, traces


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
    chart = strips_chart(report(timeline=timeline).views.timeline)
    assert chart is not None
    assert chart.facts == {"Hosts": ["CPU, of all cores"]}
    assert chart.note == (
        "2 more series only in the trace. "
        "Constant: throttle reasons (bits) 0, swap used 0 B, shared memory size 1 GiB."
    )


def track(name: str, values: list[float | None], unit: str = "%", **more: Any) -> dict[str, Any]:
    times = [float(at) for at in range(len(values))]
    return {"name": name, "unit": unit, "group": "host", "t_s": times, "v": values, **more}


def drawn(*tracks: dict[str, Any], left_out: int = 0) -> Chart:
    timeline = {"end_s": 9.0, "tracks": list(tracks), "tracks_left_out": left_out}
    chart = strips_chart(report(timeline=timeline).views.timeline)
    assert chart is not None
    return chart


def titles(chart: Chart) -> list[tuple[str, list[str]]]:
    return list(chart.facts.items())


def lines(chart: Chart) -> list[Figure]:
    """The lines of the hosts, without what lies behind them."""
    return [t for t in chart.figures["Hosts"]["data"] if t.get("fill") != "toself"]


MOVES: list[float | None] = [1.0, 2.0]


def test_groups_and_strips_have_an_order_of_their_own_the_unknown_last() -> None:
    chart = drawn(
        track("mine", MOVES, group="engine"), track("b", MOVES), track("a", MOVES),
        track("host.load1", MOVES), track("host.cpu", MOVES), track("gpu.util", MOVES, group="gpu"),
        track("rank.cpu", MOVES, group="rank"),
    )  # fmt: skip
    assert titles(chart) == [
        ("GPUs", ["GPU utilization"]),
        ("Hosts", ["CPU, of all cores", "load, 1 min", "a", "b"]),
        ("Processes", ["CPU, 100% = one core"]),
        ("Other", ["mine"]),
    ]


def test_lines_of_one_name_share_a_strip_and_are_called_by_their_label_or_name() -> None:
    first, second = lines(
        drawn(track("gpu.util", [1.0, None, 3.0], label="GPU 0"), track("gpu.util", MOVES))
    )
    assert (first["meta"], second["meta"]) == (["GPU 0", "%"], ["gpu.util", "%"])
    assert first["yaxis"] == second["yaxis"] == "y2"
    assert (numbers(first["y"]), numbers(first["x"])) == ([1.0, None, 3.0], [0.0, 1.0, 2.0])


def test_one_sample_is_drawn_and_several_equal_ones_are_said() -> None:
    chart = drawn(track("a", [5.0]), track("b", [5.0, None, 5.0]), track("c", [None]))
    assert titles(chart) == [("Hosts", ["a"])]
    assert chart.note == "Constant: b 5%."
    several = drawn(track("a", [5.0, 5.0]), track("a", [7.0, 7.0]), track("b", MOVES))
    assert several.note == "Constant: a 5% to 7%."
    apart = drawn(track("a", [5.0, 5.0]), track("a", [7.0, 8.0]))
    assert titles(apart) == [("Hosts", ["a"])]


def test_bytes_are_in_the_unit_that_reads_best() -> None:
    values = [None, -3.0 * 2**20, 1.0 * 2**20]
    chart = drawn(track("a", values, "bytes/s"), track("b", [1.0, 1023.0], "bytes"))
    a, b = lines(chart)
    assert (a["meta"][1], b["meta"][1]) == ("MiB/s", "B")
    assert numbers(a["y"]) == [None, -3.0, 1.0]


def test_the_first_three_quantities_that_we_know_are_said_in_the_mean() -> None:
    names = ("gpu.util", "gpu.power", "host.cpu", "host.load1")
    chart = drawn(*(track(name, [1.0, None, 3.0], "%") for name in reversed(names)))
    assert chart.summary == (
        "9 s recorded; mean GPU utilization 2%; mean GPU power 2%; mean CPU 2%."
    )
    assert drawn(track("mine", MOVES)).summary == "9 s recorded."


def test_tracks_beyond_four_hundred_are_counted() -> None:
    tracks = [track(f"t{at % 3}", MOVES) for at in range(402)]
    assert drawn(*tracks[:400]).note == ""
    assert drawn(*tracks).note == "2 more series only in the trace."
    assert drawn(*tracks, left_out=3).note == "5 more series only in the trace."


def test_of_more_names_than_thirty_the_first_are_drawn() -> None:
    chart = drawn(*(track(f"t{at:02}", MOVES) for at in range(31)))
    assert titles(chart) == [("Hosts", [f"t{at:02}" for at in range(30)])]


@pytest.mark.parametrize(("count", "more"), [(30, ""), (31, " and 1 more"), (33, " and 3 more")])
def test_of_what_never_changes_thirty_are_named(count: int, more: str) -> None:
    flat = [track(f"t{at:02}", [1.0, 1.0]) for at in range(count)]
    listing = ", ".join(f"t{at:02} 1%" for at in range(30))
    assert drawn(*flat).note == f"Constant: {listing}{more}."


@pytest.mark.parametrize(("samples", "points"), [(600, 600), (601, 600)])
def test_a_long_track_is_thinned_and_that_is_said(samples: int, points: int) -> None:
    chart = drawn(track("a", [float(at % 7) for at in range(samples)]))
    (line,) = lines(chart)
    assert len(numbers(line["y"])) == points
    assert len(chart.figures["Hosts"]["data"]) == 1 + (samples > points)
    thinned = "Lines are averages, shaded from minimum to maximum; the trace has every sample."
    assert chart.note == (thinned if samples > points else "")


def test_many_tracks_share_the_points() -> None:
    values: list[float | None] = [float(at % 7) for at in range(200)]
    chart = drawn(*(track("a", values) for _ in range(100)))
    assert {len(numbers(line["y"])) for line in lines(chart)} == {100}
    more = drawn(*(track("a", values) for _ in range(400)))
    assert len(numbers(lines(more)[0]["y"])) == 40


def test_the_phases_of_the_first_rank_lie_behind_the_strips() -> None:
    bands = [{"rank": 0, "phase": "train", "start_s": 1.0, "end_s": 2.0},
             {"rank": 1, "phase": "rollout", "start_s": 1.0, "end_s": 2.0}]  # fmt: skip
    tracks = [{"name": "a", "t_s": [0.0, 1.0], "v": MOVES}]
    timeline = report(timeline={"end_s": 9.0, "bands": bands, "tracks": tracks}).views.timeline
    chart = strips_chart(timeline)
    assert chart is not None
    (behind,) = traces(chart.figures["Other"])
    assert behind["meta"] == {"phase": "train"}
    assert boxes(behind) == [(1.0, 2.0, 0.0, 1.0)]
