"""Rich renderables as plain text, the same on every machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from io import StringIO
from typing import Final, Literal

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

ColorSystem = Literal["standard", "truecolor"]
_QUOTED: Final = re.compile(r"`[^`]*`")
# Stands for a space inside a quoted command, where no line ends; one that no text holds.
_FIRM_SPACE: Final = "\ue000"


class Command(Text):
    """A line that is never wrapped, so that it can be copied or read alone."""


def sentence(text: str, *, width: int, style: str = "", indent: int = 0) -> RenderableType:
    """Return prose that is wrapped, but never inside a command between backticks.

    Args:
        text: what to say.
        width: columns to use; prose with a longer command than that is not wrapped at all.
        style: how to show it.
        indent: columns to leave free on the left.
    """
    longest = max((len(quoted) for quoted in _QUOTED.findall(text)), default=0)
    if longest > width - indent:
        return Command(" " * indent + text, style=style)
    return Padding(Text(unbroken(text), style=style), (0, 0, 0, indent))


def unbroken(text: str) -> str:
    """Return prose for `as_text` that is not broken inside a command, as long as that fits."""
    return _QUOTED.sub(lambda quoted: quoted.group().replace(" ", _FIRM_SPACE), text)


def as_text(
    draw: Callable[[int], Iterable[RenderableType]],
    *,
    width: int,
    colors: ColorSystem | None,
) -> str:
    """Return what `draw(width)` gives, without blank lines around it, ending with a newline.

    Args:
        draw: makes the renderables for a width in columns.
        width: columns to use.
        colors: which ANSI colors to write; None: no escape sequence at all.
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
    for part in draw(width):
        console.print(part, soft_wrap=isinstance(part, Command))
    lines = out.getvalue().replace(_FIRM_SPACE, " ").splitlines()
    return "\n".join(lines if colors else (line.rstrip() for line in lines)).strip("\n") + "\n"


def markdown_text(text: str, width: int, color: bool) -> str:
    """Headings, lists and paragraphs, wrapped to `width` columns; links keep their addresses."""
    drawn = Markdown(text, hyperlinks=False)
    return as_text(lambda _: [drawn], width=width, colors="standard" if color else None)
