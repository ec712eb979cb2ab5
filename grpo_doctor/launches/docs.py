"""Fills lists and rules into `docs/check.md`: `python -m grpo_doctor.launches.docs [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from grpo_doctor.knobs.option_lists import FOLDER, option_list
from grpo_doctor.launches.rules import load
from grpo_doctor.markdown import filled

FILE = Path("docs/check.md")
_OF_LISTS = "knobs/options/ by `python -m grpo_doctor.launches.docs`"
_OF_RULES = "launches/rules/ by `python -m grpo_doctor.launches.docs`; edit their docstrings"


def updated(page: str) -> str:
    """Return the page with the lists of options, and the rules, as they are now."""
    rules = (f"**{rule.id} `{rule.slug}`**: {' '.join(rule.text.split())}" for rule in load())
    return filled(filled(page, _OF_LISTS, "\n".join(_lists())), _OF_RULES, "\n\n".join(rules))


def _lists() -> Iterator[str]:
    for path in sorted(FOLDER.glob("*.txt")):
        listed = option_list(path.stem)
        assert listed is not None
        first, last = listed.read[0], listed.read[-1]
        versions = f"{first} to {last}" if first != last else first
        yield f"- `{path.stem}`: {len(listed.ranges)} options, {versions}"


def main(arguments: Sequence[str]) -> int:
    """Rewrite the file."""
    path = Path(arguments[0]) if arguments else FILE
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
