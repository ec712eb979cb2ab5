"""A browser for the tests of a file, and the demo reports written to disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.browser.devtools import Browsers, FrozenError, Tab, find_chromium
from tests.browser.reports import Reports

_TIMEOUT_S = 900  # for a test that runs again after a browser that froze for minutes


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a test again where its browser froze, and else only where `--reruns` asks for it."""
    again = pytest.mark.flaky(reruns=2, only_rerun=FrozenError)
    if config.getoption("reruns", None):
        again = pytest.mark.flaky(reruns=2)  # a marker of its own would beat the option
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(again)
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


# Not for the session: a tab left open kept half a core busy under all the tests after it.
@pytest.fixture(scope="module")
def browsers() -> Iterator[Browsers]:
    """Headless Chromium; the test is skipped where there is none."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no Chromium or Chrome on PATH")
    with closing(Browsers(chromium)) as opened:
        yield opened


@pytest.fixture
def tab(browsers: Browsers) -> Tab:
    """A tab that works: the one of the test before, unless its browser froze.

    A theme that a test chose, and did not come to take back, is none of the next one's.
    """
    opened = browsers.tab()
    opened.dark(False)
    opened.call("Storage.clearDataForOrigin", origin="file://", storageTypes="local_storage")
    return opened


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    return Reports(tmp_path_factory.mktemp("reports"))
