"""A browser for the session, and the demo reports written to disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_doctor_reports.demo.__main__ import main as write_demos
from tests.browser.devtools import Tab, browser, find_chromium


# Not for the session: a tab left open kept half a core busy under all the tests after it.
@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    """A tab of a headless Chromium; the test is skipped where there is none."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no Chromium or Chrome on PATH")
    with browser(chromium) as opened:
        yield opened


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `<name>.html` of every demo document."""
    folder = tmp_path_factory.mktemp("reports")
    write_demos(folder)
    return folder
