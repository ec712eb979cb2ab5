"""Read where the verdicts on stuck moments of a run are; a path of a stranger is not a link."""

from __future__ import annotations

import re

from grpo_doctor_reports.model import HangPage
from grpo_doctor_reports.reader import Node
from grpo_doctor_reports.text_safety import PROSE_LIMIT

_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,100}"  # no dot first: neither hidden nor a way up
_RELATIVE_PAGE = re.compile(rf"(?:{_PART}/){{0,8}}{_PART}\.html")


def read_hang_pages(nodes: list[Node]) -> list[HangPage]:
    """Return the pages; `page` is empty where the path is not one below the report's folder."""
    return [_read(node) for node in nodes]


def _read(node: Node) -> HangPage:
    path = node.text("page")
    return HangPage(
        page=path if _RELATIVE_PAGE.fullmatch(path) else "",
        shown=path,
        headline=node.text("headline", PROSE_LIMIT),
        state=node.text("state"),
        taken_unix_ns=node.integer("taken_unix_ns"),
    )
