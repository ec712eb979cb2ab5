"""`python -m tests.accessibility --axe axe.min.js`: axe-core and layout shift on every page.

axe-core is not shipped: `npm pack axe-core` fetches it, `package/axe.min.js` is in the archive.
Without `--axe` only the layout shift is measured. It is that of loading a page and of scrolling
through it, the sum over all of it, which is more than the worst five seconds that Lighthouse takes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from grpo_doctor.compare import compare
from grpo_doctor_reports import render_html
from grpo_doctor_reports.compare import comparison_page
from grpo_doctor_reports.hang.page import hang_page
from tests.browser.acting import show_all
from tests.browser.devtools import Browsers, FrozenError, Tab, find_chromium
from tests.browser.layout_shift import layout_shift, watch_layout_shift
from tests.demo_reports import DEMOS
from tests.demo_verdicts import VISITS
from tests.unit.findings.example_runs import healthy, offloaded

WIDTHS: Final = (390, 800, 1440)
MOST_SHIFT: Final = 0.02
_REPORTS: Final = ("slow", "crowded", "healthy", "killed")
_VERDICTS: Final = ("stopped64", "deadlock", "hosts16", "healthy")
_NODES_SHOWN: Final = 3
_VIOLATIONS: Final = """axe.run(document, { resultTypes: ["violations"] }).then((result) =>
  result.violations.map((one) => [one.id, one.impact, one.nodes.map((node) =>
    node.target.join(" ") + " " + (node.any[0]?.message ?? node.failureSummary))]))"""


@dataclass(frozen=True)
class State:
    """How a page is looked at; `finding` is the number of the finding that is highlighted."""

    width: int
    dark: bool
    finding: int | None = None

    def __str__(self) -> str:
        theme = "dark" if self.dark else "light"
        highlighted = "" if self.finding is None else f", finding {self.finding + 1} highlighted"
        return f"{self.width} px, {theme}{highlighted}"


def main() -> int:
    """0: no violation, and no page shifts by more than 0.02. 1: one does. 2: no browser."""
    parser = argparse.ArgumentParser(prog="python -m tests.accessibility", description=__doc__)
    parser.add_argument("--axe", type=Path, metavar="FILE", help="axe.min.js of axe-core")
    parser.add_argument("pages", nargs="*", type=Path, help="default: the demo documents, drawn")
    arguments = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        parser.exit(2, "no Chromium or Chrome on PATH\n")
    axe = arguments.axe.read_text(encoding="utf-8") if arguments.axe else ""
    with tempfile.TemporaryDirectory() as folder, closing(Browsers(chromium)) as browsers:
        pages = arguments.pages or write_pages(Path(folder))
        looks = [(page.resolve(), state) for page in pages for state in states()]
        examined = [_examine(browsers, page, state, axe) for page, state in looks]
    problems = [number for number in examined if number is not None]
    _say(f"{sum(problems)} problems in {len(problems)} looks")
    return int(sum(problems) > 0)


def write_pages(folder: Path) -> list[Path]:
    """Writes demo reports, verdicts and a comparison; returns their paths."""
    pages = {f"report-{name}": render_html(DEMOS[name]()).encode() for name in _REPORTS}
    pages |= {f"hang-{name}": hang_page(VISITS[name]()) for name in _VERDICTS}
    comparison = compare(offloaded().build(), healthy())
    pages["compare"] = comparison_page(msgspec.to_builtins(comparison))
    for name, page in pages.items():
        (folder / f"{name}.html").write_bytes(page)
    return [folder / f"{name}.html" for name in pages]


def states() -> Iterator[State]:
    """Every width in both themes; each of the first findings is highlighted at one width."""
    for dark in (False, True):
        for width in WIDTHS:
            yield State(width, dark)
            yield State(width, dark, finding=WIDTHS.index(width))


def _examine(browsers: Browsers, page: Path, state: State, axe: str) -> int | None:
    """What is wrong with a page in a state; once more where the browser froze."""
    try:
        return _look(browsers.tab(), page, state, axe)
    except FrozenError:
        return _look(browsers.tab(), page, state, axe)


def _look(tab: Tab, page: Path, state: State, axe: str) -> int | None:
    """Opens a page in a state and says what is wrong with it; returns how much that is.

    None: the page has no such finding to highlight.
    """
    watch_layout_shift(tab)
    tab.dark(state.dark)
    tab.open(page, state.width)
    show_all(tab)
    if state.finding is not None and not _highlight(tab, state.finding):
        return None
    shift = layout_shift(tab)
    problems = [f"layout shift {shift:.3f}"] if shift > MOST_SHIFT else []
    if axe:
        tab.evaluate(axe)
        for rule, impact, nodes in tab.evaluate(_VIOLATIONS):
            problems.append(f"{rule} ({impact}), {len(nodes)} nodes")
            problems += [f"    {node}" for node in nodes[:_NODES_SHOWN]]
    _say(f"{page.name}, {state}: layout shift {shift:.3f}, {len(problems) or 'no'} problems")
    for line in problems:
        _say(f"    {line}")
    return sum(not line.startswith(" ") for line in problems)


def _highlight(tab: Tab, number: int) -> bool:
    """Highlights a finding of a report; False where the page has no such finding."""
    return bool(
        tab.evaluate(
            f"(() => {{ const buttons = document.querySelectorAll('button.light');"
            f" buttons[{number}]?.click(); return buttons.length > {number}; }})()"
        )
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
