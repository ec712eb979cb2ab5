"""`python -m tests.site.page_pictures`: a report, a stuck job and a comparison, at three widths.

Writes docs/images/pages/ and docs/pages.md; needs Chromium.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from grpo_doctor_reports import render_html
from tests.accessibility import WIDTHS, write_pages
from tests.browser.devtools import Browsers, Tab, find_chromium
from tests.first_screens.answers import SCREENS

_PAGE: Final = Path("docs/pages.md")
_PICTURES: Final = Path("docs/images/pages")
_SHOWN: Final = {
    "report": "A report",
    "hang-stopped64": "A stuck job",
    "compare": "Two runs compared",
}
_REPORT: Final = "slow reward on one rank"
_HEIGHT: Final = 900
_QUALITY: Final = 60  # of WebP: text stays sharp, and eighteen pictures take half a megabyte
_INTRODUCTION: Final = (
    "The first 900 pixels of each page at widths of 1,440, 800 and 390 pixels, light and dark.\n"
    "`make first-screens` draws them from documents made in code."
)


def main() -> int:
    """0; 2 where there is no browser."""
    chromium = find_chromium()
    if chromium is None:
        sys.stderr.write("no Chromium or Chrome on PATH: install one\n")
        return 2
    _PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, closing(Browsers(chromium)) as browsers:
        pages = {page.stem: page for page in write_pages(Path(folder))}
        pages["report"] = Path(folder) / "report.html"
        pages["report"].write_text(render_html(SCREENS[_REPORT].document()), encoding="utf-8")
        for name in _SHOWN:
            for dark in (False, True):
                _photograph(browsers.tab(), pages[name], dark=dark)
    _PAGE.write_text(_text(), encoding="utf-8")
    return 0


def _photograph(tab: Tab, page: Path, *, dark: bool) -> None:
    tab.dark(dark)
    for width in WIDTHS:
        tab.open(page, width, _HEIGHT)
        tab.frame()
        picture = tab.call("Page.captureScreenshot", format="webp", quality=_QUALITY)["data"]
        (_PICTURES / _file(page.stem, width, dark=dark)).write_bytes(base64.b64decode(picture))


def _file(name: str, width: int, *, dark: bool) -> str:
    return f"{name}-{width}-{'dark' if dark else 'light'}.webp"


def _text() -> str:
    parts = ["# What the pages look like", "", _INTRODUCTION]
    for name, title in _SHOWN.items():
        parts += ["", f"## {title}"]
        for width in reversed(WIDTHS):
            for dark in (False, True):
                alt = f"{title} at {width} pixels, {'dark' if dark else 'light'}"
                parts += ["", f"![{alt}](images/pages/{_file(name, width, dark=dark)})"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
