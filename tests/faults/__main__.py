"""The bench: `python -m tests.faults`, or `make test-faults`."""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.faults import bench, goals, sampling, table, workers
from tests.faults.cases import Options
from tests.faults.jobs import ROOT
from tests.faults.kept import Shelf
from tests.faults.results import Results
from tests.pages import put_section

HEALTHY = 200  # attaches, without --sample
FAULTS_SHARE = 0.75  # of the minutes; the healthy jobs get the rest


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description="Injects faults into real ranks and judges what `grpo-doctor attach` says.",
    )
    add = parser.add_argument
    add("--only", nargs="+", default=[], metavar="PART", help="of the names, or a family")
    add("--class", nargs="+", default=[], dest="classes", metavar="CLASS")
    add("--repeat", type=int, default=1, metavar="N", help="with N seeds")
    add("--seed", type=int, default=0, metavar="N", help="the first seed")
    add("--healthy", type=int, metavar="N", help="attaches to healthy jobs")
    add("--sample", action="store_true", help="a fixed part, of every class some; CI's")
    add("--no-faults", action="store_true", help="healthy jobs only")
    add("--no-baselines", action="store_true", help="leave the other tools out")
    add("--by-pid", action="store_true", help="tell attach a PID in every case")
    add("--collect", type=Path, metavar="DIR", help="keep the evidence of each case")
    add("--write", type=Path, metavar="PAGE", help="write the table there")
    add("--json", type=Path, metavar="FILE", help="write every answer there")
    add("--minutes", type=float, default=math.inf, help="start no further case after so long")
    add("--jobs", type=int, default=1, metavar="N", help="cases at a time; more make them slower")
    add("--check", action="store_true", help="exit code 1 where a goal is missed")
    return parser.parse_args()


def main() -> int:
    """0, or 1 with --check and a goal missed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no job is left behind
    arguments = _arguments()
    began, length = time.monotonic(), 60 * arguments.minutes
    options = Options(
        not arguments.no_baselines, arguments.collect, arguments.by_pid,
        began + FAULTS_SHARE * length,
    )  # fmt: skip
    seeds = range(arguments.seed, arguments.seed + arguments.repeat)
    faults = [] if arguments.no_faults else bench.chosen(arguments.only, arguments.classes)
    faults = sampling.sample(faults) if arguments.sample else faults
    attaches = arguments.healthy
    if attaches is None:
        attaches = sampling.HEALTHY if arguments.sample else HEALTHY
    jobs, until = arguments.jobs, began + length
    shelf = None if arguments.collect is None else Shelf(arguments.collect)
    if jobs > 1:
        outcomes = workers.run_faults(faults, list(seeds), options, _say, jobs)
        calm = workers.run_controls(attaches, arguments.only, _say, until, jobs, shelf)
    else:
        outcomes = bench.run_faults(faults, list(seeds), options, _say)
        calm = bench.run_controls(attaches, arguments.only, _say, until, shelf)
    results = Results(tuple(outcomes), tuple(calm))
    command = "python -m tests.faults " + " ".join(sys.argv[1:])
    _say(table.page(results, command.strip()))
    if arguments.write:
        put_section(ROOT / arguments.write, "attach", table.page(results, command.strip()))
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(results), indent=1), encoding="utf-8")
    misses = goals.missed(results)
    if not (arguments.only or arguments.classes or arguments.no_faults):
        misses += goals.too_few(results)
    for text in misses + goals.slow(results):
        _say(f"goal missed: {text}")
    return int(arguments.check and bool(misses))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
