"""Generated pages of several authors: each writes its own section and leaves the others."""

from __future__ import annotations

import re
from pathlib import Path

from grpo_doctor.markdown import wrapped

_HEADING = re.compile(r"^(#+ )", re.MULTILINE)


def put_section(page: Path, name: str, text: str) -> None:
    """Replaces the section `name` of a page, or appends it; makes the page if there is none.

    Headings of the section are put one level below the page's own.
    """
    begin, end = f"<!-- section {name} -->", f"<!-- end of {name} -->"
    lower = wrapped(_HEADING.sub(r"#\1", text.strip()))
    section = f"{begin}\n\n{lower}\n\n{end}\n"
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    before, marker, remainder = old.partition(begin)
    if not marker:
        page.write_text(f"{old.rstrip()}\n\n{section}".lstrip(), encoding="utf-8")
        return
    _, closed, after = remainder.partition(end)
    if not closed:
        raise ValueError(f"{page}: section {name} has no end; put `{end}` where it ends")
    page.write_text(f"{before}{section}{after.removeprefix(chr(10))}", encoding="utf-8")
