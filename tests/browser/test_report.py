"""What only a browser can tell: charts are drawn, nothing is fetched, nothing executes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grpo_doctor_reports.demo import DEMOS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.devtools import Tab

pytestmark = pytest.mark.browser

_PENDING = "document.querySelectorAll('.plot:not(.drawn):not(.failed)').length"


def show_all(tab: Tab) -> None:
    """Open every fold, scroll through the page and wait until every chart is drawn."""
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    height = int(tab.evaluate("document.documentElement.scrollHeight"))
    for top in range(0, height, 500):
        tab.evaluate(f"scrollTo({{ top: {top}, behavior: 'instant' }})")
        tab.evaluate("new Promise((next) => requestAnimationFrame(() => setTimeout(next)))")
    tab.evaluate("document.querySelectorAll('.plot').forEach((one) => one.scrollIntoView())")
    tab.wait_for(lambda: _scroll_to_pending(tab) == 0)


def _scroll_to_pending(tab: Tab) -> int:
    tab.evaluate(
        "document.querySelector('.plot:not(.drawn):not(.failed)')"
        "?.scrollIntoView({ behavior: 'instant' })"
    )
    return int(tab.evaluate(_PENDING))


@pytest.fixture
def shown(tab: Tab, reports: Path, request: pytest.FixtureRequest) -> Tab:
    """The tab, showing the demo of the test's parameter with every chart drawn."""
    tab.open(reports / f"{request.param}.html", width=1_440)
    show_all(tab)
    return tab


@pytest.mark.parametrize("shown", DEMOS, indirect=True)
def test_nothing_is_fetched_and_nothing_complains(shown: Tab) -> None:
    assert shown.problems() == []
    outside = [url for url in shown.requests() if not url.startswith(("file:", "data:"))]
    assert outside == []
    assert len([url for url in shown.requests() if url.startswith("file:")]) == 1
    assert shown.evaluate("document.querySelectorAll('.plot.failed').length") == 0


@pytest.mark.parametrize("shown", ["slow", "long"], indirect=True)
def test_every_chart_is_really_drawn(shown: Tab) -> None:
    traces = shown.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.plot')].map((plot) => "
        "[plot.dataset.chart + plot.dataset.index, plot._fullData.length]))"
    )
    assert set(traces) >= {"waterfall", "heatmap", "strips0", "strips1", "strips2", "curves0"}
    assert min(traces.values()) >= 1
    assert shown.evaluate("document.querySelectorAll('.plot .bars path').length") >= 10
    assert shown.evaluate("document.querySelectorAll('.plot .hm image').length") == 1
    assert (
        shown.evaluate("document.querySelectorAll('.plot .scatterlayer path.js-line').length") > 20
    )


@pytest.mark.parametrize("shown", ["hostile"], indirect=True)
def test_hostile_strings_execute_nothing_and_stay_text(shown: Tab) -> None:
    assert shown.evaluate("window.executed") is None
    assert (
        shown.evaluate("document.querySelectorAll('main img, main b b, main a[href^=java]').length")
        == 0
    )
    assert (
        shown.evaluate("document.querySelectorAll('main [onmouseover], main [onerror]').length")
        == 0
    )
    labels = shown.evaluate(
        "[...document.querySelectorAll('.plot text')].map((one) => one.textContent)"
    )
    assert any("</script><img src=x onerror=" in label for label in labels)
    assert any("%{x}<b>bold</b>%{customdata}" in label for label in labels)


@pytest.mark.parametrize("shown", ["hostile"], indirect=True)
def test_hostile_hover_texts_stay_text(shown: Tab) -> None:
    shown.evaluate(
        "Plotly.Fx.hover(document.querySelector('[data-chart=waterfall]'),"
        " [{ curveNumber: 0, pointNumber: 3 }])"
    )
    hover = "document.querySelector('.hovertext')?.textContent ?? ''"
    shown.wait_for(lambda: shown.evaluate(hover))
    assert "%{x}<b>bold</b>%{customdata}" in shown.evaluate(hover)
    assert shown.evaluate("window.executed") is None


@pytest.mark.parametrize("width", [1_440, 800, 400])
@pytest.mark.parametrize("name", [name for name in DEMOS if name != "long"])
def test_no_page_scrolls_sideways(tab: Tab, reports: Path, name: str, width: int) -> None:
    tab.open(reports / f"{name}.html", width=width)
    show_all(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_verdict_bar_and_top_findings_fit_on_the_first_screen(tab: Tab, reports: Path) -> None:
    tab.open(reports / "slow.html", width=1_440, height=900)
    assert tab.evaluate("document.querySelector('.cards').getBoundingClientRect().bottom") < 900


def test_charts_are_drawn_only_when_they_come_into_view(tab: Tab, reports: Path) -> None:
    tab.open(reports / "slow.html", width=1_440, height=900)
    tab.wait_for(lambda: tab.evaluate("document.querySelectorAll('.plot.drawn').length"))
    assert tab.evaluate("document.querySelector('#curves .plot.drawn')") is None


def test_selectors_redraw_their_charts(tab: Tab, reports: Path) -> None:
    tab.open(reports / "slow.html", width=1_440)
    show_all(tab)
    corner = "document.querySelector('[data-chart=heatmap]')._fullData[0].z[5][0]"
    lane = (
        "JSON.stringify(document.querySelector('[data-chart=strips]')._fullData[0].x.slice(0, 9))"
    )
    before = (tab.evaluate(corner), tab.evaluate(lane))
    for select, value in (("heatmap-kind", 1), ("strips-rank", 5)):
        tab.evaluate(
            f"(() => {{ const one = document.getElementById('{select}'); one.value = '{value}';"
            " one.dispatchEvent(new Event('change')); })()"
        )
    tab.wait_for(lambda: tab.evaluate(corner) != before[0] and tab.evaluate(lane) != before[1])


def test_zooming_one_strip_zooms_all(tab: Tab, reports: Path) -> None:
    tab.open(reports / "slow.html", width=1_440)
    show_all(tab)
    tab.evaluate(
        "Plotly.relayout(document.querySelector('[data-chart=strips]'),"
        " { 'xaxis.range[0]': 3, 'xaxis.range[1]': 5 }).then(() => null)"
    )
    ranges = (
        "JSON.stringify([...document.querySelectorAll('[data-chart=strips]')]"
        ".map((one) => one._fullLayout.xaxis.range))"
    )
    tab.wait_for(lambda: tab.evaluate(ranges) == "[[3,5],[3,5],[3,5]]")


def test_the_theme_follows_the_system_and_the_button(tab: Tab, reports: Path) -> None:
    page = "getComputedStyle(document.body).backgroundColor"
    label = "document.querySelector('[data-chart=waterfall] .ytick text').style.fill"
    tab.dark(True)
    tab.open(reports / "slow.html", width=1_440)
    show_all(tab)
    dark_page, dark_label = tab.evaluate(page), tab.evaluate(label)
    tab.evaluate("document.getElementById('theme').click()")
    tab.wait_for(lambda: tab.evaluate(label) != dark_label)
    assert tab.evaluate(page) != dark_page
    tab.evaluate("localStorage.clear()")
    tab.dark(False)


def test_copy_buttons_hold_exactly_the_fix(tab: Tab, reports: Path) -> None:
    tab.open(reports / "slow.html", width=1_440)
    copied = tab.evaluate(
        "new Promise((done) => { navigator.clipboard.writeText = async (text) => done(text);"
        " document.querySelectorAll('.card .copy')[2].click(); })"
    )
    assert copied == "--dataloader_num_workers 4 --dataloader_prefetch_factor 2"


def test_a_link_to_a_finding_leads_to_it(tab: Tab, reports: Path) -> None:
    tab.open(reports / "slow.html", width=1_440)
    tab.evaluate("location.hash = '#GD011'")
    tab.wait_for(
        lambda: (
            0 <= tab.evaluate("document.getElementById('GD011').getBoundingClientRect().top") < 200
        )
    )


def test_without_scripts_the_page_is_whole_but_for_its_charts(tab: Tab, reports: Path) -> None:
    tab.open(reports / "slow.html", width=1_440, scripts=False)
    text = str(tab.evaluate("document.body.innerText"))
    for said in (
        "A third of each step",
        "8.4 % to",
        "--offload_optimizer false",
        "The longest step is",
    ):
        assert said in text
    assert tab.evaluate("document.querySelector('.copy').checkVisibility()") is False
    assert tab.evaluate("document.querySelector('#ranks figure').offsetHeight") < 60


def test_paper_is_light_also_for_those_who_read_in_the_dark(tab: Tab, reports: Path) -> None:
    tab.dark(True)
    tab.open(reports / "slow.html", width=1_440)
    show_all(tab)
    ink = "getComputedStyle(document.documentElement).getPropertyValue('--ink')"
    dark_ink = tab.evaluate(ink)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate(ink) != dark_ink
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate(ink) == dark_ink
    tab.dark(False)
