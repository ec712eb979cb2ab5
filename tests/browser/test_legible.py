"""What can be read stays legible and stays where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from grpo_doctor.compare import compare
from grpo_doctor_reports.compare import comparison_page
from grpo_doctor_reports.hang.page import hang_page
from tests.browser.acting import show_all
from tests.browser.contrast import low_contrast
from tests.browser.layout_shift import layout_shift, watch_layout_shift, what_shifted
from tests.demo_verdicts import VISITS
from tests.unit.findings.example_runs import healthy, offloaded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.devtools import Tab
    from tests.browser.reports import Reports

pytestmark = pytest.mark.browser
MOST_SHIFT = 0.02
_FINDINGS = "document.querySelectorAll('button.light').length"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_can_be_read_whichever_finding_is_highlighted(
    tab: Tab, reports: Reports, dark: bool
) -> None:
    tab.dark(dark)
    tab.open(reports / "slow.html", width=1_440)
    assert low_contrast(tab) == []
    assert tab.evaluate(_FINDINGS) > 2
    for number in range(tab.evaluate(_FINDINGS)):
        tab.evaluate(f"document.querySelectorAll('button.light')[{number}].click()")
        assert tab.evaluate("document.querySelectorAll('button.light[aria-pressed=true]').length")
        assert low_contrast(tab) == []


def test_text_that_fades_is_noticed(tab: Tab, reports: Reports) -> None:
    tab.open(reports / "slow.html", width=1_440)
    tab.evaluate("document.querySelector('.legend').style.opacity = 0.4")
    assert any("rollout" in text for text in low_contrast(tab))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_other_pages_can_be_read(tab: Tab, tmp_path: Path, dark: bool) -> None:
    comparison = msgspec.to_builtins(compare(offloaded().build(), healthy()))
    pages = {"compare": comparison_page(comparison)}
    pages |= {name: hang_page(VISITS[name]()) for name in ("stopped", "healthy", "slow", "dead")}
    tab.dark(dark)
    for name, page in pages.items():
        (tmp_path / f"{name}.html").write_bytes(page)
        tab.open(tmp_path / f"{name}.html", width=1_440)
        assert low_contrast(tab) == [], name


@pytest.mark.parametrize("width", [390, 1_440])
@pytest.mark.parametrize("page", ["slow", "healthy"])
def test_nothing_moves_while_the_page_loads_and_is_read(
    tab: Tab, reports: Reports, page: str, width: int
) -> None:
    watch_layout_shift(tab)
    tab.open(reports / f"{page}.html", width=width)
    show_all(tab)
    assert layout_shift(tab) < MOST_SHIFT, what_shifted(tab)
