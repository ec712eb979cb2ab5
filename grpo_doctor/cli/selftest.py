"""`grpo-doctor selftest`: does the tool find on this machine what it should find?"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor.cli.console import inform
from grpo_doctor.cli.output import STDOUT, document_json, given_path, write_bytes
from grpo_doctor.errors import GrpoDoctorError, OutputError, UsageError

if TYPE_CHECKING:
    from grpo_doctor.selftest import Case, Outcome

NAME = "selftest"
SUMMARY = "run small jobs with known faults and check that the rules find them"
DESCRIPTION = """\
Records ten small jobs of two processes, nine with a known fault and one healthy, and checks which
rules fire. Needs no GPU and no torch, and takes about a minute. It shows that recording, merging
and the rules work on this machine; docs/accuracy.md has their accuracy on real training runs.
"""
EPILOG = """\
examples:
  grpo-doctor selftest
  grpo-doctor selftest straggler collapse      two of them
  grpo-doctor selftest --keep DIR              keep the recordings
  grpo-doctor selftest --json

exit codes: 0 all correct; 1 a fault was missed, or there was a false finding; 2 wrong usage;
4 the folder can't be written.
"""
_PATIENCE_S = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("cases", metavar="CASE", nargs="*", help="jobs to run; default: all")
    parser.add_argument(
        "--keep", type=given_path, metavar="DIR", help="where to keep the recordings"
    )
    parser.add_argument("--json", action="store_true", help="as JSON (schema 1)")


def execute(options: argparse.Namespace) -> int:
    """Run the jobs one after the other; return the exit code."""
    chosen = _chosen(options.cases)
    if options.keep is not None:
        _make(options.keep, chosen)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="grpo-doctor-selftest-") as temporary:
        for case in chosen:
            outcomes.append(_outcome(case, (options.keep or Path(temporary)) / case.name))
            if not options.json:
                write_bytes(_line(outcomes[-1]).encode(), STDOUT)
    right = sum(outcome.right for outcome in outcomes)
    if options.json:
        write_bytes(document_json({"schema": 1, "cases": list(map(_entry, outcomes))}), STDOUT)
    else:
        write_bytes(f"{right} of {len(outcomes)} right".encode(), STDOUT)
    if right < len(outcomes):
        inform(_next_step(outcomes))
    return 0 if right == len(outcomes) else GrpoDoctorError.exit_code


def _next_step(outcomes: Sequence[Outcome]) -> str:
    from grpo_doctor.selftest import BUSY_MACHINE  # noqa: PLC0415 - after --help

    if any(BUSY_MACHINE in outcome.findings for outcome in outcomes):
        return "other programs keep this machine busy: run it again once they have ended"
    return "to see why, keep the recordings: grpo-doctor selftest --keep DIR"


def _make(folder: Path, cases: Sequence[Case]) -> None:
    existing = next((case.name for case in cases if (folder / case.name).exists()), None)
    if existing is not None:
        raise UsageError(f"--keep {folder}: there is already a {existing}; choose a new folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        reason = problem.strerror
        raise OutputError(f"--keep {folder}: {reason}. Choose another place.") from problem


def _chosen(names: Sequence[str]) -> Sequence[Case]:
    from grpo_doctor.selftest import CASES  # noqa: PLC0415 - after --help

    cases = {case.name: case for case in CASES}
    unknown = [name for name in names if name not in cases]
    if unknown:
        raise UsageError(f"no job is called {unknown[0]!r}. There are: {', '.join(cases)}.")
    return [cases[name] for name in dict.fromkeys(names)] or CASES


def _outcome(case: Case, folder: Path) -> Outcome:
    from grpo_doctor.findings import RunView, run_rules  # noqa: PLC0415
    from grpo_doctor.selftest import Outcome, judge  # noqa: PLC0415
    from grpo_doctor.trace.read import load  # noqa: PLC0415

    command = [
        sys.executable, "-m", "grpo_doctor", "run", "-o", str(folder), "--no-live",
        "--no-watchdog", "--no-report", "--",
        sys.executable, "-m", "grpo_doctor.selftest.actor", case.name,
    ]  # fmt: skip
    inform(f"running {case.name}: {case.says} ...")
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
        if done.returncode:
            return Outcome(case, problem=f"exit code {done.returncode}: {done.stderr[-800:]}")
        results = run_rules(RunView.of(load(folder)))
    except subprocess.TimeoutExpired:
        return Outcome(case, problem=f"it did not end in {_PATIENCE_S} s")
    except GrpoDoctorError as error:
        return Outcome(case, problem=str(error))
    return judge(case, [rule.id for rule, _ in results.findings], time.monotonic() - began)


def _line(outcome: Outcome) -> str:
    from grpo_doctor.selftest import BUSY_MACHINE  # noqa: PLC0415 - after --help

    case = outcome.case
    expected = " or ".join(sorted(case.has)) or "nothing"
    result = outcome.problem or f"found {', '.join(outcome.findings) or 'nothing'}"
    if BUSY_MACHINE in outcome.findings:
        result += " (other programs keep this machine busy)"
    mark = "ok  " if outcome.right else "FAIL"
    return f"{mark}  {case.name:<14} {case.says}; wanted {expected}, {result}"


def _entry(outcome: Outcome) -> dict[str, object]:
    return {
        "name": outcome.case.name,
        "says": outcome.case.says,
        "has": sorted(outcome.case.has),
        "found": list(outcome.findings),
        "wrong": list(outcome.wrong),
        "right": outcome.right,
        "seconds": round(outcome.seconds, 2),
        "problem": outcome.problem,
    }
