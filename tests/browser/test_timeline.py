"""What the timeline and the charts beside it draw, told by themselves, at any length of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document.views import views
from grpo_doctor_reports import render_html
from tests.browser.acting import box_of, click, drag, press, range_of, show, text_of, wait_for_value
from tests.large_runs import large_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.devtools import Tab
    from tests.browser.reports import Reports

pytestmark = pytest.mark.browser

_DRAG = "[data-chart=lanes] .nsewdrag"
_CLOSE = (
    "document.querySelector('[data-chart=lanes]')._fullData"
    ".some(({ meta, visible }) => meta?.near && visible === true)"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 ranks and 2,000 steps: buckets of two, and some windows of exact spans."""
    document = {"schema": 1, "views": msgspec.to_builtins(views(analyse(large_run(4, 2_000))))}
    path = tmp_path_factory.mktemp("timeline") / "page.html"
    path.write_text(render_html(document), encoding="utf-8")
    return path


@pytest.fixture
def long(tab: Tab, page: Path) -> Tab:
    tab.open(page, width=1_440)
    show(tab, "lanes")
    return tab


def test_a_window_shows_every_span_and_0_the_run_again(long: Tab) -> None:
    assert long.evaluate(_CLOSE) is False
    full_range = range_of(long, "lanes")
    long.evaluate("document.querySelectorAll('#windows button')[2].click()")
    wait_for_value(long, _CLOSE, True)
    _point_at(long, 0.3, 0.75)
    assert re.match(r"14 min \d+ s, rank 2: rollout", text_of(long, "#readout"))
    assert text_of(long, "#windows button:nth-of-type(3)") == "worst step 857"
    press(long, "0")
    wait_for_value(long, _CLOSE, False)
    assert range_of(long, "lanes") == full_range
    _point_at(long, 0.3, 0.1)
    assert "% of the step" in text_of(long, "#readout")
    assert long.problems() == []


def test_keys_wheel_and_dragging_move_the_timeline(long: Tab) -> None:
    low, high = range_of(long, "lanes")
    press(long, "w")
    long.wait_for(lambda: _width(long) == pytest.approx((high - low) / 2))
    at = range_of(long, "lanes")[0]
    press(long, "d")
    long.wait_for(lambda: range_of(long, "lanes")[0] > at)
    press(long, "a")
    long.wait_for(lambda: range_of(long, "lanes")[0] == pytest.approx(at))
    press(long, "s")
    long.wait_for(lambda: _width(long) == pytest.approx(high - low))
    _ctrl_wheel(long)
    long.wait_for(lambda: _width(long) < high - low)
    press(long, "0")
    long.wait_for(lambda: _width(long) == pytest.approx(high - low))
    drag(long, _DRAG, 0.5, 0.75)
    long.wait_for(lambda: _width(long) < 0.4 * (high - low))


def _width(tab: Tab) -> float:
    low, high = range_of(tab, "lanes")
    return high - low


def _ctrl_wheel(tab: Tab) -> None:
    x, y, width, height = box_of(tab, _DRAG)
    tab.call(
        "Input.dispatchMouseEvent", type="mouseWheel", x=x + width / 2, y=y + height / 2,
        deltaX=0, deltaY=-120, modifiers=2,
    )  # fmt: skip
    tab.frame()


def _point_at(tab: Tab, across: float, down: float) -> None:
    x, y, width, height = box_of(tab, _DRAG)
    tab.call(
        "Input.dispatchMouseEvent", type="mouseMoved", x=x + across * width, y=y + down * height
    )
    tab.frame()


def test_a_click_on_a_bar_leads_to_its_slowest_step(long: Tab) -> None:
    show(long, "steps")
    click(long, "[data-chart=steps] .nsewdrag")
    long.wait_for(lambda: text_of(long, "#worst-label").startswith("step "))
    assert _width(long) < 1


def test_a_theme_that_changes_while_a_chart_is_painted_wins(tab: Tab, reports: Reports) -> None:
    tab.open(reports / "slow.html", width=1_440)
    show(tab, "waterfall")
    label = "document.querySelector('[data-chart=waterfall] .ytick text').style.fill"
    light = tab.evaluate(label)
    # Each drawing waits at a gate of its own; plotly answers when the test opens it.
    tab.evaluate(
        "window.gates = []; const react = Plotly.react;"
        "Plotly.react = (element, ...more) => element.dataset.chart !== 'waterfall'"
        " ? react(element, ...more)"
        " : new Promise((open) => gates.push(open)).then(() => react(element, ...more))"
    )
    theme = "document.getElementById('theme').click()"
    tab.evaluate(theme)  # dark: its drawing waits
    wait_for_value(tab, "gates.length", 1)
    tab.evaluate(f"{theme}; {theme}; {theme}")  # light, dark, light, while it waits
    tab.frame()
    assert tab.evaluate("gates.length") == 1
    tab.evaluate("gates[0]()")
    wait_for_value(tab, "gates.length", 2)  # one more for all three
    assert tab.evaluate(label) != light
    tab.evaluate("gates[1]()")
    wait_for_value(tab, label, light)
    tab.evaluate(theme)  # the queue is not stuck
    wait_for_value(tab, "gates.length", 3)
    tab.evaluate("gates[2]()")
    tab.wait_for(lambda: tab.evaluate(label) != light)
