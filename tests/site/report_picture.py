"""Draws docs/images/report.png: `python -m tests.site.report_picture REPORT.html [FILE]`.

The first screen of a report in a browser, 1,200 px wide. `make demo` leaves the report. With the
address that `grpo-doctor watch` prints it is the live page, once its report is drawn:
docs/images/watch.png was taken during `make demo`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.browser.devtools import browser, find_chromium

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 1200, 900  # px
_DRAWN = "/^drawn at/.test(document.getElementById('drawn')?.textContent || '')"


def main(arguments: Sequence[str]) -> int:
    """Writes the picture."""
    page = arguments[0]
    target = Path(arguments[1]) if arguments[1:] else ROOT / "docs" / "images" / "report.png"
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("Chromium is not here: the picture needs a browser")
    with browser(chromium) as tab:
        tab.dark(False)
        if page.startswith("http"):
            tab.resize(WIDTH, HEIGHT)
            tab.call("Page.navigate", url=page)
            tab.wait_for(lambda: tab.evaluate(_DRAWN))
        else:
            tab.open(Path(page).resolve(), WIDTH, HEIGHT)
        tab.frame()
        tab.screenshot(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
