"""`python -m tests.labelled`: runs the labelled set; prints, or writes, how right the rules are."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.labelled import table
from tests.labelled.bench import judge_kept, run_cases
from tests.labelled.judge import Outcome, score
from tests.labelled.registry import cases
from tests.pages import put_section

GOAL = 0.95


def main() -> int:
    """0, or 1 with --check and a goal missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.labelled", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", default=[], metavar="PART", help="of the names")
    add("--seed", type=int, metavar="N", help="of runs that the rules were not fixed on")
    add("--keep", type=Path, metavar="DIR", help="keep the runs there")
    add("--kept", type=Path, metavar="DIR", help="run nothing: judge the runs kept there again")
    add("--write", type=Path, metavar="PAGE", help="write the table there")
    add("--json", type=Path, metavar="FILE", help="write every answer there")
    add("--check", action="store_true", help="exit code 1 where a goal is missed")
    arguments = parser.parse_args()
    chosen = [
        case
        for case in cases()
        if not arguments.only or any(part in case.title for part in arguments.only)
    ]
    if arguments.kept:
        runs = judge_kept(chosen, arguments.kept, _say)
    else:
        with tempfile.TemporaryDirectory(prefix="labelled-") as temporary:
            folder = arguments.keep or Path(temporary)
            runs = run_cases(chosen, folder, _say, arguments.seed)
    command = "python -m tests.labelled " + " ".join(sys.argv[1:])
    page = table.section(runs, command.strip())
    _say(page)
    if arguments.write:
        put_section(arguments.write, "rules", page)
    if arguments.json:
        arguments.json.write_text(json.dumps([_plain(row) for row in runs], indent=1))
    misses = missed(runs)
    for miss in misses:
        _say(f"goal missed: {miss}")
    return int(arguments.check and bool(misses))


def missed(runs: list[Outcome]) -> list[str]:
    """The goals that were not reached, in words."""
    total = score(runs)
    misses = [f"{row.case.title} did not run: {row.failed}" for row in runs if row.failed]
    for measure, value in (("precision", total.precision), ("recall", total.recall)):
        if value < GOAL:
            misses.append(f"{measure} {value:.3f}; the goal is {GOAL}")
    if total.healthy_alarms:
        misses.append(f"{total.healthy_alarms} healthy runs have a finding of high severity")
    return misses


def _plain(run: Outcome) -> dict[str, object]:
    row = asdict(run)
    row["case"] = run.case.title
    row["wrong"], row["hit"] = sorted(run.wrong), run.hit
    return row


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
