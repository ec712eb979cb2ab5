"""Where the verdicts on stuck moments of a run are; a path of a stranger is not a link."""

from __future__ import annotations

import re

_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,100}"  # no dot first: neither hidden nor a way up
_RELATIVE_PAGE = re.compile(rf"(?:{_PART}/){{0,8}}{_PART}\.html")


def is_linkable(page: str) -> bool:
    """Return whether a path is that of a page below the report's folder."""
    return _RELATIVE_PAGE.fullmatch(page) is not None
