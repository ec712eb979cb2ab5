"""A browser whose drawing process hangs is told from a page that is wrong, and replaced."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
import pytest

from tests.browser.devtools import Browsers, FrozenError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser


def test_a_browser_that_draws_no_more_is_replaced(browsers: Browsers, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>something to draw</p>")
    frozen = browsers.tab()
    frozen.open(page, width=800)
    frozen.frame()
    _drawing_process().send_signal(signal.SIGSTOP)
    with pytest.raises(FrozenError, match="draws no frame"):
        frozen.frame(tries=1)
    fresh = browsers.tab()
    assert fresh is not frozen
    fresh.open(page, width=800)
    fresh.frame()
    assert browsers.tab() is fresh


def _drawing_process() -> psutil.Process:
    [found] = [
        one
        for one in psutil.Process().children(recursive=True)
        if "--type=gpu-process" in one.cmdline()
    ]
    return found
