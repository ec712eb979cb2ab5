"""One color per phase, the same in every chart, in both themes and on every page.

The twelve were searched for, not picked: the largest smallest distance (OKLab, 0.116) between any
two of the eleven phases under normal, protan, deutan and tritan vision, with a contrast of at least
2:1 to a white and 2.7:1 to a near-black surface and muted chroma. Color is never the only
carrier: bars are labelled, and wait is hatched.
"""

from __future__ import annotations

from typing import Final

UNATTRIBUTED: Final = "unattributed"

PHASE_COLORS: Final[dict[str, str]] = {
    "init": "#9b6e92",
    "dataload": "#1bac6f",
    "rollout": "#4f6dd3",
    "reward": "#d97eb6",
    "logprob": "#39c3f5",
    "train": "#d66218",
    "optimizer": "#a93417",
    "sync": "#78479d",
    "offload": "#b9bb46",
    "checkpoint": "#24684e",
    "eval": "#9b87f4",
    UNATTRIBUTED: "#8b9097",
}
# What a sample of a rollout is in. Where a state is a phase too it has that one's color.
STATE_COLORS: Final[dict[str, str]] = {
    "queue": "#b08d57",
    "engine queue": "#e0a100",
    "prefill": "#824c16",
    "decode": PHASE_COLORS["rollout"],
    "generate": "#8f9fe0",
    "tool": "#17a398",
    "reward": PHASE_COLORS["reward"],
    "paused": PHASE_COLORS["sync"],
    "buffer": "#7d8fb3",
    "other": PHASE_COLORS[UNATTRIBUTED],
}
PHASE_ORDER: Final = tuple(PHASE_COLORS)[:-1]  # nothing covers the last one

DARK_INK: Final = "#0c0d10"
LIGHT_INK: Final = "#ffffff"


def color_of(phase: str) -> str:
    """Return the color of `phase` or of the phase of a sub-span; an unknown one is gray."""
    return PHASE_COLORS.get(phase.partition("/")[0], PHASE_COLORS[UNATTRIBUTED])


def phase_class(phase: str) -> str:
    """Return the CSS class of a phase's color; unknown phases share the gray."""
    name = phase.partition("/")[0]
    return f"phase-{name if name in PHASE_COLORS else UNATTRIBUTED}"


def ink_on(phase: str) -> str:
    """Return the text color, dark or light, that reads better on the color of `phase`."""
    background = relative_luminance(color_of(phase))
    on_dark, on_light = (
        contrast(relative_luminance(ink), background) for ink in (DARK_INK, LIGHT_INK)
    )
    return DARK_INK if on_dark >= on_light else LIGHT_INK


def order_of(phase: str) -> tuple[int, str]:
    """Sort key: the canonical order, then unknown phases by name, then what nothing covers."""
    if phase == UNATTRIBUTED:
        return len(PHASE_ORDER) + 1, ""
    index = PHASE_ORDER.index(phase) if phase in PHASE_ORDER else len(PHASE_ORDER)
    return index, phase


def contrast(first: float, second: float) -> float:
    """Return the WCAG contrast ratio (1 to 21) of two relative luminances."""
    return (max(first, second) + 0.05) / (min(first, second) + 0.05)


def relative_luminance(color: str) -> float:
    """Return the WCAG relative luminance (0 to 1) of a `#rrggbb` color."""
    red, green, blue = (_linear(int(color[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
