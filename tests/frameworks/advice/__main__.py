"""`python -m tests.frameworks.advice`: whether printed advice brings what it predicts."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from tests.frameworks import inputs
from tests.frameworks.advice import table
from tests.frameworks.advice.cases import CASES, FRAMEWORKS, Case
from tests.frameworks.advice.jobs import Machine, write_rows
from tests.frameworks.advice.pairs import Pair, line, run_pair
from tests.frameworks.environments import python_of
from tests.frameworks.recorded_jobs import ENVIRONMENTS
from tests.pages import put_section


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.advice", description=__doc__)
    add = parser.add_argument
    add("frameworks", nargs="*", default=FRAMEWORKS, help="trl, swift; both without one")
    add("--only", nargs="+", default=[], metavar="PART", help="of the cases' names")
    add("--pairs", type=int, default=5, metavar="N", help="of each case, with seeds from 1")
    add("--environments", type=Path, default=ENVIRONMENTS)
    add("--folder", type=Path, default=Path("/tmp/framework-advice"), help="for jobs, kept there")
    add("--json", type=Path, metavar="FILE", help="keep every pair there as soon as it is done")
    add("--continue", dest="goes_on", action="store_true", help="with the pairs in that file")
    add("--write", type=Path, metavar="PAGE", help="write the table into this page's section")
    add("--beside", default="", metavar="WORDS", help="what else the host did, for the table")
    return parser.parse_args()


def main() -> int:
    """0, or 2 where the file has pairs of another run."""
    arguments = _arguments()
    cases = [case for case in CASES if _is_wanted(case, arguments)]
    file: Path | None = arguments.json
    pairs = _kept(file) if file else []
    if pairs and not arguments.goes_on:
        _say(f"{file} has {len(pairs)} pairs: go on with --continue, or name another file")
        return 2
    done = {(pair.framework, pair.case, pair.seed) for pair in pairs}
    pending = [
        (seed, case)
        for seed in range(1, arguments.pairs + 1)
        for case in cases
        if (case.framework, case.name, seed) not in done
    ]
    if pending:
        folder: Path = arguments.folder
        folder.mkdir(parents=True, exist_ok=True)
        model, data = inputs.write_model(folder / "model"), write_rows(folder / "rows.jsonl")
    began = time.monotonic()
    for number, (seed, case) in enumerate(pending, start=1):
        machine = Machine(_python(arguments.environments, case.framework), model, data)
        own = folder / f"{case.framework}-{seed}-{case.name.replace(' ', '-')}"
        pairs.append(run_pair(case, machine, own, seed, _printed(pairs, case)))
        minutes = (time.monotonic() - began) / 60
        eta = minutes / number * (len(pending) - number)
        _say(f"[{number} of {len(pending)}, {minutes:.1f} min, {eta:.0f} left] {line(pairs[-1])}")
        if file:
            _keep(file, pairs)
    _write(pairs, arguments.write, arguments.beside)
    return 0


def _kept(file: Path) -> list[Pair]:
    """The pairs of a run that was cut off; those whose jobs failed are tried again."""
    pairs = msgspec.json.decode(file.read_bytes(), type=list[Pair]) if file.exists() else []
    return [pair for pair in pairs if not pair.has_failed]


def _keep(file: Path, pairs: Sequence[Pair]) -> None:
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1))
    beside.replace(file)


def _is_wanted(case: Case, arguments: argparse.Namespace) -> bool:
    words = arguments.only
    matches = not words or any(word in case.name for word in words)
    return matches and case.framework in arguments.frameworks


def _printed(pairs: Sequence[Pair], case: Case) -> str:
    """What the report of the last pair advised; before the first, what it was known to."""
    own = [pair for pair in pairs if (pair.framework, pair.case) == (case.framework, case.name)]
    return next((pair.advice.text for pair in reversed(own) if pair.advice), case.printed)


def _python(environments: Path, framework: str) -> Path:
    python = python_of(environments / f"env-{framework}")
    return python if framework == "swift" or python.exists() else Path(sys.executable)


def _write(pairs: Sequence[Pair], page: Path | None, beside: str) -> None:
    if not pairs:
        return
    command = f"python -m tests.frameworks.advice --pairs {max(pair.seed for pair in pairs)}"
    order = [(case.framework, case.name) for case in sorted(CASES, key=lambda c: c.framework)]
    ordered = sorted(pairs, key=lambda pair: order.index((pair.framework, pair.case)))
    section = table.section(ordered, command, f" {beside}" if beside else "")
    _say(section)
    if page:
        put_section(page, table.SECTION, section)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
