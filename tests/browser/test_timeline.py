"""What the timeline and the charts beside it draw, told by themselves, at any length of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document.views import views
from grpo_doctor_reports import render_html
from tests.browser.acting import box_of, drag, press, range_of, show, text_of, wait_for_value
from tests.large_runs import large_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.devtools import Tab
    from tests.browser.reports import Reports

pytestmark = pytest.mark.browser

_LANES = "document.querySelector('[data-chart=lanes]')"


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


def test_what_is_drawn_has_the_shares_of_the_caption(long: Tab) -> None:
    drawn = long.evaluate(f"{_LANES}.viewShares")
    caption = text_of(long, "#timeline figcaption")
    assert caption.startswith("Mean of 4 ranks over 1,999 steps: ")
    assert drawn["steps"] == 1_999
    for name, percent in re.findall(r"(\w+) ([\d.]+)%", caption.split(".  ")[0].split(" Drawn")[0]):
        assert 100 * drawn["shares"][name] == pytest.approx(float(percent), abs=0.6)
    assert sum(drawn["shares"].values()) == pytest.approx(1)


def test_a_window_shows_every_span_and_0_the_run_again(long: Tab) -> None:
    assert long.evaluate(f"{_LANES}.barsDrawn") == 0
    full_range = range_of(long, "lanes")
    long.evaluate("document.querySelectorAll('#windows button')[2].click()")
    # 4 ranks with 4 phases, 2 sub-spans and a collective in the worst step; and of its neighbours.
    long.wait_for(lambda: long.evaluate(f"{_LANES}.barsDrawn") >= 28)
    assert "span by span" in text_of(long, "#strips-readout")
    assert text_of(long, "#windows button:nth-of-type(3)") == "worst step 857"
    press(long, "0")
    wait_for_value(long, f"{_LANES}.barsDrawn", 0)
    assert range_of(long, "lanes") == full_range
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
    drag(long, ".lanes-body", 0.5, 0.75)
    long.wait_for(lambda: _width(long) < 0.4 * (high - low))


def _width(tab: Tab) -> float:
    low, high = range_of(tab, "lanes")
    return high - low


def _ctrl_wheel(tab: Tab) -> None:
    x, y, width, height = box_of(tab, ".lanes-body")
    tab.call(
        "Input.dispatchMouseEvent", type="mouseWheel", x=x + width / 2, y=y + height / 2,
        deltaX=0, deltaY=-120, modifiers=2,
    )  # fmt: skip
    tab.frame()


def test_step_by_step_has_columns_to_see_at_2000_steps(long: Tab) -> None:
    show(long, "steps")
    steps = "document.querySelector('[data-chart=steps]')"
    narrowest, covered, worst = long.evaluate(
        f"(({{ columns, _fullLayout: {{ xaxis }} }}) => ["
        "Math.min(...columns.slice(1, -1).map((c) => xaxis.d2p(c.end) - xaxis.d2p(c.start))),"
        "columns.reduce((sum, c) => sum + c.count, 0),"
        f"Math.max(...columns.filter((c) => c.used).map((c) => c.worst))])({steps})"
    )
    assert narrowest >= 2.9
    assert covered == 2_000
    longest = re.findall(r"step \d+, ([\d.]+) s", text_of(long, "#steps figcaption"))
    assert worst == pytest.approx(float(longest[0]), rel=0.005)


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
