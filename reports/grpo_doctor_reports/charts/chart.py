"""What every chart hands to the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Chart:
    """`data` goes to the script (JSON), `summary` and `note` to the reader.

    The summary says in one line what the chart shows, for those who cannot see it; the note says
    what was left out of the drawing, empty where nothing was.
    """

    data: dict[str, Any]
    summary: str
    note: str = ""
