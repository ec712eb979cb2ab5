"""Fills the classes into `docs/hang.md`: `python -m grpo_doctor.hang.docs [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from grpo_doctor.hang.catalogue import CLASSES, TEXT
from grpo_doctor.markdown import filled

FILE = Path("docs/hang.md")
_OF = "hang/classes.md by `python -m grpo_doctor.hang.docs`; edit that"


def updated(page: str) -> str:
    """Return the page with the classes as they are now."""
    index = "\n".join(f"- [{entry.name}](#{entry.name}): {entry.means}" for entry in CLASSES)
    return filled(page, _OF, f"{index}\n\n{TEXT[TEXT.index('### ') :]}")


def main(arguments: Sequence[str]) -> int:
    """Rewrites the file."""
    path = Path(arguments[0]) if arguments else FILE
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
