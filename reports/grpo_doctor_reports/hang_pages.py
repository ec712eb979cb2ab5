"""Read where the verdicts on stuck moments of a run are; a path of a stranger is not a link."""

from __future__ import annotations

import re

from grpo_doctor_reports.model import HangPage
from grpo_doctor_reports.schema.report import HangEntry

_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,100}"  # no dot first: neither hidden nor a way up
_RELATIVE_PAGE = re.compile(rf"(?:{_PART}/){{0,8}}{_PART}\.html")


def read_hang_pages(entries: list[HangEntry]) -> list[HangPage]:
    """Return the pages; `page` is empty where the path is not one below the report's folder."""
    return [
        HangPage(
            page=entry.page if _RELATIVE_PAGE.fullmatch(entry.page) else "",
            shown=entry.page,
            headline=entry.headline,
            state=entry.state,
            next_steps=entry.next_steps,
            taken_unix_ns=entry.taken_unix_ns,
        )
        for entry in entries
    ]
