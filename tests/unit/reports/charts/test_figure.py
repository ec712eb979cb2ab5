"""Figures: numbers that come back, colours of the theme, and the same figure in a notebook."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor_reports.charts import charts_of
from grpo_doctor_reports.charts.figure import (
    Column,
    boxes,
    column,
    figure,
    moments,
    notebook_figure,
    packed,
    plain,
    token,
)
from grpo_doctor_reports.schema.report import read_report
from tests.demo_reports import DEMOS
from tests.unit.reports.charts.built import numbers


def test_numbers_come_back_to_three_digits_of_the_typical_one() -> None:
    back = numbers(column([41.234, None, 39.876, 0.04, 812.3]))
    assert back == [41.2, None, 39.9, 0.0, 812.3]


def test_moments_come_back_far_finer_than_a_pixel() -> None:
    times = [0.0, 12.3456, 1_999.999]
    assert numbers(moments(times, 2_000.0)) == pytest.approx(times, abs=2_000 / 100_000)


@given(st.lists(st.floats(-1e15, 1e15) | st.none()))
def test_any_numbers_can_be_packed(values: list[float | None]) -> None:
    back = numbers(column(values))
    assert [value is None for value in back] == [value is None for value in values]


def test_a_page_carries_figures_as_base64_of_json() -> None:
    text = packed({"x": Column([1, 3, None]), "</script>": "<b>"})
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    read = json.loads(gzip.decompress(base64.b64decode(text)))
    assert read == {"x": {"n": [0, 1, 2, None]}, "</script>": "<b>"}
    with pytest.raises(TypeError, match="set"):
        packed({"x": {1}})


def test_a_notebook_gets_outlines_and_the_light_theme() -> None:
    edges = [Column([1.0]), Column([2.0]), Column([3.0]), Column([4.0])]
    shown = notebook_figure(figure([boxes(edges, token("ink"))], 100))
    assert list(shown.data[0].x) == [1, 1, 2, 2, 1, None]
    assert list(shown.data[0].y) == [3, 4, 4, 3, 3, None]
    assert shown.data[0].fillcolor == "#1b1e23"


@pytest.mark.parametrize("name", ["slow", "hostile", "long"])
def test_plotly_accepts_every_figure(name: str) -> None:
    charts = charts_of(read_report(DEMOS[name]()))
    assert set(charts) == {"waterfall", "steps", "heatmap", "lanes", "strips", "curves"}
    for chart in charts.values():
        for spec in chart.figures.values():
            assert notebook_figure(spec).data


def test_markup_is_shown_as_it_was_written() -> None:
    assert plain("<b>&") == "&lt;b&gt;&amp;"
