"""What a reader does with the report: lights, steps, zooms, filters, ticks, copies, prints."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

import pytest

from tests.browser.acting import (
    click,
    double_click,
    drag,
    press,
    range_of,
    show,
    text_of,
    wait_for_range,
)

if TYPE_CHECKING:
    from tests.browser.devtools import Tab
    from tests.browser.reports import Reports

pytestmark = pytest.mark.browser

_OPACITY = (
    "document.querySelector('[data-chart=waterfall]')._fullData.filter((one) => one.type === 'bar')"
    ".map((one) => one.opacity)"
)
_LIT = "document.querySelector('.finding.lit')?.id ?? ''"


@pytest.fixture
def slow(tab: Tab, reports: Reports) -> Tab:
    """The tab, showing the slow run."""
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
    tab.open(reports / "slow.html", width=1_440)
    tab.wait_for(lambda: tab.evaluate("window.Plotly !== undefined"))
    return tab


def test_clicking_a_finding_lights_its_spans_and_escape_puts_the_light_out(slow: Tab) -> None:
    show(slow, "waterfall", "heatmap", "lanes")
    click(slow, "#GD007 h4 a")
    slow.wait_for(lambda: slow.evaluate(_LIT) == "GD007")
    assert slow.evaluate("location.hash") == "#GD007"
    phases = slow.evaluate("JSON.stringify([...document.querySelectorAll('tr[data-phase]')]"
                           ".filter((row) => row.classList.contains('lit'))"
                           ".map((row) => row.dataset.phase))")  # fmt: skip
    assert set(re.findall(r"\w+", phases)) == {"offload", "optimizer"}
    show(slow, "waterfall")
    slow.wait_for(lambda: min(slow.evaluate(_OPACITY)) < 0.5)
    assert max(slow.evaluate(_OPACITY)) == 1
    assert slow.evaluate("document.getElementById('heatmap-kind').selectedOptions[0].text") == (
        "offload"
    )
    press(slow, "Escape")
    assert slow.evaluate(_LIT) == ""
    assert slow.evaluate("location.hash") == ""
    slow.wait_for(lambda: min(slow.evaluate(_OPACITY)) == 1)
    assert slow.evaluate("document.getElementById('heatmap-kind').value") == "0"
    assert slow.problems() == []


def test_a_finding_about_a_rank_has_a_frame_and_no_colour_changes(slow: Tab) -> None:
    show(slow, "heatmap", "lanes")
    heatmap = "document.querySelector('[data-chart=heatmap]')._fullLayout.shapes"
    slow.evaluate("location.hash = '#GD003'")
    show(slow, "heatmap")
    frame = f"{heatmap}.map((shape) => [shape.y0, shape.y1])"
    slow.wait_for(lambda: slow.evaluate(frame))
    assert slow.evaluate(frame) == [[4.5, 5.5]]
    slow.wait_for(lambda: _put_light_out(slow) and not slow.evaluate(frame))


def _put_light_out(tab: Tab) -> bool:
    """A click misses where charts drawn meanwhile move the page; unseen charts are drawn later."""
    if tab.evaluate(_LIT):
        click(tab, "#light-off")
    show(tab, "heatmap")
    return not tab.evaluate(_LIT)


def test_a_link_to_a_finding_opens_and_lights_it(tab: Tab, reports: Reports) -> None:
    tab.open(reports / "crowded.html", width=1_440, target="GD036")
    tab.wait_for(lambda: tab.evaluate(_LIT) == "GD036")  # the page unpacks its data first
    assert tab.evaluate("document.querySelector('#GD036 details').open") is True


def test_the_stepper_goes_from_worst_step_to_worst_step(slow: Tab) -> None:
    show(slow, "steps", "heatmap", "lanes")
    press(slow, "n")
    first = text_of(slow, "#worst-label")
    number = int(re.findall(r"step (\d+), worst of 46", first)[0])
    assert text_of(slow, "#step-detail h3").startswith(f"Step {number}: ")
    assert slow.evaluate("document.querySelectorAll('#step-detail tbody tr').length") == 9
    assert slow.evaluate(f"document.querySelector('.path.focused').dataset.step === '{number}'")
    slow.wait_for(lambda: range_of(slow, "lanes")[1] - range_of(slow, "lanes")[0] < 2)
    show(slow, "heatmap")
    slow.wait_for(lambda: range_of(slow, "heatmap")[1] - range_of(slow, "heatmap")[0] < 4)
    low, high = range_of(slow, "heatmap")
    assert low < number < high
    press(slow, "n")
    assert "2nd worst of 46" in text_of(slow, "#worst-label")
    press(slow, "p")
    assert text_of(slow, "#worst-label") == first
    press(slow, "0")
    show(slow, "lanes")
    slow.wait_for(lambda: range_of(slow, "lanes")[0] == 0)
    assert slow.evaluate("document.getElementById('step-detail').hidden") is True


def test_dragging_in_one_chart_zooms_all_and_a_double_click_shows_the_run(slow: Tab) -> None:
    show(slow, "lanes", "heatmap", "curves", "strips", "steps")
    ranges = {chart: range_of(slow, chart) for chart in ("steps", "lanes", "heatmap", "curves")}
    drag(slow, "[data-chart=steps] .nsewdrag", 0.25, 0.5)
    slow.wait_for(lambda: range_of(slow, "steps") != ranges["steps"])
    end = ranges["steps"][1]
    for chart in ("steps", "lanes", "strips"):
        show(slow, chart)
        wait_for_range(slow, chart, unlike=ranges["lanes"])
        assert range_of(slow, chart) == pytest.approx([end / 4, end / 2], rel=0.05)
    show(slow, "heatmap")
    slow.wait_for(lambda: range_of(slow, "heatmap") != ranges["heatmap"])
    across = range_of(slow, "heatmap")
    show(slow, "curves")
    slow.wait_for(lambda: range_of(slow, "curves") != ranges["curves"])
    steps = range_of(slow, "curves")
    assert steps == pytest.approx([15, 27], abs=2)
    assert across == pytest.approx(steps, abs=0.5)
    assert "min" in text_of(slow, "#window-label")
    slow.wait_for(lambda: _reset_by_double_click(slow))
    for chart, shown in ranges.items():
        show(slow, chart)
        wait_for_range(slow, chart, expected=shown)
    assert text_of(slow, "#window-label") == "whole run"
    assert slow.problems() == []


def _reset_by_double_click(tab: Tab) -> bool:
    """Plotly takes two clicks for a double one within 0.3 s: a busy machine needs a second try."""
    double_click(tab, "[data-chart=lanes] .nsewdrag")
    return text_of(tab, "#window-label") == "whole run"


def test_keys_zoom_and_move_and_leave_fields_alone(slow: Tab) -> None:
    show(slow, "lanes")
    end = range_of(slow, "lanes")[1]
    press(slow, "+")
    slow.wait_for(lambda: range_of(slow, "lanes") == pytest.approx([end / 4, 3 * end / 4]))
    press(slow, "ArrowRight")
    slow.wait_for(lambda: range_of(slow, "lanes")[0] == pytest.approx(3 * end / 8))
    press(slow, "-")
    slow.wait_for(lambda: range_of(slow, "lanes") == pytest.approx([0, end]))
    slow.evaluate("document.getElementById('checks-search').focus()")
    press(slow, "n")
    assert text_of(slow, "#worst-label") == "worst steps"
    assert slow.evaluate("document.getElementById('checks-search').value") == "n"


def test_ticking_fixes_looks_up_what_was_predicted_for_them(slow: Tab) -> None:
    assert text_of(slow, "#whatif-change") == "−15%"  # noqa: RUF001 (a minus sign)
    click(slow, "#whatif-together")
    assert text_of(slow, "#whatif-change") == "−31%"  # noqa: RUF001
    click(slow, "#whatif-fixes label:nth-of-type(1)")
    assert text_of(slow, "#whatif-change") == "−18%"  # noqa: RUF001
    assert text_of(slow, "#whatif-outcome code") == (
        "--offload_optimizer false --dataloader_num_workers 4 --dataloader_prefetch_factor 2"
    )
    click(slow, "#whatif-none")
    assert text_of(slow, "#whatif-change") == "no change"
    assert slow.evaluate("document.querySelector('#whatif-outcome .copy').disabled") is True


def test_severity_and_search_hide_what_is_not_asked_for(tab: Tab, reports: Reports) -> None:
    tab.open(reports / "crowded.html", width=1_440)
    shown = "[...document.querySelectorAll('.finding')].filter((one) => !one.hidden).length"
    ranges = tab.evaluate(shown)
    click(tab, "#severity-filter [data-severity=high]")
    assert 0 < tab.evaluate(shown) < ranges
    tab.evaluate("location.hash = '#GD036'")
    tab.wait_for(lambda: tab.evaluate(shown) == ranges)
    tab.evaluate("document.getElementById('checks-search').focus()")
    tab.call("Input.insertText", text="gd057")
    assert text_of(tab, "#checks-found") == "1 found"


def test_the_glossary_is_a_drawer_for_the_keyboard(slow: Tab) -> None:
    press(slow, "g")
    assert slow.evaluate("document.getElementById('drawer').open") is True
    assert slow.evaluate("document.activeElement.closest('dialog') !== null")
    assert "critical path" in text_of(slow, "#drawer-words")
    press(slow, "Escape")
    assert slow.evaluate("document.getElementById('drawer').open") is False
    click(slow, "#open-glossary")
    assert slow.evaluate("document.getElementById('drawer').open") is True
    press(slow, "g")
    assert slow.evaluate("document.getElementById('drawer').open") is False


def test_a_finding_is_copied_as_markdown_also_without_a_clipboard(slow: Tab) -> None:
    slow.evaluate(
        "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
        "document.execCommand = () => { window.copied = document.activeElement.value; return true }"
    )
    click(slow, "#GD007 .copy[data-copy]")
    assert str(slow.evaluate("window.copied")).startswith("**GD007 The optimizer is offloaded")
    slow.evaluate("document.execCommand = () => false")
    click(slow, "#GD011 .copy[data-copy]")
    slow.wait_for(lambda: slow.evaluate("document.querySelector('.by-hand textarea') !== null"))
    assert "**GD011" in slow.evaluate("getSelection().toString() || document.activeElement.value")
    press(slow, "Escape")
    slow.wait_for(lambda: slow.evaluate("document.querySelector('.by-hand') === null"))


def test_the_keyboard_reaches_everything_and_shows_where_it_is(slow: Tab) -> None:
    focused = set()
    slow.evaluate("document.activeElement.blur()")
    for _ in range(400):
        press(slow, "Tab")
        name, outline = slow.evaluate(
            "((one) => [one.id || one.className || one.tagName,"
            " getComputedStyle(one).outlineStyle])(document.activeElement)"
        )
        if name in {"BODY", "worst-next"} and "worst-next" in focused:
            break
        focused.add(name)
        assert outline != "none", name
    assert {"open-glossary", "theme", "whatif-together", "worst-previous", "worst-next"} <= focused


def test_paper_gets_all_findings_and_all_charts(tab: Tab, reports: Reports) -> None:
    tab.open(reports / "crowded.html", width=1_440)
    tab.wait_for(lambda: tab.evaluate("window.Plotly !== undefined"))
    closed = "document.querySelectorAll('details:not([open])').length"
    before = tab.evaluate(closed)
    tab.evaluate(
        "addEventListener('beforeprint', () => { window.onPaper = ["
        f"{closed}, document.querySelectorAll('.plot:not(.drawn) .main-svg').length,"
        " document.querySelectorAll('.plot .main-svg').length > 10,"
        " Math.max(...[...document.querySelectorAll('.plot')].map((one) => one.clientWidth))] })"
    )
    paper = base64.b64decode(tab.call("Page.printToPDF", printBackground=True)["data"])
    folds, _, drawn, widest = tab.evaluate("window.onPaper")
    assert (folds, drawn) == (0, True)
    assert widest <= 690
    assert paper.startswith(b"%PDF")
    assert tab.evaluate(closed) == before
    assert tab.problems() == []


def test_motion_is_left_out_for_those_who_ask_for_it(tab: Tab, reports: Reports) -> None:
    tab.call(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-reduced-motion", "value": "reduce"}],
    )
    tab.open(reports / "healthy.html", width=1_440)
    assert tab.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    tab.dark(False)
