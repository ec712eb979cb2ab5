"""The contrast of every piece of text that a page shows, worked out from its computed style."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.browser.devtools import Tab

LEAST_CONTRAST: Final = 4.5  # WCAG 2.2 AA, criterion 1.4.3
LEAST_OF_LARGE: Final = 3.0  # from 24 px on, or 18.66 px in bold

# Text over a picture or a gradient is left out, as are drawings (svg): no one colour is behind it.
_LOW_CONTRAST: Final = """((least, leastOfLarge) => {
  const LEFT_OUT = "svg, script, .visually-hidden, :disabled";
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below, opacity) => {
    const alpha = top[3] * opacity;
    return [0, 1, 2].map((at) => top[at] * alpha + below[at] * (1 - alpha)).concat(1);
  };
  const luminance = (color) => color.slice(0, 3).map((channel) => channel / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const ratio = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const shown = (element) => {
    const ancestors = [];
    for (let at = element; at; at = at.parentElement) ancestors.unshift(at);
    let [ground, opacity] = [rgba("white"), 1];
    for (const at of ancestors) {
      const style = getComputedStyle(at);
      if (style.backgroundImage !== "none") return null;
      opacity *= Number(style.opacity);
      ground = over(rgba(style.backgroundColor), ground, opacity);
    }
    return ratio(over(rgba(getComputedStyle(element).color), ground, opacity), ground);
  };
  const low = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const words = texts.currentNode.textContent.trim().slice(0, 60);
    const isOut = !element.checkVisibility() || element.closest(LEFT_OUT);
    if (isOut || !words) continue;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const contrast = shown(element);
    if (contrast !== null && contrast < (isLarge ? leastOfLarge : least)) {
      low.push(`${contrast.toFixed(2)}:1 ${element.className} ${words}`);
    }
  }
  return low;
})"""


def low_contrast(tab: Tab) -> list[str]:
    """Return the text on the page with too little contrast: `1.33:1 class words`."""
    return list(tab.evaluate(f"{_LOW_CONTRAST}({LEAST_CONTRAST}, {LEAST_OF_LARGE})"))
