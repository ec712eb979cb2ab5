"""How far what was drawn moves while a page loads and is scrolled, as Chromium scores it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.browser.devtools import Tab

_OBSERVE: Final = """
// One observer, however often a tab was told to watch.
if (!window.layoutShifts) new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    window.layoutShifts.push([entry.value, entry.sources.map((source) => {
      const node = source.node?.nodeType === 1 ? source.node : source.node?.parentElement;
      return node ? `${node.tagName} ${node.id} ${node.className}` : "";
    })]);
  }
}).observe({ type: "layout-shift", buffered: true });
window.layoutShifts ??= [];
"""


def watch_layout_shift(tab: Tab) -> None:
    """Watch every page that is opened from now on."""
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=_OBSERVE)


def layout_shift(tab: Tab) -> float:
    """Return the sum of the shifts of this page so far: shares of the window, moved so far."""
    tab.frame()
    return float(tab.evaluate("layoutShifts.reduce((sum, [value]) => sum + value, 0)"))


def what_shifted(tab: Tab) -> list[tuple[float, list[str]]]:
    """Return each shift of this page with the elements that moved, for a message."""
    return [(value, sources) for value, sources in tab.evaluate("layoutShifts")]
