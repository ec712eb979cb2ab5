"""Rich renderables as plain text, the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import StringIO
from typing import Literal

from rich.console import Console, RenderableType

ColorSystem = Literal["standard", "truecolor"]


def as_text(
    parts: Callable[[int], Iterable[RenderableType]],
    *,
    width: int,
    colors: ColorSystem | None,
    unwrapped: tuple[type, ...] = (),
) -> str:
    """Return what `parts(width)` draws, without blank lines around it, ending with a newline.

    Args:
        parts: makes the renderables for a width in columns.
        width: columns to use.
        colors: which ANSI colours to write; None: no escape sequence at all.
        unwrapped: renderables of these types are never broken into lines.
    """
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colors is not None,
        color_system=colors,
        no_color=colors is None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for part in parts(width):
        console.print(part, soft_wrap=isinstance(part, unwrapped))
    lines = out.getvalue().splitlines()
    return "\n".join(lines if colors else (line.rstrip() for line in lines)).strip("\n") + "\n"
