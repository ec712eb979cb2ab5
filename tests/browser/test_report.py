"""What only a browser can tell: charts are drawn, nothing is fetched, nothing executes."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from grpo_doctor.document import build_document
from grpo_doctor_reports import render_html
from tests.browser.acting import show, show_all, wait_for_value
from tests.demo_reports import DEMOS
from tests.demo_reports.documents import wide_document
from tests.large_runs import large_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.devtools import Tab
    from tests.browser.reports import Reports

pytestmark = pytest.mark.browser


_WIDTHS = (1_440, 800, 400)
_QUICK_S = 10.0


@pytest.fixture(scope="module", params=DEMOS)
def name(request: pytest.FixtureRequest) -> str:
    """A demo; of the module, so that all tests of one are together and open it once."""
    return str(request.param)


@pytest.fixture
def shown(tab: Tab, reports: Reports, name: str) -> Tab:
    """The tab, showing the demo of the test's parameter with every chart drawn."""
    page = reports / f"{name}.html"
    if tab.whole != page:
        tab.open(page, width=_WIDTHS[0])
        show_all(tab)
        tab.whole = page
    return tab


def test_nothing_is_fetched_and_nothing_complains(shown: Tab) -> None:
    assert shown.problems() == []
    outside = [url for url in shown.requests() if not url.startswith(("file:", "data:"))]
    assert outside == []
    assert len([url for url in shown.requests() if url.startswith("file:")]) == 1
    assert shown.evaluate("document.querySelectorAll('.plot.failed').length") == 0


@pytest.mark.parametrize("name", ["slow", "long"], indirect=True)
def test_every_chart_is_really_drawn(shown: Tab) -> None:
    traces = shown.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.plot')].map((plot) => "
        "[plot.dataset.chart, plot._fullData?.length ?? 0]))"
    )
    assert set(traces) == {"waterfall", "steps", "heatmap", "lanes", "strips", "curves"}
    assert min(traces.values()) >= 1
    assert shown.evaluate("document.querySelectorAll('.plot .bars path').length") >= 10
    assert shown.evaluate("document.querySelectorAll('.plot .hm image').length") == 1
    assert (
        shown.evaluate("document.querySelectorAll('.plot .scatterlayer path.js-line').length") > 20
    )


@pytest.mark.parametrize("name", ["hostile"], indirect=True)
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


@pytest.mark.parametrize("name", ["hostile"], indirect=True)
def test_hostile_hover_texts_stay_text(shown: Tab) -> None:
    show(shown, "waterfall")
    hover = "document.querySelector('.hovertext')?.textContent ?? ''"
    texts: list[str] = []
    bars = "document.querySelector('[data-chart=waterfall]')._fullData"
    kinds = shown.evaluate(f"{bars}.map((trace) => trace.type + trace.marker.pattern?.shape)")
    for curve in [at for at, kind in enumerate(kinds) if kind == "bar"]:
        shown.evaluate(
            "Plotly.Fx.hover(document.querySelector('[data-chart=waterfall]'),"
            f" [{{ curveNumber: {curve}, pointNumber: 0 }}])"
        )
        shown.wait_for(lambda: shown.evaluate(hover) not in {"", *texts[-1:]})
        texts.append(str(shown.evaluate(hover)))
    assert any("%{x}<b>bold</b>%{customdata}" in text for text in texts)
    assert shown.evaluate("window.executed") is None


def test_no_page_scrolls_sideways(shown: Tab) -> None:
    for width in _WIDTHS:
        shown.resize(width, 900)
        shown.frame()
        # Charts are drawn again a moment after the window has its size.
        shown.wait_for(partial(_fits, shown, width))
    shown.resize(_WIDTHS[0], 900)


def _fits(tab: Tab, width: int) -> bool:
    return int(tab.evaluate("document.documentElement.scrollWidth")) <= width


@pytest.mark.parametrize("page", ["slow", "hostile"])
def test_no_page_that_is_opened_on_a_telephone_scrolls_sideways(
    tab: Tab, reports: Reports, page: str
) -> None:
    tab.open(reports / f"{page}.html", width=_WIDTHS[-1])
    show_all(tab)
    assert _fits(tab, _WIDTHS[-1])


def test_verdict_bar_and_top_findings_fit_on_the_first_screen(tab: Tab, reports: Reports) -> None:
    tab.open(reports / "slow.html", width=1_440, height=900)
    assert tab.evaluate("document.querySelector('.cards').getBoundingClientRect().bottom") < 900


_LAYOUT = """(() => {
  const of = (selector, read) => [...document.querySelectorAll(selector)].map(read);
  const box = (one) => one.getBoundingClientRect();
  const gap = (one) => [...one.children].slice(1).reduce((most, child, at) =>
    Math.max(most, box(child).top - box(one.children[at]).bottom), 0);
  const brand = document.querySelector(".brand");
  return {
    holes: of(".card > div, .card", (one) => gap(one)).filter((most) => most > 40),
    large: of(".cards:not(.alone) .card:is(.low, .info)", (one) => box(one).height / box(one).width)
      .filter((slope) => slope > 0.2),
    clipped: of(".scroll", (one) => one.clientWidth && one.scrollWidth - one.clientWidth)
      .filter((beyond) => beyond > 0),
    navRows: new Set(of(".topbar nav a", (one) => box(one).top)).size,
    brandCut: brand.scrollWidth > brand.clientWidth,
  };
})()"""


@pytest.mark.parametrize("width", [800, 1_440])
@pytest.mark.parametrize("name", ["slow", "crowded", "killed", "idle ranks"])
def test_cards_have_no_holes_tables_fit_and_the_top_bar_names_the_run(
    tab: Tab, reports: Reports, tmp_path: Path, name: str, width: int
) -> None:
    page = reports / f"{name}.html" if name in DEMOS else tmp_path / "page.html"
    if name not in DEMOS:
        page.write_text(render_html(build_document(large_run(8, 20))), encoding="utf-8")
    tab.open(page, width=width)
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    major = "document.querySelector('.card:not(.low, .info)')"
    tab.evaluate(f"{major}?.append('one card is higher '.repeat(50))")
    layout = tab.evaluate(_LAYOUT)
    assert layout == {"holes": [], "large": [], "clipped": [], "navRows": 1, "brandCut": False}


def test_charts_out_of_view_are_drawn_too_for_paper_and_pictures_of_the_whole_page(
    tab: Tab, reports: Reports
) -> None:
    tab.open(reports / "slow.html", width=1_440, height=900)
    pending = "[...document.querySelectorAll('.plot:not(.drawn)')]"
    unseen = f"{pending}.filter((one) => !one.closest('details:not([open])')).length"
    assert tab.evaluate("scrollY") == 0
    tab.wait_for(lambda: tab.evaluate(unseen) == 0)
    assert tab.evaluate("scrollY") == 0
    assert tab.problems() == []


def test_a_selector_redraws_its_chart(tab: Tab, reports: Reports) -> None:
    tab.open(reports / "slow.html", width=1_440)
    show(tab, "heatmap")
    heatmap = "document.querySelector('[data-chart=heatmap]')._fullData"
    corner = f"{heatmap}.find((one) => one.visible === true).z[5][0]"
    before = tab.evaluate(corner)
    tab.evaluate(
        "(() => { const one = document.getElementById('heatmap-kind'); one.value = '1';"
        " one.dispatchEvent(new Event('change')); })()"
    )
    tab.wait_for(lambda: tab.evaluate(corner) != before)


def test_the_theme_follows_the_system_and_the_button(tab: Tab, reports: Reports) -> None:
    label = "document.querySelector('[data-chart=waterfall] .ytick text').style.fill"

    ink = "getComputedStyle(document.body).color"
    tab.dark(True)
    tab.open(reports / "slow.html", width=1_440)
    show_all(tab)
    show(tab, "waterfall")
    dark = tab.evaluate(ink)
    wait_for_value(tab, label, dark)
    tab.evaluate("document.getElementById('theme').click()")
    light = tab.evaluate(ink)
    assert light != dark
    wait_for_value(tab, label, light)
    tab.evaluate("localStorage.clear()")
    tab.dark(False)


def test_copy_buttons_hold_exactly_the_fix(tab: Tab, reports: Reports) -> None:
    tab.open(reports / "slow.html", width=1_440)
    copied = tab.evaluate(
        "new Promise((done) => { navigator.clipboard.writeText = async (text) => done(text);"
        " document.querySelectorAll('.card .copy')[2].click(); })"
    )
    assert copied == "--dataloader_num_workers 4 --dataloader_prefetch_factor 2"


def test_a_link_to_a_finding_leads_to_it(tab: Tab, reports: Reports) -> None:
    tab.open(reports / "slow.html", width=1_440)
    tab.evaluate("location.hash = '#GD011'")
    tab.wait_for(
        lambda: (
            0 <= tab.evaluate("document.getElementById('GD011').getBoundingClientRect().top") < 200
        )
    )


def test_without_scripts_the_page_is_whole_but_for_its_charts(tab: Tab, reports: Reports) -> None:
    tab.open(reports / "slow.html", width=1_440, scripts=False)
    text = str(tab.evaluate("document.body.innerText"))
    for words in (
        "A third of each step",
        "8.4% to",
        "--offload_optimizer false",
        "Most own work in one step:",
    ):
        assert words in text
    assert tab.evaluate("document.querySelector('.copy').checkVisibility()") is False
    assert tab.evaluate("document.querySelector('#ranks figure').offsetHeight") < 60


def test_paper_is_light_also_for_those_who_read_in_the_dark(tab: Tab, reports: Reports) -> None:
    tab.dark(True)
    tab.open(reports / "slow.html", width=1_440)
    show_all(tab)
    ink = "getComputedStyle(document.body).color"
    dark_ink = tab.evaluate(ink)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate(ink) != dark_ink
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate(ink) == dark_ink
    tab.dark(False)


@pytest.mark.slow
@pytest.mark.heavy  # `long` and `crowded` are drawn without it
def test_64_ranks_and_2000_steps_open_in_seconds_and_stay_small(
    tab: Tab, reports: Reports, tmp_path: Path
) -> None:
    page = tmp_path / "wide.html"
    page.write_text(render_html(wide_document(64, 2_000)), encoding="utf-8")
    assert page.stat().st_size < 2_500_000
    # A second where nothing else runs. What grows with the square of the steps takes minutes, and a
    # machine that opens an empty report slowly is busy.
    if _opening_s(tab, page, enough_s=_QUICK_S) >= _QUICK_S:
        empty_s = _opening_s(tab, reports / "minimal.html")
        assert _opening_s(tab, page) < max(_QUICK_S, 12 * empty_s)
    assert tab.problems() == []


def _opening_s(tab: Tab, page: Path, enough_s: float = 0.0) -> float:
    """Seconds until the page has loaded and its first charts are drawn, the best of three.

    Once it took less than `enough_s`, it is not opened again.
    """
    best = float("inf")
    for _ in range(3):
        began = time.monotonic()
        tab.open(page, width=1_440)
        if tab.evaluate("document.querySelector('.plot') !== null"):
            show(tab, "steps", "heatmap")
        best = min(best, time.monotonic() - began)
        if best < enough_s:
            break
    return best
