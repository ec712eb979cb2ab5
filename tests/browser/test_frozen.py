"""A browser whose drawing process hangs is told from a page that is wrong, and replaced."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
import pytest

from tests.browser.devtools import Browsers, FrozenError, Tab

if TYPE_CHECKING:
    from pathlib import Path

FRAMES_ON_THEIR_WAY = 100

pytestmark = pytest.mark.browser


def test_a_browser_that_draws_no_more_is_replaced(browsers: Browsers, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>something to draw</p>")
    frozen = browsers.tab()
    frozen.open(page, width=800)
    frozen.frame()
    _drawing_process().send_signal(signal.SIGSTOP)
    frozen.patience_s = 20.0
    with pytest.raises(FrozenError):  # no frame, or no answer to what needs one
        _draw(frozen, FRAMES_ON_THEIR_WAY)
    fresh = browsers.tab()
    assert fresh is not frozen
    fresh.open(page, width=800)
    fresh.frame()
    assert browsers.tab() is fresh


def _draw(tab: Tab, frames: int) -> None:
    for _ in range(frames):
        tab.frame(tries=1)


def _drawing_process() -> psutil.Process:
    [drawing] = [
        process
        for process in psutil.Process().children(recursive=True)
        if "--type=gpu-process" in _command(process)
    ]
    return drawing


def _command(process: psutil.Process) -> list[str]:
    """Empty for a process that has ended: children of earlier tests may still wait to be reaped."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
