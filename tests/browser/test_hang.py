"""What only a browser can tell of the page about a stuck job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.demo_verdicts import VISITS
from tests.demo_verdicts.__main__ import main as write_demos

if TYPE_CHECKING:
    from tests.browser.devtools import Tab

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `<name>.html` of every demo verdict."""
    folder = tmp_path_factory.mktemp("hang")
    write_demos(folder)
    return folder


@pytest.mark.parametrize("width", [1_440, 800, 400])
@pytest.mark.parametrize("name", VISITS)
def test_it_fits_fetches_nothing_and_complains_about_nothing(
    tab: Tab, pages: Path, name: str, width: int
) -> None:
    tab.open(pages / f"{name}.html", width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.problems() == []
    assert [url for url in tab.requests() if not url.startswith("data:")] == [
        (pages / f"{name}.html").as_uri()
    ]


def test_verdict_and_what_to_do_are_on_the_first_screen(tab: Tab, pages: Path) -> None:
    tab.open(pages / "stopped64.html", width=1_440, height=900)
    assert tab.evaluate("document.querySelector('.steps').getBoundingClientRect().bottom") < 600
    assert tab.evaluate("document.querySelector('svg').getBoundingClientRect().bottom") < 900


@pytest.mark.parametrize("name", ["stopped64", "deadlock", "ring", "reward"])
def test_the_graphs_words_can_be_read_on_800_pixels(tab: Tab, pages: Path, name: str) -> None:
    tab.open(pages / f"{name}.html", width=800)
    shrunk_to = tab.evaluate(
        "(({ width }, { viewBox }) => width / viewBox.baseVal.width)"
        "(document.querySelector('svg').getBoundingClientRect(), document.querySelector('svg'))"
    )
    assert shrunk_to * 13 > 7.5
    outside = tab.evaluate(
        "[...document.querySelectorAll('svg g')].filter((box) => {"
        " const frame = box.querySelector('rect').getBoundingClientRect();"
        " return [...box.querySelectorAll('text')].some((text) => {"
        "  const words = text.getBoundingClientRect();"
        "  return words.left < frame.left || words.right > frame.right"
        "   || words.bottom > frame.bottom; }); }).length"
    )
    assert outside == 0


def test_hostile_strings_execute_nothing(tab: Tab, pages: Path) -> None:
    tab.open(pages / "hostile.html", width=1_440)
    assert tab.evaluate("window.executed") is None
    assert tab.evaluate("document.querySelectorAll('main img, main script, main b b').length") == 0


def test_it_reads_without_scripts_and_in_the_dark(tab: Tab, pages: Path) -> None:
    tab.open(pages / "stopped.html", width=1_440, scripts=False)
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "Rank 3 is stopped" in tab.evaluate("document.querySelector('h1').textContent")
    tab.dark(True)
    tab.open(pages / "stopped.html", width=1_440)
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.dark(False)
    assert light == "rgb(20, 22, 26)"
