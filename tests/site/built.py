"""What a browser would fetch elsewhere of a built site: `python -m tests.site.built FOLDER`.

Links that a reader clicks may lead anywhere. Scripts, styles, fonts and pictures may not: the site
is read on machines without a network.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

_FETCHED_BY_LINK = {
    "stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "modulepreload", "prefetch",
}  # fmt: skip
_STYLE_FETCH = re.compile(r"""(?:@import\s+|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")


class _Page(HTMLParser):
    """Collects what a page fetches when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Called for each element."""
        values = {name: value or "" for name, value in attributes}
        if tag == "link" and _FETCHED_BY_LINK & set(values.get("rel", "").split()):
            self.fetched.append(values.get("href", ""))
        if tag != "a":
            self.fetched += [values[name] for name in ("src", "data", "poster") if name in values]
            sources = [part.split() for part in values.get("srcset", "").split(",")]
            self.fetched += [source[0] for source in sources if source]
        self.fetched += _STYLE_FETCH.findall(values.get("style", ""))


def foreign(page: str) -> list[str]:
    """What a page of HTML would fetch from other hosts when it is opened."""
    parser = _Page()
    parser.feed(page)
    styles = "".join(re.findall(r"<style[^>]*>(.*?)</style>", page, re.DOTALL))
    return [
        address
        for address in [*parser.fetched, *_STYLE_FETCH.findall(styles)]
        if address.startswith(("http:", "https:", "//"))
    ]


def foreign_in(site: Path) -> list[str]:
    """One line for each page or style sheet and address on another host."""
    lines = []
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            addresses = foreign(path.read_text(encoding="utf-8"))
        elif path.suffix == ".css":
            addresses = _STYLE_FETCH.findall(path.read_text(encoding="utf-8"))
        else:
            continue
        lines += [f"{path.relative_to(site)} fetches {address}" for address in addresses]
    return lines


def main(arguments: list[str]) -> int:
    """Ends with 1 where a page would fetch anything from another host."""
    site = Path(arguments[0])
    pages = len(list(site.rglob("*.html")))
    problems = foreign_in(site)
    if problems:
        problems.append("The site must open without a network: put the file into docs/, or link.")
    lines = problems or [f"{pages} pages, none fetches anything from another host"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if problems or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
