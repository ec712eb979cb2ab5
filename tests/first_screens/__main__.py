"""`python -m tests.first_screens`: photographs the ten first screens for the docs.

Without arguments it writes docs/images/first-screens/ and the section of docs/reading-a-report.md.
`--look FOLDER` keeps them there as PNG instead, at every width, light and dark.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from grpo_doctor_reports import render_html
from tests.browser.devtools import Browsers, Tab, find_chromium
from tests.first_screens.answers import SCREENS, Screen
from tests.pages import put_section

_PAGE: Final = Path("docs/reading-a-report.md")
_PICTURES: Final = Path("docs/images/first-screens")
_DOCS_SIZE: Final = (1080, 640)
_LOOKS: Final = ((390, 844), (800, 900), (1440, 900))
_QUALITY: Final = 70  # of WebP: text stays sharp, and ten pictures take 300 kB


def main(arguments: list[str]) -> int:
    """Draw and photograph all, or those whose names contain `--only`."""
    parser = argparse.ArgumentParser(prog="python -m tests.first_screens", description=__doc__)
    parser.add_argument("--look", type=Path, metavar="FOLDER", help="as PNG, in every size")
    parser.add_argument("--only", default="", metavar="PART", help="of the names")
    options = parser.parse_args(arguments)
    chromium = find_chromium()
    if chromium is None:
        return parser.error("no Chromium or Chrome on PATH: install one")
    chosen = {name: screen for name, screen in SCREENS.items() if options.only in name}
    with tempfile.TemporaryDirectory() as folder, closing(Browsers(chromium)) as browsers:
        tab = browsers.tab()
        for name, screen in chosen.items():
            page = Path(folder) / f"{slug(name)}.html"
            page.write_text(render_html(screen.document()), encoding="utf-8")
            if options.look:
                _look(tab, page, options.look)
            else:
                _photograph(tab, page)
    if not options.look and not options.only:
        put_section(_PAGE, "first screens", _section())
    return 0


def slug(name: str) -> str:
    """The name as part of a file's."""
    return name.lower().replace(" ", "-")


def _look(tab: Tab, page: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for dark in (False, True):
        tab.dark(dark)
        for width, height in _LOOKS:
            tab.open(page, width, height)
            tab.frame()
            shade = "dark" if dark else "light"
            tab.screenshot(folder / f"{page.stem}-{width}-{shade}.png")


def _photograph(tab: Tab, page: Path) -> None:
    tab.dark(False)
    tab.open(page, *_DOCS_SIZE)
    tab.frame()
    picture = tab.call("Page.captureScreenshot", format="webp", quality=_QUALITY)["data"]
    _PICTURES.mkdir(parents=True, exist_ok=True)
    (_PICTURES / f"{page.stem}.webp").write_bytes(base64.b64decode(picture))


def _section() -> str:
    parts = ["# Ten first screens", "", _INTRODUCTION]
    for name, screen in SCREENS.items():
        picture = f"images/first-screens/{slug(name)}.webp"
        parts += ["", f"## {name.capitalize()}", "", screen.wrong, "", _typed(screen), ""]
        parts += [f"![The first screen of the report: {screen.verdict}]({picture})"]
    return "\n".join(parts)


_INTRODUCTION: Final = (
    "Runs made in code, each with one problem (`make first-screens` draws them). Below each "
    "heading is the problem and what to type; the picture is all that a reader sees first."
)


def _typed(screen: Screen) -> str:
    if "\n" in screen.typed:
        return f"To type:\n\n```text\n{screen.typed}\n```"
    if screen.typed:
        return f"To type: `{screen.typed}`"
    if screen.next_step:
        return f"Nothing to paste; the next step: {screen.next_step} …"
    return "Nothing to type."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
