"""Facts on the first screens of recorded runs: how many are shown, and which are false."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.pages import put_section
from tests.screen_facts.cases import CASES, Case
from tests.screen_facts.facts import Fact
from tests.screen_facts.recorder import record
from tests.screen_facts.screens import path_of, screen

_ABOUT = (
    "`python -m tests.screen_facts` reads {runs} recorded runs, adds up their events by code of "
    "its own, and compares that, and what is known of how each run was started, with the facts on "
    "the first screen of its report: {false} of {facts} facts are false. The recordings were used "
    "while the reports were corrected, so this is no blind test."
)


def main() -> int:
    """Prints the table and each false fact; 1 where there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.screen_facts", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases; default: all")
    parser.add_argument(
        "--record", type=Path, metavar="DIR",
        help="first record the runs again in DIR; ms-swift, verl and OpenRLHF as `make frameworks`",
    )  # fmt: skip
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table into FILE")
    arguments = parser.parse_args()
    cases = [case for case in CASES if not arguments.names or case.name in arguments.names]
    if arguments.record:
        for case in cases:
            is_kept = record(case, arguments.record)
            say(f"{case.name}: {'recorded' if is_kept else 'no environment ' + case.python}")
    rows = [(case, list(screen(case).facts())) for case in cases if path_of(case).exists()]
    for case, facts in rows:
        say(f"{case.name:24} {len(facts):4} facts, {len(_false(facts))} false")
        for fact in _false(facts):
            say(f"    {fact.subject}: says {fact.shown!r}, true is {fact.truth!r}")
    if arguments.write:
        put_section(arguments.write, "first screens", _page(rows))
    return int(any(_false(facts) for _, facts in rows))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _false(facts: list[Fact]) -> list[Fact]:
    return [fact for fact in facts if not fact.is_true]


def _page(rows: list[tuple[Case, list[Fact]]]) -> str:
    total = sum(len(facts) for _, facts in rows)
    false = sum(len(_false(facts)) for _, facts in rows)
    lines = [
        "# Facts on first screens",
        "",
        _ABOUT.format(runs=len(rows), false=false, facts=total),
        "",
        "| run | ranks | ended | facts | false |",
        "|---|---|---|---|---|",
        *(
            f"| {case.name} | {case.truth.ranks} | {case.truth.state} | {len(facts)} "
            f"| {len(_false(facts))} |"
            for case, facts in rows
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
