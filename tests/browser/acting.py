"""What a reader does with the page: scroll, press keys, drag, look at the charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.browser.devtools import Tab

_PENDING = "document.querySelectorAll('.plot:not(.drawn):not(.failed)').length"
_KEYS = {"Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, "Enter": 13, " ": 32}


def show_all(tab: Tab) -> None:
    """Open every fold, scroll through the page and wait until every chart is drawn."""
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    height = int(tab.evaluate("document.documentElement.scrollHeight"))
    for top in range(0, height, 500):
        tab.evaluate(f"scrollTo({{ top: {top}, behavior: 'instant' }})")
        tab.frame()
    tab.evaluate("document.querySelectorAll('.plot').forEach((one) => one.scrollIntoView())")
    tab.wait_for(lambda: _scroll_to_pending(tab) == 0)


def show(tab: Tab, *charts: str) -> None:
    """Scroll to the charts of these names and wait until they are drawn."""
    for chart in charts:
        plot = f"document.querySelector('.plot[data-chart={chart}]')"
        tab.evaluate(f"{plot}.scrollIntoView({{ behavior: 'instant', block: 'center' }})")
        wait_for_value(tab, f"{plot}.classList.contains('drawn')", True)


def wait_for_value(tab: Tab, expression: str, expected: object) -> None:
    """Wait until an expression has a value."""
    tab.wait_for(lambda: tab.evaluate(expression) == expected)


def wait_for_range(
    tab: Tab, chart: str, expected: list[float] | None = None, unlike: list[float] | None = None
) -> None:
    """Wait until a chart's axis shows `wanted`, or something else than `unlike`."""
    tab.wait_for(lambda: (now := range_of(tab, chart)) == expected or (unlike and now != unlike))


def press(tab: Tab, key: str) -> None:
    """Press and release a key, as a keyboard does."""
    code = _KEYS.get(key, ord(key[0]))
    text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
    for kind in ("keyDown", "keyUp"):
        tab.call(
            "Input.dispatchKeyEvent",
            type=kind, key=key, windowsVirtualKeyCode=code, **(text if kind == "keyDown" else {}),
        )  # fmt: skip
    tab.frame()


def click(tab: Tab, selector: str) -> None:
    """Click the middle of an element with the mouse."""
    mouse(tab, *middle_of(tab, selector), clicks=1)


def double_click(tab: Tab, selector: str) -> None:
    """Click the middle of an element twice, with nothing in between that could take time."""
    x, y = middle_of(tab, selector)
    mouse(tab, x, y, clicks=1, settle=False)
    mouse(tab, x, y, clicks=2)


def drag(tab: Tab, selector: str, start: float, end: float) -> None:
    """Drag over an element, from one part of its width to another, at half its height."""
    _, middle = middle_of(tab, selector)
    x, _, width, _ = box_of(tab, selector)
    for kind, part in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
        tab.call(
            "Input.dispatchMouseEvent",
            type=kind, x=x + part * width, y=middle, button="left", buttons=1, clickCount=1,
        )  # fmt: skip
        tab.frame()


def mouse(tab: Tab, x: float, y: float, clicks: int, *, settle: bool = True) -> None:
    """Press and release the left button at a point of the window."""
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=clicks)
    if settle:
        tab.frame()


def middle_of(tab: Tab, selector: str) -> tuple[float, float]:
    """Return the middle of an element in the window, after scrolling to it."""
    tab.evaluate(
        f"document.querySelector({selector!r}).scrollIntoView({{ behavior: 'instant',"
        " block: 'center' })"
    )
    x, y, width, height = box_of(tab, selector)
    return x + width / 2, y + height / 2


def box_of(tab: Tab, selector: str) -> list[float]:
    """Return left, top, width and height of an element in the window."""
    return list(
        tab.evaluate(
            "(({ x, y, width, height }) => [x, y, width, height])"
            f"(document.querySelector({selector!r}).getBoundingClientRect())"
        )
    )


def text_of(tab: Tab, selector: str) -> str:
    """Return the text of an element."""
    return str(tab.evaluate(f"document.querySelector({selector!r}).textContent"))


def range_of(tab: Tab, chart: str) -> list[float]:
    """Return what the time axis of the first chart of this name shows."""
    return list(
        tab.evaluate(
            f"((plot) => plot._fullLayout.xaxis.range.map(Number))"
            f"(document.querySelector('.plot[data-chart={chart}]'))"
        )
    )


def _scroll_to_pending(tab: Tab) -> int:
    tab.evaluate(
        "document.querySelector('.plot:not(.drawn):not(.failed)')"
        "?.scrollIntoView({ behavior: 'instant' })"
    )
    return int(tab.evaluate(_PENDING))
