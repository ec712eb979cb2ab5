"""`grpo-doctor compare`: did the fix help?"""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from grpo_doctor.cli.console import inform
from grpo_doctor.cli.output import STDOUT, check_output, document_json, given_path, write_bytes
from grpo_doctor.errors import UsageError

if TYPE_CHECKING:
    from grpo_doctor.compare import ComparisonDocument

NAME = "compare"
SUMMARY = "compare two runs: what got faster, how certain that is, and whether it was predicted"
DESCRIPTION = """\
Compares the step time, the time per token and every phase of two recordings, with 95% intervals.
It lists the settings that differ, the step at which training metrics diverge, and the findings that
are new or gone. For changed settings it shows the predicted and the measured change.
BEFORE and AFTER are run directories or traces.
"""
EPILOG = """\
examples:
  grpo-doctor compare runs/before runs/after
  grpo-doctor compare before.json after.json --html compare.html
  grpo-doctor compare before after --json | jq .step_time
  grpo-doctor compare main.json branch.json --fail-on-regression 5     for CI

exit codes: 0 compared; 2 wrong usage; 3 a recording can't be read; 4 a result can't be written;
8 the runs can't be compared, for example a run without steps; with --fail-on-regression also 7 for
a regression, 8 for too few steps to decide.
"""
REGRESSION, UNDECIDED = 7, 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "before", metavar="BEFORE", type=given_path, help="a run directory or a trace"
    )
    parser.add_argument(
        "after", metavar="AFTER", type=given_path, help="a run directory or a trace"
    )
    parser.add_argument("--json", action="store_true", help="as JSON (schema 1)")
    parser.add_argument("--html", type=given_path, metavar="FILE", help="also write an HTML page")
    parser.add_argument(
        "--fail-on-regression",
        type=float,
        metavar="PCT",
        help=f"exit with {REGRESSION} if steps of AFTER are slower by more than PCT percent and "
        f"the interval is above 0; with {UNDECIDED} if that is unknown",
    )


def execute(options: argparse.Namespace) -> int:
    """Read both, compare, print; return the exit code."""
    limit = options.fail_on_regression
    if limit is not None and not 0 <= limit < math.inf:
        raise UsageError(f"--fail-on-regression {limit:g}: give a percentage of 0 or more.")
    if options.html is not None:
        if str(options.html) == STDOUT:
            raise UsageError("--html takes a file; standard output has the comparison in words.")
        check_output(options.html, options.before, options.after)

    from grpo_doctor.cli.rendering import comparison_page, comparison_text  # noqa: PLC0415
    from grpo_doctor.compare import compare  # noqa: PLC0415 - after usage errors
    from grpo_doctor.importers.load import load  # noqa: PLC0415

    comparison = compare(load(options.before), load(options.after))
    if options.html is not None:
        write_bytes(comparison_page(comparison), str(options.html))
        inform(f"wrote {options.html}")
    if options.json:
        write_bytes(document_json(comparison), STDOUT)
    else:
        write_bytes(comparison_text(comparison, sys.stdout).encode(), STDOUT)
    if limit is None:
        return 0 if comparison.comparable else UNDECIDED
    return regression_code(comparison, limit)


def regression_code(comparison: ComparisonDocument, limit_pct: float) -> int:
    """Return 7 for a regression beyond the limit, 8 if the data can't decide, else 0."""
    step = comparison.step_time
    change, low = step.change_pct, step.low_pct
    if not comparison.comparable or change is None or low is None:
        return UNDECIDED
    return REGRESSION if change > limit_pct and low > 0 else 0
