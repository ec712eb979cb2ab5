"""Fills the classes into `docs/hang.md`: `python -m grpo_doctor.hang.docs [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from grpo_doctor.hang.catalogue import CLASSES, TEXT
from grpo_doctor.markdown import wrapped

FILE = Path("docs/hang.md")
_BEGIN = "<!-- Made from hang/classes.md by `python -m grpo_doctor.hang.docs`; edit that. -->\n"
_END = "<!-- End of what is made. -->\n"


def updated(page: str) -> str:
    """The page with the text between its two marks replaced.

    Raises:
        ValueError: it has no such marks.
    """
    before, begin, tail = page.partition(_BEGIN)
    _, end, after = tail.partition(_END)
    if not begin or not end:
        raise ValueError("the page has no marks between which the classes stand")
    index = "\n".join(f"- [{entry.name}](#{entry.name}): {entry.means}" for entry in CLASSES)
    chapters = TEXT[TEXT.index("### ") :]
    made = wrapped(f"\n{index}\n\n{chapters}\n")
    return f"{before}{_BEGIN}{made}{_END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Rewrites the file."""
    path = Path(arguments[0]) if arguments else FILE
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
